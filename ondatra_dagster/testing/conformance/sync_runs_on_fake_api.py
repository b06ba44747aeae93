"""A harness for a push function: a table, a real queue, the push function, and a fake API that gets its calls."""

import contextlib
import dataclasses
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx

from ondatra_dagster.delivery.acknowledged_to_desired_diff import SentRow, UnitKind
from ondatra_dagster.delivery.delivery_loop import DeliveryHooks, DeliverySettings, deliver
from ondatra_dagster.delivery.http.api_client import ApiClient, RetryClock
from ondatra_dagster.delivery.http.connections_with_deadline import DeadlineTransport
from ondatra_dagster.delivery.push.push_config import PushConfig
from ondatra_dagster.delivery.push.push_interface import PushBatch, PushResult
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import PushContext, PushLibrary
from ondatra_dagster.delivery.push.starlark_sink_and_batch_halving import StarlarkSink
from ondatra_dagster.delivery.queue.claimed_batches import BatchUnit, mark_due_pending
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import (
    DeadLetter,
    read_dead_letters,
    replay_dead_letters,
)
from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.delivery.queue.queue_status import QueueStatus, read_status
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.delivery.unit_shape_by_model_kind import UnitFormat, open_queue_for
from ondatra_dagster.row_changes import ChangeType, Column
from ondatra_dagster.testing.conformance.in_memory_table import InMemoryTable
from ondatra_dagster.testing.conformance.push_test_input import PushCase, Row
from ondatra_dagster.testing.fake_api import FakeApi, running_fake_api
from ondatra_dagster.testing.fake_api_server import RecordedCall

RUN_INTERVAL_SECONDS = 2 * 86_400.0  # the time between two runs, longer than the wait before any retry
CONNECTIONS = 8
MAX_RUNS = 12  # more runs than the attempts that a row has
OPERATION_NAMES = {
    ChangeType.INSERT: "insert",
    ChangeType.UPDATE_POSTIMAGE: "update",
    ChangeType.DELETE: "delete",
    ChangeType.UPDATE_PREIMAGE: "update_preimage",
}


class RowResult(NamedTuple):
    """The result that push() gave for one row."""

    operation: str  # insert, update or delete
    key: str
    rowid: int
    outcome: RowOutcome

    @property
    def name(self) -> str:
        return f"the {self.operation} of {self.key}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPush:
    """A batch that push() or poll() got, the result, and the calls that were made for the batch."""

    parcel: PushBatch
    push_result: PushResult
    calls: Sequence[RecordedCall]

    def results(self, *, with_context: bool = False) -> Iterator[RowResult]:
        """Yield the result of each row, with those of context rows only on request.

        Yield nothing for a job that hasn't ended.
        """
        for unit in self.parcel.units if self.push_result.outcomes else ():
            for change_type, row in unit.sent_rows if with_context else changing_rows(unit):
                outcome = self.push_result.outcomes[f"{row.rowid}:{change_type}"]
                yield RowResult(OPERATION_NAMES[change_type], unit.key, row.rowid, outcome)


def changing_rows(unit: BatchUnit) -> Iterator[SentRow]:
    """Yield the rows of a unit that change something in the API, and no context rows."""
    is_rewrite = len({change_type for change_type, _ in unit.sent_rows}) > 1 or unit.is_context
    for sent_row in unit.sent_rows:
        is_old_version = sent_row.change_type is ChangeType.DELETE and is_rewrite
        if sent_row.change_type is not ChangeType.UPDATE_PREIMAGE and not is_old_version:
            yield sent_row


@dataclasses.dataclass(frozen=True, slots=True)
class PushRecorder:
    """A wrapper of the push function that records each batch with its result."""

    pusher: StarlarkSink
    api: FakeApi
    pushes: list[RecordedPush]

    def __call__(self, parcel: PushBatch, journal: ResponseJournal) -> PushResult:
        return self._record_push(parcel, lambda: self.pusher(parcel, journal))

    def poll(self, parcel: PushBatch, job: str) -> PushResult:
        return self._record_push(parcel, lambda: self.pusher.poll(parcel, job))

    def finalize(self, succeeded: int, failed: int, *, columns: Sequence[Column], journal: ResponseJournal) -> None:
        self.pusher.finalize(succeeded, failed, columns=columns, journal=journal)

    def _record_push(self, parcel: PushBatch, push: Callable[[], PushResult]) -> PushResult:
        calls_before = len(self.api.calls)
        result = push()
        self.pushes.append(RecordedPush(parcel=parcel, push_result=result, calls=self.api.calls[calls_before:]))
        return result


