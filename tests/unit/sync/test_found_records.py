"""A sync's records in files and queue together: each end once, whatever a run does meanwhile."""

import dataclasses
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kind_desk import KindDesk
from support.lives import HISTORIES
from support.seeds import new_chance, new_seeds

from ondatra_dagster.changes import Column, Layout
from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.queue import publication
from ondatra_dagster.delivery.queue.enqueue import enqueue
from ondatra_dagster.delivery.queue.settled import (
    DELETED,
    INVALID,
    UPDATED,
    Attempt,
    SettledRow,
    keep_settled,
)
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.sync.found_records import count_records, find_records
from ondatra_dagster.sync.records import Publisher
from ondatra_dagster.tracking.addresses import NumberedFile
from ondatra_dagster.tracking.found import FoundRecord, Search, Stage
from ondatra_dagster.tracking.parts import records_of
from ondatra_dagster.tracking.record import Operation
from ondatra_dagster.tracking.store import TrackingStore

STEPS = 15
LAYOUT = Layout((Column("name", "string"),))
STATUS = {UPDATED: ("succeeded", "rejected"), DELETED: ("succeeded",), INVALID: ("NULL", "DUPLICATE")}


@pytest.fixture
def desk(desk_anywhere):
    """A bucket has to do what a folder does."""
    return desk_anywhere


def find(desk, **asked: object) -> list[FoundRecord]:
    return list(records_of(find_records(desk.sync, desk.tracking, Search(**asked))))


def told(records: list[FoundRecord]) -> list[tuple[str, str, str]]:
    return [(record.status, record.identifier, record.change_type) for record in records]


def test_every_row_is_told_wherever_it_stands(desk) -> None:
    """Set aside, rejected, delivered; waiting for its next try, or not yet tried."""
    desk.api.answer = lambda row: Outcome.parse(
        {"Bad": "reject: no", "Busy": "error: busy"}.get(str(row["name"]), "ok")
    )
    desk.contacts.set_one_aside("DUPLICATE")
    desk.contacts.write(a1="Ada", b2="Bad", c3="Busy")
    desk.run()

    first, *others = told(find(desk))
    assert ("waiting", "3", "insert") == first
    assert {
        ("succeeded", "1", "insert"),
        ("rejected", "2", "insert"),
        ("DUPLICATE", "", "insert"),
    } == set(others)
    (waiting,) = find(desk, stage=Stage.WAITING)
    assert (1, "busy", None, '{"id":3,"name":"Busy"}') == (
        waiting.attempts,
        waiting.status_message,
        waiting.run_id,
        waiting.payload,
    )
    assert waiting.next_try_at is not None
    assert [("rejected", "2", "insert")] == told(find(desk, stage=Stage.REJECTED))
    assert [("DUPLICATE", "", "insert")] == told(find(desk, stage=Stage.INVALID))
    assert [] == find(desk, stage=Stage.PENDING)


def test_what_waits_is_told_with_the_newest_run(desk) -> None:
    """An older one has nothing to do with it any more."""
    desk.contacts.write(a1="Ada")
    desk.run()
    desk.api.is_down = True
    desk.contacts.write(b2="Bob")
    desk.run()
    first, second = desk.tracking.runs("sync.contacts")
    assert [("succeeded", "1", "insert")] == told(find(desk, run_id=first))
    assert [("waiting", "2", "insert")] == told(find(desk, run_id=second))
    assert [] == find(desk, run_id=first, stage=Stage.WAITING)
    assert [("waiting", "2", "insert"), ("succeeded", "1", "insert")] == told(find(desk))
    assert [("succeeded", "1", "insert")] == told(find(desk, offset=1, limit=5))
    assert [("waiting", "2", "insert")] == told(find(desk, limit=1))


def test_without_a_queue_the_files_are_told(desk) -> None:
    """It was lost, or forgotten; before the first run there is neither."""
    assert [] == find(desk)
    desk.contacts.write(a1="Ada")
    desk.run()
    desk.sync.queue.unlink()
    assert [("succeeded", "1", "insert")] == told(find(desk))


