"""One go at a push function: a table, a real queue, the function itself, and a fake API that it talks to."""

import contextlib
import dataclasses
import logging
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.changes import ChangeType, Column
from ondatra_dagster.delivery.deliver import Course, deliver
from ondatra_dagster.delivery.http.http_api import HttpApi
from ondatra_dagster.delivery.http.http_redirect import RedirectTransport
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.push.push_config import PushConfig
from ondatra_dagster.delivery.push.push_port import Parcel, Pushed
from ondatra_dagster.delivery.push.pusher import PushContext, Pusher
from ondatra_dagster.delivery.push.starlark.push_library import PushLibrary
from ondatra_dagster.delivery.queue.claim import BatchUnit, make_due
from ondatra_dagster.delivery.queue.enqueue import enqueue
from ondatra_dagster.delivery.queue.letters import DeadLetter, dead_letters, replay
from ondatra_dagster.delivery.queue.states import QueueState, look
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.shapes import open_queue_of
from ondatra_dagster.delivery.target import SentRow, Shape
from ondatra_dagster.testing.calls import Call
from ondatra_dagster.testing.conformance.case import PushCase, Row
from ondatra_dagster.testing.conformance.sample_table import SampleTable
from ondatra_dagster.testing.fake_api import FakeApi, running_fake_api

LONG_SECONDS = 2 * 86_400.0  # longer than any row waits for its next try
ROUNDS = 12  # more than a row is tried
OPERATIONS = {
    ChangeType.INSERT: "insert",
    ChangeType.UPDATE_POSTIMAGE: "update",
    ChangeType.DELETE: "delete",
    ChangeType.UPDATE_PREIMAGE: "update_preimage",
}


class Result(NamedTuple):
    """What push() made of one row that stands for something."""

    operation: str  # insert, update, delete
    key: str
    rowid: int
    outcome: Outcome

    @property
    def name(self) -> str:
        return f"the {self.operation} of {self.key}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """One batch that was handed to push(), and what came of it."""

    parcel: Parcel
    pushed: Pushed
    calls: Sequence[Call]

    def results(self, *, with_context: bool = False) -> Iterator[Result]:
        """Of all rows, or of all but those that only tell what was there before; none of an open job's."""
        for unit in self.parcel.units if self.pushed.outcomes else ():
            for change_type, row in unit.sent if with_context else telling(unit):
                outcome = self.pushed.outcomes[f"{row.rowid}:{change_type}"]
                yield Result(OPERATIONS[change_type], unit.key, row.rowid, outcome)


def telling(unit: BatchUnit) -> Iterator[SentRow]:
    """The rows of a unit that change something at the API."""
    is_rewrite = len({change_type for change_type, _ in unit.sent}) > 1 or unit.is_context
    for sent in unit.sent:
        is_before = sent.change_type is ChangeType.DELETE and is_rewrite
        if sent.change_type is not ChangeType.UPDATE_PREIMAGE and not is_before:
            yield sent


class Recorder:
    """Hands batches on to push(), and keeps what came of them."""

    def __init__(self, pusher: Pusher, api: FakeApi, handed: list[Handed]) -> None:
        self._pusher = pusher
        self._api = api
        self._handed = handed

    def __call__(self, parcel: Parcel, journal: Journal) -> Pushed:
        return self._keep(parcel, lambda: self._pusher(parcel, journal))

    def poll(self, parcel: Parcel, job: str) -> Pushed:
        return self._keep(parcel, lambda: self._pusher.poll(parcel, job))

    def finalize(self, succeeded: int, failed: int, *, columns: Sequence[Column], journal: Journal) -> None:
        self._pusher.finalize(succeeded, failed, columns=columns, journal=journal)

    def _keep(self, parcel: Parcel, push: Callable[[], Pushed]) -> Pushed:
        before = len(self._api.calls)
        pushed = push()
        self._handed.append(Handed(parcel=parcel, pushed=pushed, calls=self._api.calls[before:]))
        return pushed


