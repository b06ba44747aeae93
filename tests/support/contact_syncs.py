"""One queue of contacts with a real push function before a real HTTP server, and no warehouse."""

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from ondatra_dagster.changes import Change, ChangeType, Column, FeedPage, Layout, Segment
from ondatra_dagster.delivery.deliver import Course, Delivery, deliver
from ondatra_dagster.delivery.frontier import Frontier
from ondatra_dagster.delivery.push.push_source import read_source
from ondatra_dagster.delivery.push.pusher import PushContext, open_pusher
from ondatra_dagster.delivery.queue.claim import Batch, make_due
from ondatra_dagster.delivery.queue.enqueue import enqueue
from ondatra_dagster.delivery.queue.letters import dead_letters, hasten
from ondatra_dagster.delivery.queue.settle import Settled
from ondatra_dagster.delivery.queue.states import QueueState, look
from ondatra_dagster.delivery.queue.tables import open_queue
from ondatra_dagster.delivery.queue.takeover import frontier_of, take_over
from ondatra_dagster.delivery.target import Shape
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
ATOMIC = (
    OPERATIONS
    + """
def push(rows):
    answer = http.post("/crm/batches", json={"operations": operations(rows)})
    if not answer.ok:
        fail(answer.text)
"""
)
SUBMIT = ATOMIC.replace("/crm/batches", "/crm/jobs") + '    return {"job_id": answer.json["id"]}\n'
ASYNC = (
    SUBMIT
    + """
def poll(job_ref, rows):
    answer = http.get("/crm/jobs/" + job_ref["job_id"])
    if answer.json["status"] == "complete":
        context = [str(r["__ondatra_rowid"]) for r in rows if r["__ondatra_change_type"] == "update_preimage"]
        results = {key: status for key, status in answer.json["results"]}
        return results | {rowid + ":update_preimage": "ok" for rowid in context}
"""
)


def contacts(*bad: int, count: int) -> dict[str, str]:
    """So many, of which these have an address that the CRM refuses."""
    return {f"c{n}": "no address" if n in bad else f"{n}@example.com" for n in range(1, count + 1)}


@dataclasses.dataclass
class ContactSync:
    """The sync, as its tests drive it: `now` is its clock, and waiting moves it on."""

    state: Path
    api: Any  # one with a url
    functions: str  # the push function's file, less its API
    push: dict[str, Any] = dataclasses.field(default_factory=dict)  # API's "push"
    now: float = 1_800_000_000.0
    version: int = 0
    table: dict[int, str | None] = dataclasses.field(default_factory=dict)
    settled: list[Settled] = dataclasses.field(default_factory=list)
    slept: list[float] = dataclasses.field(default_factory=list)
    frontier: Frontier | None = None

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
        """One version: c1="a@b" gives contact C-1 that address, None takes it away."""
        self.version += 1
        changes = [each for name, email in emails.items() for each in self._changes(int(name[1:]), email)]
        segment = Segment(self.version - 1, self.version, [FeedPage(LAYOUT, changes)])
        with open_queue(self.queue, shape=Shape.ROW) as queue:
            enqueue(queue, segment, now=self.now)

    def _changes(self, number: int, email: str | None) -> Iterator[Change]:
        before = self.table.get(number)
        if before and email:
            yield self._change(number, before, ChangeType.UPDATE_PREIMAGE)
            yield self._change(number, email, ChangeType.UPDATE_POSTIMAGE)
        elif email:
            yield self._change(number, email, ChangeType.INSERT)
        elif before:
            yield self._change(number, before, ChangeType.DELETE)
        self.table[number] = email

    def _change(self, number: int, email: str, change_type: ChangeType) -> Change:
        payload = orjson.dumps([f"C-{number}", email]).decode()
        return Change(f"C-{number}", number, change_type, self.version, payload)

    def run(self, **options: Any) -> Delivery:
        """Deliver what may go now."""
        self.now += 1
        library = self.library
        source, problems = read_source(library, "lib/contacts.star")
        assert source, problems
        context = PushContext(
            sync_id="sync.contacts", kind="merge", key_columns=("customer_id",), arguments=()
        )
        secrets = {"API_KEY": DEMO_KEY}
        course = Course.of(source.config, run_id="run", journal=self.queue.with_suffix(".journal"))
        given: dict[str, Any] = {
            "clock": lambda: self.now,
            "on_settled": self._note,
            "sleep": self._sleep,
            **options,
        }
        pusher = open_pusher(library, context, secrets=secrets.get, rates=self.state / "rates.sqlite")
        with open_queue(self.queue, shape=Shape.ROW) as queue, pusher as push_rows:
            make_due(queue, self.now)
            return deliver(queue, push_rows, course, **given)

    def run_later(self, seconds: float) -> Delivery:
        """Deliver what may go by then."""
        self.now += seconds
        return self.run()

    def _note(self, _batch: Batch, settled: Settled) -> None:
        self.settled.append(settled)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def keep_frontier(self) -> None:
        """What a run leaves in the tracking store."""
        at = datetime.fromtimestamp(self.now, UTC)
        with open_queue(self.queue, shape=Shape.ROW) as queue:
            frontier = frontier_of(queue, sync_id="sync.contacts", run_id="run", written_at=at)
            self.frontier = dataclasses.replace(frontier, units=list(frontier.units))

    def take_over(self) -> None:
        """Begin a new queue from it."""
        assert self.frontier
        with open_queue(self.queue, shape=Shape.ROW) as queue:
            take_over(queue, self.frontier, now=self.now)

    def hasten(self) -> None:
        with open_queue(self.queue, shape=Shape.ROW) as queue:
            hasten(queue)

    def standing(self) -> QueueState:
        with open_queue(self.queue, shape=Shape.ROW) as queue:
            return look(queue.store, now=self.now)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with open_queue(self.queue, shape=Shape.ROW) as queue:
            return queue.store.rows(statement)

    def dead(self) -> dict[str, str]:
        """Why keys were given up."""
        with open_queue(self.queue, shape=Shape.ROW) as queue:
            return {letter.key: letter.error for letter in dead_letters(queue.store, Shape.ROW)}

    def held(self) -> dict[str, object]:
        return {key: contact["email"] for key, contact in self.api.contacts().items()}