def test_units_are_told_in_the_form_that_they_have(tmp_path: Path) -> None:
    """The model's may be another by now: nothing of them is sent then, and one looks what they are."""
    desk = KindDesk(tmp_path, "table", batch_size=100)
    desk.api.answer = lambda row: "error: later"
    desk.write(a=[1], b=[5])
    desk.run()
    told_before = told(find(desk, stage=Stage.WAITING))
    assert ["waiting", "waiting"] == [status for status, _, _ in told_before]
    for kind, batch_size in (("table", 0), ("merge", 100), ("scd2", 100)):
        desk.kind, desk.batch_size = kind, batch_size
        assert told_before == told(find(desk, stage=Stage.WAITING))


def test_an_unknown_run_is_refused_with_the_nearest(desk) -> None:
    """A letter of an id is quickly lost; and the newest are what one mostly is after."""
    with pytest.raises(SelectionError, match="no records of a run 'x'; no run has left any"):
        find(desk, run_id="x")
    for name in ("Ada", "Bob"):
        desk.contacts.write(a1=name)
        desk.run()
    first, second = desk.tracking.runs("sync.contacts")
    with pytest.raises(SelectionError) as refusal:
        find(desk, run_id=second[:-1])
    assert f"did you mean '{second}'? the newest runs are {second}, {first}" in str(refusal.value)
    with pytest.raises(SelectionError):
        find(desk, run_id="x", stage=Stage.PENDING)


@dataclasses.dataclass
class GoingOn:
    """Runs that settle, publish, are cut off and end in any order; `ended` is all that came to an end."""

    desk: Any
    queue: Queue
    chance: random.Random
    run_id: str = ""
    runs: int = 0
    rows: int = 0
    ended: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)  # run, status, identifier

    def step(self) -> None:
        if not self.run_id:
            self.begin()
        self.chance.choice((self.settle, self.settle, self.choose, self.publish, self.end))()

    def begin(self) -> None:
        self.runs += 1
        self.run_id = f"20261118T12{self.runs:02}00Z-abcdef"
        with self.queue.store.immediate():
            self.queue.set_meta("last_run", self.run_id)
            publication.begin_run(self.queue, self.run_id, "{}")

    def settle(self) -> None:
        kind = self.chance.choice((UPDATED, DELETED, INVALID))
        rows = []
        for _ in range(self.chance.randrange(1, 4)):
            self.rows += 1
            status = self.chance.choice(STATUS[kind])
            rows.append(SettledRow(str(self.rows), 1, "insert", 1, status, None, 1, '["x"]'))
            self.ended.append((self.run_id, status, str(self.rows)))
        attempt = Attempt(run_id=self.run_id, started_at=1.0, ended_at=float(self.rows), max_attempts=8)
        with self.queue.store.immediate():
            keep_settled(self.queue, kind, rows, attempt)

    def choose(self) -> None:
        """A file gets its rows, and then the process ends."""
        kind = self.chance.choice((UPDATED, DELETED, INVALID))
        publication.choose(self.queue, self.run_id, kind, at_most=3)

    def publish(self) -> None:
        """The chosen files are written; of some of them nobody notes it any more."""
        for file in publication.chosen(self.queue, self.run_id):
            if self.chance.random() < 0.5:
                self.publisher()._publish(file)
            else:
                self.write(file)

    def write(self, file: publication.RunFile) -> None:
        """And the process ends."""
        records = self.publisher()._records(file)
        self.desk.tracking.publish("sync.contacts", file.run_id, file.type, file.number, records)

    def end(self) -> None:
        self.publisher().publish_all()
        publication.end_run(self.queue, self.run_id)
        self.run_id = ""

    def publisher(self) -> Publisher:
        return Publisher(
            self.queue,
            self.desk.tracking,
            sync_id="sync.contacts",
            run_id=self.run_id,
            operation=Operation.UPSERT,
        )