class ConformanceRun:
    """A table and its delivery to the API, from the first version to the last."""

    def __init__(
        self, case: PushCase, pusher: StarlarkSink, queue: Queue, *, config: PushConfig, journal: Path, api: FakeApi
    ) -> None:
        self._table = InMemoryTable(case, queue.unit_kind)
        self._queue = queue
        self._config = config
        self._journal = journal
        self._now = 1_800_000_000.0
        self.api = api
        self.recorded_pushes: list[RecordedPush] = []
        self._push = PushRecorder(pusher, api, self.recorded_pushes)

    def write_version(self, rows: Sequence[Row]) -> None:
        """Write the rows to the table, as if the model's query returned them, and enqueue the changes."""
        enqueue_segment(self._queue, self._table.write_rows(rows), now=self._now)

    def run_sync(self, *, batch_size: int | None = None) -> Sequence[RecordedPush]:
        """Run the sync once. Return the batches that this run gave to the push function."""
        pushes_before = len(self.recorded_pushes)
        self._now += RUN_INTERVAL_SECONDS
        # calls are made one after the other, so that a fault always hits the same call
        push = dataclasses.replace(self._config.push, max_concurrent=1)
        if batch_size and not self.is_mirror:
            push = dataclasses.replace(push, batch_size=batch_size)
        config = dataclasses.replace(self._config, push=push)
        settings = DeliverySettings.from_config(config, run_id=f"run-{self._now:.0f}", journal=self._journal)
        mark_due_pending(self._queue, self._now)
        hooks = DeliveryHooks(clock=lambda: self._now, on_settled=lambda *_: None, sleep=self._sleep)
        deliver(self._queue, self._push, settings, hooks)
        return self.recorded_pushes[pushes_before:]

    def deliver_version(self, rows: Sequence[Row], *, batch_size: int | None = None) -> None:
        """Write the rows to the table, and deliver the changes until nothing is left to retry."""
        self.write_version(rows)
        self.run_until_settled(batch_size=batch_size)

    def run_until_settled(self, *, batch_size: int | None = None) -> None:
        """Deliver until nothing is left to retry."""
        for _ in range(MAX_RUNS):
            self.run_sync(batch_size=batch_size)
            if not self.state.depth:
                return

    def repeat_push(self, push: RecordedPush) -> RecordedPush:
        """Push a batch twice with one journal, as after a crash.

        Return the second push, whose calls the journal answers.
        """
        journal = ResponseJournal.in_memory("again")
        self._push(push.parcel, journal)
        self._push(push.parcel, journal)
        return self.recorded_pushes.pop()

    def _sleep(self, seconds: float) -> None:
        """Move the run's clock forward instead of sleeping between two polls of a job."""
        self._now += seconds

    @property
    def is_mirror(self) -> bool:
        """Return whether each batch is the whole content of a table or partition."""
        return self._queue.unit_kind is UnitKind.MIRROR

    def finalize(self, succeeded: int, failed: int) -> None:
        """Call finalize() as at the end of a sync run; raise PushContractError if it fails."""
        journal = ResponseJournal.in_memory("finalize")
        self._push.finalize(succeeded, failed, columns=self._table.layout.columns, journal=journal)

    @property
    def state(self) -> QueueStatus:
        return read_status(self._queue.store, now=self._now)

    @property
    def dead_letters(self) -> Sequence[DeadLetter]:
        return list(read_dead_letters(self._queue.store, self._queue.unit_kind))

    def replay_dead(self) -> None:
        replay_dead_letters(self._queue, now=self._now)


@dataclasses.dataclass(slots=True)
class PushHarness:
    """A harness for all runs of one push function.

    The function's library is loaded once, and the fake API runs throughout.
    """

    library: PushLibrary
    case: PushCase
    http: ApiClient
    api: FakeApi
    folder: Path
    run_count: int = 0

    @contextlib.contextmanager
    def open_run(self, case: PushCase | None = None) -> Iterator[ConformanceRun]:
        """Yield a run with a new table, a new queue and an empty API."""
        case = case or self.case
        self.run_count += 1
        self.api.clear()
        path = self.folder / f"{self.run_count}.sqlite"
        if self.run_count > 1:  # for later runs, an empty queue is copied, which is faster than creating it
            shutil.copy(self.folder / "empty", path)
        size = self.library.config.push.batch_size
        context = PushContext(
            sync_id=self.library.config.name,
            kind=case.kind,
            key_columns=tuple(case.key),
            arguments=tuple(case.arguments),
        )
        with open_queue_for(UnitFormat(case.kind, tuple(case.key), size), path) as queue:
            if self.run_count == 1:
                queue.store.checkpoint()
                shutil.copy(path, self.folder / "empty")
            queue.store.execute("pragma synchronous = off")  # not synced to disk, because the queue is deleted soon
            yield ConformanceRun(
                case,
                StarlarkSink(self.library, self.http, context),
                queue,
                config=self.library.config,
                journal=path.with_suffix(".journal"),
                api=self.api,
            )


@contextlib.contextmanager
def open_harness(library: PushLibrary, case: PushCase) -> Iterator[PushHarness]:
    """Yield a harness for the push function. The fake API answers the function's calls to any address."""
    fields = tuple(case.id_fields or case.key or ("id",))
    with (
        running_fake_api(
            answer=case.answer, id_fields=fields, heeds_idempotency_keys=case.heeds_idempotency_keys
        ) as api,
        tempfile.TemporaryDirectory() as folder,
    ):
        # push() has to see each failure at once, so retries are off; the fake API needs no secret
        base_url = library.config.base_url or api.url
        config = dataclasses.replace(library.config, base_url=base_url, auth=None, retry=0)
        transport = RedirectTransport(api.url)
        retry_clock = RetryClock(sleep=lambda _: None)
        with ApiClient(config, secrets="value-of-{}".format, transport=transport, retry_clock=retry_clock) as http:
            yield PushHarness(library, case, http, api, Path(folder))


@contextlib.contextmanager
def capture_push_warnings() -> Iterator[list[str]]:
    """Collect the warnings that push functions cause, in the list that the context returns."""
    messages: list[str] = []
    handler = _MessageHandler(messages)
    logger = logging.getLogger(StarlarkSink.__module__)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


class _MessageHandler(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())


class RedirectTransport(DeadlineTransport):
    """A transport that sends every request to the fake API.

    Before that, credentials and hosts are checked with the request's own URL.
    """

    def __init__(self, address: str) -> None:
        super().__init__(connections=CONNECTIONS)
        self._address = httpx.URL(address)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url_parts = {"scheme": self._address.scheme, "host": self._address.host, "port": self._address.port}
        request.url = request.url.copy_with(**url_parts)
        return super().handle_request(request)
