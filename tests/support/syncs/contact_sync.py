"""A sync of contacts with a real queue, push function and HTTP server, but without a warehouse."""

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.delivery_loop import DeliveryHooks, DeliveryResult, DeliverySettings, deliver
from ondatra_dagster.delivery.push.push_file_parser import parse_push_file
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import PushContext
from ondatra_dagster.delivery.push.starlark_sink_and_batch_halving import open_starlark_sink
from ondatra_dagster.delivery.queue.claimed_batches import Batch, mark_due_pending
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import read_dead_letters, retry_waiting_now
from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.queue_database import open_queue
from ondatra_dagster.delivery.queue.queue_status import QueueStatus, read_status
from ondatra_dagster.delivery.queue.settle_batch import SettledBatch
from ondatra_dagster.delivery.queue.snapshot_and_restore import QueueSnapshot, make_snapshot, restore_snapshot
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, Layout, RowChange
from ondatra_dagster.testing.demo_api import DEMO_KEY

LAYOUT = Layout((Column("customer_id", "string"), Column("email", "string")))
OPERATIONS = """
def operations(rows):
    found = []
    for row in rows:
        change = row["__ondatra_change_type"]
        key = str(row["__ondatra_rowid"]) + ":" + change
        contact = {"customer_id": row["customer_id"], "email": row["email"]}
        if change == "delete":
            found.append({"key": key, "delete": row["customer_id"]})
        elif change != "update_preimage":
            found.append({"key": key, "upsert": contact})
    return found
"""
ATOMIC_PUSH = (
    OPERATIONS
    + """
def push(rows):
    answer = http.post("/crm/batches", json={"operations": operations(rows)})
    if not answer.ok:
        fail(answer.text)
"""
)
JOB_PUSH = ATOMIC_PUSH.replace("/crm/batches", "/crm/jobs") + '    return {"job_id": answer.json["id"]}\n'
ASYNC_PUSH = (
    JOB_PUSH
    + """
def poll(job_ref, rows):
    answer = http.get("/crm/jobs/" + job_ref["job_id"])
    if answer.json["status"] == "complete":
        context = [str(r["__ondatra_rowid"]) for r in rows if r["__ondatra_change_type"] == "update_preimage"]
        results = {key: status for key, status in answer.json["results"]}
        return results | {rowid + ":update_preimage": "ok" for rowid in context}
"""
)


def build_emails(*bad: int, count: int) -> dict[str, str]:
    """Return so many e-mail addresses by contact; the CRM refuses those of the numbers in `bad`."""
    return {f"c{n}": "no address" if n in bad else f"{n}@example.com" for n in range(1, count + 1)}