class Meanwhile(TrackingStore):
    """A store while others write: something may happen each time that somebody looks at it."""

    def __init__(self, life: GoingOn, happens: Callable[[], None] | None = None) -> None:
        super().__init__(str(life.desk.state / "tracking"))
        self._life = life
        self._happens = happens or self._anything

    def runs(self, sync_id: str) -> tuple[str, ...]:
        found = super().runs(sync_id)
        self._happens()
        return found

    def record_files(self, sync_id: str, run_id: str) -> list[NumberedFile]:
        self._happens()
        return super().record_files(sync_id, run_id)

    def _anything(self) -> None:
        # the queue is this thread's
        while threading.current_thread() is threading.main_thread() and self._life.chance.random() < 0.6:
            self._life.step()


@pytest.fixture
def life(desk) -> Iterator[GoingOn]:
    with desk.sync.open_queue() as queue:
        queue.layout_id(LAYOUT)
        life = GoingOn(desk, queue, random.Random(1))
        life.begin()
        yield life


def test_a_file_that_nobody_has_noted_counts_once(desk, life: GoingOn) -> None:
    """Its rows are in the queue until then, for a crash."""
    life.settle()
    for kind in (UPDATED, DELETED, INVALID):
        if file := publication.choose(life.queue, life.run_id, kind):
            life.write(file)
    life.settle()
    assert len(life.ended) == len(find(desk))


def test_a_run_that_begins_after_the_look_is_not_told(desk, life: GoingOn) -> None:
    """What it delivers was waiting at that moment, and is told as that."""
    desk.contacts.write(a1="Ada")
    enqueue(life.queue, next(desk.contacts.segments(None, 1)), now=1.0)

    def delivered() -> None:
        if life.runs == 1 and looked:
            life.end()
            life.begin()
            life.settle()
            life.end()
        looked.append(True)

    looked: list[bool] = []
    records = records_of(find_records(desk.sync, Meanwhile(life, delivered), Search()))
    assert [("pending", "1", "insert")] == told(list(records))


@pytest.mark.parametrize("at", ["folder"], indirect=True)
def test_no_end_is_missed_or_told_twice_while_runs_go_on(desk) -> None:
    """Rows move from queue to files between any two looks; what is told had all ended by one moment."""
    for seed in new_seeds(HISTORIES):
        own = dataclasses.replace(desk, state=desk.state / seed, records=None)
        with own.sync.open_queue() as queue:
            queue.layout_id(LAYOUT)
            life = GoingOn(own, queue, random.Random(seed))
            store = Meanwhile(life)
            for _ in range(STEPS):
                life.step()
                search = Search(stage=life.chance.choice((None, Stage.REJECTED, Stage.INVALID)))
                before = len(life.ended)
                found = list(records_of(find_records(own.sync, store, search)))
                answer = sorted((record.run_id, record.status, record.identifier) for record in found)
                moments = range(before, len(life.ended) + 1)
                assert answer in [
                    sorted(each for each in life.ended[:moment] if search.takes(each[2], each[1], "", None))
                    for moment in moments
                ], f"seed {seed}"


def test_what_is_found_is_counted_while_a_run_goes_on(desk, life: GoingOn) -> None:
    """In files, in the queue, and on its way from one to the other."""
    life.chance = new_chance("counted")
    for _ in range(STEPS):
        life.step()
        for search in (Search(), Search(stage=Stage.REJECTED), Search(run_id=None, change_type="insert")):
            found = list(records_of(find_records(desk.sync, desk.tracking, search)))
            assert len(found) == count_records(desk.sync, desk.tracking, search)
            limited = dataclasses.replace(search, limit=1, offset=1)
            assert len(found) == count_records(desk.sync, desk.tracking, limited)


def test_looking_holds_nobody_up(desk) -> None:
    """While somebody reads what was found, a run can empty the write-ahead log of its queue."""
    desk.contacts.write(a1="Ada", b2="Bob")
    desk.api.is_down = True
    desk.run()
    parts = find_records(desk.sync, desk.tracking, Search())
    with desk.sync.open_queue() as queue:
        queue.set_meta("anything", 1)
        ((is_busy, _, _),) = queue.store.rows("pragma wal_checkpoint(truncate)")
    assert (0, 2) == (is_busy, len(list(records_of(parts))))
