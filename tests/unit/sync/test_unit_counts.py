"""The counts of a run: each unit once, whatever its kind, and the same on every screen."""

import contextlib
import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, Self

import pytest
from support.kind_desk import SYNC_ID, Api, Killed, KindDesk
from support.kind_tables import steps
from support.seeds import new_chance

from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.push.push_port import Parcel, Pushed
from ondatra_dagster.delivery.queue.unit_counts import Operation
from ondatra_dagster.operations.alerts import read_runs
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.model import Limit
from ondatra_dagster.project.settings.alert_settings import AlertSettings
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.summary import PARTS_OF_PLANNED, Cell, Grid, grid_of
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.sync.verdicts import Limits, Severity, judge_rejects
from ondatra_dagster.tracking.history import History, Result

KINDS_AND_SIZES = [
    *(
        (kind, size)
        for kind in ("append", "merge", "tracked", "scd2", "table", "partition")
        for size in (2, 100)
    ),
    ("table", 0),
    ("partition", 0),
]
KEYS = "abcd"
STEPS = 14
ANSWERS = ("ok", "ok", "ok", "warn: odd", "error: later", "reject: no")


class RandomApi(Api):
    """An API that takes, refuses, breaks off and keeps jobs as chance has it."""

    def __init__(self, chance: random.Random, *, makes_jobs: bool) -> None:
        super().__init__()
        self.chance = chance
        self.makes_jobs = makes_jobs
        self.is_reliable = False
        self.answer = lambda row: "ok" if self.is_reliable else chance.choice(ANSWERS)

    def happens(self, share: float) -> bool:
        return not self.is_reliable and self.chance.random() < share

    def __call__(self, parcel: Parcel, journal: Journal) -> Pushed:
        if self.happens(0.1):
            raise Killed
        if self.makes_jobs:
            return Pushed({}, job='{"id": 1}', calls=1, is_open=True)
        pushed = super().__call__(parcel, journal)
        if self.happens(0.1):
            return pushed._replace(unanswered=1, is_outage=True)
        return pushed

    def poll(self, parcel: Parcel, job: str) -> Pushed:
        if self.happens(0.5):
            return Pushed({}, job=job, calls=1, is_open=True)
        return super().__call__(parcel, Journal.in_memory("poll"))


def planned_operations(grid: Grid) -> dict[Operation, int]:
    return {operation: grid.cells[Cell.PLANNED, operation] for operation in Operation}


def ended_operations(grid: Grid) -> dict[Operation, int]:
    return {
        operation: sum(grid.cells[cell, operation] for cell in PARTS_OF_PLANNED) for operation in Operation
    }


def assert_adds_up(grid: Grid) -> None:
    assert planned_operations(grid) == ended_operations(grid)
    assert min(grid.cells.values(), default=0) >= 0
    attempted = sum(grid.count(cell) for cell in (Cell.SUCCEEDED, Cell.REJECTED, Cell.FAILED))
    assert attempted == grid.count(Cell.ATTEMPTED)