@dataclasses.dataclass
class ContactSync:
    """A sync for tests: `now` is its clock, and each wait moves it forward."""

    state: Path
    api: Any  # an API with a url
    functions: str  # the push function's file without its API dict
    push: dict[str, Any] = dataclasses.field(default_factory=dict)  # API's "push"
    now: float = 1_800_000_000.0
    version: int = 0
    table: dict[int, str | None] = dataclasses.field(default_factory=dict)
    settled_batches: list[SettledBatch] = dataclasses.field(default_factory=list)
    sleep_seconds: list[float] = dataclasses.field(default_factory=list)
    snapshot: QueueSnapshot | None = None

    @property
    def queue(self) -> Path:
        return self.state / "queue" / "sync.contacts.sqlite"

    @property
    def library(self) -> Path:
        path = self.state / "lib" / "contacts.star"
        path.parent.mkdir(exist_ok=True)
        api = {"base_url": self.api.url, "auth": {"env": "API_KEY"}, "retry": 0, "push": self.push}
        path.write_text(f"API = {api!r}\n{self.functions}", encoding="utf-8")
        return path

    def write(self, **emails: str | None) -> None:
        """Write one version: c1="a@b" gives contact C-1 that address, None deletes the contact."""
        self.version += 1
        changes = [change for name, email in emails.items() for change in self._changes(int(name[1:]), email)]
        segment = FeedSegment(self.version - 1, self.version, [FeedPage(LAYOUT, changes)])
        with open_queue(self.queue, shape=UnitKind.ROW) as queue:
            enqueue_segment(queue, segment, now=self.now)

    def _changes(self, number: int, email: str | None) -> Iterator[RowChange]:
        before = self.table.get(number)
        if before and email:
            yield self._change(number, before, ChangeType.UPDATE_PREIMAGE)
            yield self._change(number, email, ChangeType.UPDATE_POSTIMAGE)
        elif email:
            yield self._change(number, email, ChangeType.INSERT)
        elif before:
            yield self._change(number, before, ChangeType.DELETE)
        self.table[number] = email

    def _change(self, number: int, email: str, change_type: ChangeType) -> RowChange:
        payload = orjson.dumps([f"C-{number}", email]).decode()
        return RowChange(f"C-{number}", number, change_type, self.version, payload)

    def run(self, *, only_polls: bool = False, **options: Any) -> DeliveryResult:
        """Deliver the rows that are due now."""
        self.now += 1
        library = self.library
        source, problems = parse_push_file(library, "lib/contacts.star")
        assert source, problems
        context = PushContext(sync_id="sync.contacts", kind="merge", key_columns=("customer_id",), arguments=())
        secrets = {"API_KEY": DEMO_KEY}
        course = DeliverySettings.from_config(source.config, run_id="run", journal=self.queue.with_suffix(".journal"))
        hooks: dict[str, Any] = {
            "clock": lambda: self.now,
            "on_settled": self._record_settled,
            "sleep": self._sleep,
            **options,
        }
        pusher = open_starlark_sink(library, context, secrets=secrets.get, rates=self.state / "rates.sqlite")
        with open_queue(self.queue, shape=UnitKind.ROW) as queue, pusher as push_rows:
            mark_due_pending(queue, self.now)
            return deliver(queue, push_rows, course, DeliveryHooks(**hooks), only_polls=only_polls)

    def run_later(self, seconds: float) -> DeliveryResult:
        """Move the clock forward, and deliver the rows that are due then."""
        self.now += seconds
        return self.run()

    def _record_settled(self, _batch: Batch, settled_batch: SettledBatch) -> None:
        self.settled_batches.append(settled_batch)

    def _sleep(self, seconds: float) -> None:
        self.sleep_seconds.append(seconds)
        self.now += seconds

    def save_snapshot(self) -> None:
        """Save the snapshot that a run leaves in the tracking store."""
        at = datetime.fromtimestamp(self.now, UTC)
        with open_queue(self.queue, shape=UnitKind.ROW) as queue:
            snapshot = make_snapshot(queue, sync_id="sync.contacts", run_id="run", written_at=at)
            self.snapshot = dataclasses.replace(snapshot, units=list(snapshot.units))

    def restore_snapshot(self) -> None:
        """Restore a new queue from the snapshot."""
        assert self.snapshot
        with open_queue(self.queue, shape=UnitKind.ROW) as queue:
            restore_snapshot(queue, self.snapshot, now=self.now)

    def make_retries_due(self) -> None:
        with open_queue(self.queue, shape=UnitKind.ROW) as queue:
            retry_waiting_now(queue)

    def read_queue_status(self) -> QueueStatus:
        with open_queue(self.queue, shape=UnitKind.ROW) as queue:
            return read_status(queue.store, now=self.now)

    def query_queue(self, statement: str) -> list[tuple[Any, ...]]:
        with open_queue(self.queue, shape=UnitKind.ROW) as queue:
            return queue.store.fetch_rows(statement)

    def dead_letter_errors(self) -> dict[str, str]:
        """Return the error of each dead letter, by key."""
        with open_queue(self.queue, shape=UnitKind.ROW) as queue:
            return {letter.key: letter.error for letter in read_dead_letters(queue.store, UnitKind.ROW)}

    def delivered_emails(self) -> dict[str, object]:
        return {key: contact["email"] for key, contact in self.api.contacts().items()}