class Play:
    """A table that is delivered, from its first version on."""

    def __init__(
        self,
        case: PushCase,
        pusher: Pusher,
        queue: Queue,
        *,
        config: PushConfig,
        journal: Path,
        api: FakeApi,
    ) -> None:
        self._table = SampleTable(case, queue.shape)
        self._queue = queue
        self._config = config
        self._journal = journal
        self._now = 1_800_000_000.0
        self.api = api
        self.handed: list[Handed] = []
        self._push = Recorder(pusher, api, self.handed)

    def write(self, rows: Sequence[Row]) -> None:
        """The model gives these rows now."""
        enqueue(self._queue, self._table.write(rows), now=self._now)

    def run(self, *, batch_size: int | None = None) -> Sequence[Handed]:
        """One sync run; what was handed to push() in it."""
        before = len(self.handed)
        self._now += LONG_SECONDS
        course = Course.of(self._config, run_id=f"run-{self._now:.0f}", journal=self._journal)
        # one call after the other, so that a fault meets the same one each time
        course = dataclasses.replace(course, max_concurrent=1)
        if batch_size and not self.is_mirror:
            course = dataclasses.replace(course, batch_size=batch_size)
        make_due(self._queue, self._now)
        deliver(
            self._queue,
            self._push,
            course,
            clock=lambda: self._now,
            on_settled=lambda *_: None,
            sleep=self._sleep,
        )
        return self.handed[before:]

    def run_to_the_end(self, *, batch_size: int | None = None) -> None:
        """Runs until nothing is left that would be tried again."""
        for _ in range(ROUNDS):
            self.run(batch_size=batch_size)
            if not self.state.depth:
                return

    def hand_again(self, handed: Handed) -> Handed:
        """The same batch once more, as after a crash: answered from its journal as far as that goes."""
        journal = Journal.in_memory("again")
        self._push(handed.parcel, journal)
        self._push(handed.parcel, journal)
        return self.handed.pop()

    def _sleep(self, seconds: float) -> None:
        """Between two polls of a job."""
        self._now += seconds

    @property
    def is_mirror(self) -> bool:
        """Whether contents go out whole, in batches of their own."""
        return self._queue.shape is Shape.MIRROR

    def finalize(self, succeeded: int, failed: int) -> None:
        """Tell the function that a sync run has come to its end; PushContractError when it didn't take it."""
        journal = Journal.in_memory("finalize")
        self._push.finalize(succeeded, failed, columns=self._table.layout.columns, journal=journal)

    @property
    def state(self) -> QueueState:
        return look(self._queue.store, now=self._now)

    @property
    def dead(self) -> Sequence[DeadLetter]:
        return list(dead_letters(self._queue.store, self._queue.shape))

    def replay(self) -> None:
        replay(self._queue, now=self._now)


class Stage:
    """Where plays of one push function are given: its library is loaded once, its API runs throughout."""

    def __init__(
        self, library: PushLibrary, case: PushCase, http: HttpApi, api: FakeApi, folder: Path
    ) -> None:
        self._library = library
        self._case = case
        self._http = http
        self._api = api
        self._folder = folder
        self._plays = 0

    @property
    def functions(self) -> Collection[str]:
        """What the file has, of those that are called."""
        return self._library.config.functions

    @contextlib.contextmanager
    def play(self, case: PushCase | None = None) -> Iterator[Play]:
        """A new table, a new queue, an empty API."""
        case = case or self._case
        self._plays += 1
        self._api.clear()
        path = self._folder / f"{self._plays}.sqlite"
        if self._plays > 1:  # a copy of an empty one is there sooner than a new one
            shutil.copy(self._folder / "empty", path)
        size = self._library.config.push.batch_size
        with open_queue_of(case.kind_of, path, batch_size=size) as queue:
            if self._plays == 1:
                queue.store.checkpoint()
                shutil.copy(path, self._folder / "empty")
            queue.store.run("pragma synchronous = off")  # it is gone in a moment
            yield Play(
                case,
                Pusher(self._library, self._http, _context(self._library, case)),
                queue,
                config=self._library.config,
                journal=path.with_suffix(".journal"),
                api=self._api,
            )


@contextlib.contextmanager
def open_stage(library: PushLibrary, case: PushCase) -> Iterator[Stage]:
    """A stage for plays of this function; whatever address it calls, the fake API answers."""
    fields = tuple(case.id_fields or case.key or ("id",))
    with (
        running_fake_api(
            answer=case.answer, id_fields=fields, heeds_idempotency_keys=case.heeds_idempotency_keys
        ) as api,
        tempfile.TemporaryDirectory() as folder,
    ):
        # each failure has to reach push() at once, and no secret is needed
        base_url = library.config.base_url or api.url
        config = dataclasses.replace(library.config, base_url=base_url, auth=None, retry=0)
        transport = RedirectTransport(api.url)
        with HttpApi(config, secrets=_made_up, transport=transport, sleep=lambda _: None) as http:
            yield Stage(library, case, http, api, Path(folder))


def _context(library: PushLibrary, case: PushCase) -> PushContext:
    return PushContext(
        sync_id=library.config.name,
        kind=case.kind,
        key_columns=tuple(case.key),
        arguments=tuple(case.arguments),
    )


def _made_up(name: str) -> str:
    return f"value-of-{name}"


@contextlib.contextmanager
def warnings_of_pushes() -> Iterator[list[str]]:
    """What is warned of while batches are handed over, each once."""
    told: list[str] = []
    handler = _Keeper(told)
    logger = logging.getLogger(Pusher.__module__)
    logger.addHandler(handler)
    try:
        yield told
    finally:
        logger.removeHandler(handler)


class _Keeper(logging.Handler):
    def __init__(self, told: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told.append(record.getMessage())