@dataclasses.dataclass
class JobDesk(KindDesk):
    """A sync whose API makes jobs of batches."""

    @property
    def sync(self) -> Sync:
        sync = super().sync
        push = dataclasses.replace(sync.config.push, batch_mode="async")
        functions = frozenset({"push", "poll"})
        return dataclasses.replace(
            sync, config=dataclasses.replace(sync.config, push=push, functions=functions)
        )

    def ports(self) -> Ports:
        return dataclasses.replace(super().ports(), sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def assert_runs_add_up(desk: KindDesk) -> None:
    """Each run that has ended, in the history and in its metadata."""
    for run in History(desk.state / "history.sqlite").runs(SYNC_ID, limit=1000):
        if run.result is Result.RUNNING:
            continue
        grid = grid_of(run.counts["grid"])  # type: ignore[arg-type]
        assert Cell.PLANNED in grid.counted, run
        assert_adds_up(grid)
        metadata = desk.tracking.metadata(SYNC_ID, run.run_id)
        assert metadata
        assert run.counts["grid"] == metadata["counts"]


@pytest.mark.parametrize("makes_jobs", [False, True])
@pytest.mark.parametrize(("kind", "batch_size"), KINDS_AND_SIZES)
def test_what_was_planned_is_the_sum_of_what_became_of_it(
    tmp_path: Path, kind: str, batch_size: int, makes_jobs: bool
) -> None:
    """Through errors, rejects, kills, outages, jobs, pauses, and replays."""
    chance = new_chance("counts", kind, batch_size, makes_jobs)
    desk = (JobDesk if makes_jobs else KindDesk)(tmp_path, kind, batch_size=batch_size)
    desk.api = api = RandomApi(chance, makes_jobs=makes_jobs)
    for key, values in steps(KINDS[kind], chance, keys=KEYS, count=STEPS):
        desk.write(**{key: values})
        desk.held = "it is paused" if chance.random() < 0.15 else None
        desk.now += chance.choice((0, 100_000))
        with contextlib.suppress(Killed):
            summary = desk.run()
            assert_adds_up(summary.grid)
    desk.held = None
    api.is_reliable = True
    desk.now += 1_000_000
    desk.run()
    assert_runs_add_up(desk)


class Content(NamedTuple):
    parts: dict[str, list[int]]
    rows: dict[str, list[object]]

    @classmethod
    def of(cls, desk: KindDesk) -> Self:
        return cls(desk.table.by_part(), desk.table.by_rowid())


def changed_units(kind: str, before: Content, after: Content) -> dict[Operation, int]:
    """What a user would count, from the content of the table alone."""
    if kind in ("append", "scd2"):
        return operations((before.rows.get(row), after.rows.get(row)) for row in {*before.rows, *after.rows})
    keys = {*before.parts, *after.parts}
    pairs = [(before.parts.get(key), after.parts.get(key)) for key in sorted(keys)]
    if kind in ("merge", "tracked"):
        return operations(pairs)
    if kind == "table":
        pairs = [([*itertools.chain(*before.parts.values())], [*itertools.chain(*after.parts.values())])]
    counts: Counter[Operation] = Counter()
    for old, new in pairs:
        if sorted(old or []) == sorted(new or []):
            continue
        had, has = len(old or []), len(new or [])
        counts[Operation.UPDATE] += min(had, has)
        counts[Operation.INSERT] += max(has - had, 0)
        counts[Operation.DELETE] += max(had - has, 0)
    return {operation: counts[operation] for operation in Operation}


def operations(pairs: Iterable[tuple[object, object]]) -> dict[Operation, int]:
    counts: Counter[Operation] = Counter()
    for old, new in pairs:
        if old != new:
            what = Operation.UPDATE if old and new else Operation.INSERT if new else Operation.DELETE
            counts[what] += 1
    return {operation: counts[operation] for operation in Operation}


@pytest.mark.parametrize(("kind", "batch_size"), KINDS_AND_SIZES)
def test_a_run_counts_what_a_user_would_count(tmp_path: Path, kind: str, batch_size: int) -> None:
    """From the table before and after; a dry run tells the same beforehand."""
    chance = new_chance("contents", kind, batch_size)
    desk = KindDesk(tmp_path, kind, batch_size=batch_size)
    before = Content({}, {})
    for key, values in steps(KINDS[kind], chance, keys=KEYS, count=25):
        desk.write(**{key: values})
        after = Content.of(desk)
        expected = changed_units(kind, before, after)
        assert tuple(expected.values()) == tuple(desk.run_dry().outlook.expected)
        if any(expected.values()):
            summary = desk.run()
            assert expected == planned_operations(summary.grid)
            assert sum(expected.values()) == summary.grid.count(Cell.SUCCEEDED)
            before = after


def test_a_refused_group_is_one_unit_and_no_delete(tmp_path: Path) -> None:
    """Nobody deleted the customer whose change was refused."""
    desk = KindDesk(tmp_path, "tracked")
    desk.deliver(a=[1, 2], b=[3])
    desk.write(a=[4, 5], b=[])
    desk.api.answer = lambda row: "reject: bad phone"
    summary = desk.run()
    assert {Operation.INSERT: 0, Operation.UPDATE: 1, Operation.DELETE: 1} == planned_operations(summary.grid)
    assert (2, 2) == (summary.grid.count(Cell.REJECTED), summary.grid.count(Cell.ATTEMPTED))
    rejected = [record[:3] for record in desk.records() if record[3] == "rejected"]
    assert [("a", "upsert", "insert"), ("a", "upsert", "insert"), ("b", "delete", "delete")] == rejected


def test_a_group_whose_old_row_is_refused_has_a_record_that_says_so(tmp_path: Path) -> None:
    """Its new rows arrived, so nothing else would tell of the reject."""
    desk = KindDesk(tmp_path, "tracked")
    desk.deliver(a=[1, 2])
    desk.write(a=[3])
    desk.api.answer = lambda row: "reject: locked" if row[2] == 1 else "ok"
    summary = desk.run()
    assert (0, 1) == (summary.grid.count(Cell.SUCCEEDED), summary.grid.count(Cell.REJECTED))
    told = [record for record in desk.records() if record[3] == "rejected"]
    assert [("a", "upsert", "delete", "rejected")] == told


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_an_old_row_that_makes_room_is_half_of_an_update(tmp_path: Path, kind: str) -> None:
    """Three rows become two: two updates and one delete, also where the API refuses to delete."""
    desk = KindDesk(tmp_path, kind)
    desk.deliver(a=[1, 2, 3])
    desk.write(a=[4, 5])
    desk.api.answer = lambda row: "reject: locked" if row[0] == "delete" else "ok"
    grid = desk.run().grid
    rejected = {operation: grid.cells[Cell.REJECTED, operation] for operation in Operation}
    assert {Operation.INSERT: 0, Operation.UPDATE: 2, Operation.DELETE: 1} == rejected
    assert (3, 0) == (grid.count(Cell.PLANNED), grid.count(Cell.SUCCEEDED))
    operations = Counter(record[1] for record in desk.records() if record[3] == "rejected")
    assert {"upsert": 2, "delete": 1} == operations


def test_max_rejects_counts_groups(tmp_path: Path) -> None:
    """Three refused invoices of ten lines aren't thirty."""
    desk = KindDesk(tmp_path, "tracked")
    desk.deliver(a=[1, 2], b=[3, 4], c=[5])
    desk.write(a=[6, 7], b=[8, 9], c=[10])
    desk.api.answer = lambda row: "reject: no" if row[1] in "ab" else "ok"
    summary = desk.run()
    for limit, severity in ((2, Severity.WARN), (1, Severity.ERROR)):
        verdict = judge_rejects(summary, Limits(max_rejects=Limit(Decimal(limit))))
        assert severity is verdict.severity
    assert "2 of 3 groups rejected: over @max_rejects" == verdict.description


def test_the_depth_of_a_queue_is_counted_in_units(tmp_path: Path) -> None:
    """A table of three rows that were all replaced is three changes to come, not six."""
    desk = KindDesk(tmp_path, "table")
    desk.deliver(a=[1, 2, 3])
    desk.write(a=[4, 5, 6])
    desk.api.answer = lambda row: "error: later"
    summary = desk.run()
    queue = summary.queue
    assert queue
    assert (3, 0, 3) == (queue.depth, queue.pending, queue.waiting)
    assert {Operation.INSERT: 0, Operation.UPDATE: 3, Operation.DELETE: 0} == planned_operations(summary.grid)
    assert 3 == summary.grid.count(Cell.FAILED)
    assert {"update"} == {row.operation.value for row in summary.waiting}


def test_alerts_count_groups(tmp_path: Path) -> None:
    """A refused invoice of many lines is one of the invoices, as everywhere else."""
    desk = KindDesk(tmp_path, "tracked")
    desk.deliver(a=[1, 2], b=[3, 4])
    desk.write(a=[5, 6], b=[7, 8])
    desk.api.answer = lambda row: "reject: no" if row[1] == "a" else "ok"
    desk.run()
    runs = History(desk.state / "history.sqlite").runs(SYNC_ID, limit=9)
    readings = {
        each.rule: each for each in read_runs(SYNC_ID, runs, AlertSettings(rejects=0.1), noun="group")
    }
    assert "1 of 2 groups rejected, over 10%" == readings["rejects"].sentence
