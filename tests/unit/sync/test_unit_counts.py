"""The counts of a run: each unit is counted once, whatever its kind, and the same on every screen."""

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
from support.random_histories.random_seeds import new_random
from support.syncs.kind_feed_table import random_kind_steps
from support.syncs.kind_sync_harness import SYNC_ID, InMemoryKindApi, KindSyncCrash, KindSyncHarness

from ondatra_dagster.delivery.push.push_interface import PushBatch, PushResult
from ondatra_dagster.delivery.queue.change_and_outcome_counts import UnitOperation
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.operations.alert_rules import evaluate_runs
from ondatra_dagster.project.model import RowLimit
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.project.settings.read_settings_and_defaults import AlertSettings
from ondatra_dagster.sync.run_history_store import RunHistory, RunResult
from ondatra_dagster.sync.run_summary import PLANNED_ROWS, CountGrid, GridRow, load_grid
from ondatra_dagster.sync.sync_checks import Severity, SyncLimits, check_rejects
from ondatra_dagster.sync.sync_definition import Sync

KINDS_AND_SIZES = [
    *((kind, size) for kind in ("append", "merge", "tracked", "scd2", "table", "partition") for size in (2, 100)),
    ("table", 0),
    ("partition", 0),
]
KEYS = "abcd"
STEPS = 14
ANSWERS = ("ok", "ok", "ok", "warn: odd", "error: later", "reject: no")


class RandomApi(InMemoryKindApi):
    """An API that accepts, rejects, crashes and keeps jobs open at random."""

    def __init__(self, chance: random.Random, *, makes_jobs: bool) -> None:
        super().__init__()
        self.rng = chance
        self.is_async = makes_jobs
        self.is_reliable = False
        self.choose_status = lambda row: "ok" if self.is_reliable else chance.choice(ANSWERS)

    def happens(self, share: float) -> bool:
        return not self.is_reliable and self.rng.random() < share

    def __call__(self, parcel: PushBatch, journal: ResponseJournal) -> PushResult:
        if self.happens(0.1):
            raise KindSyncCrash
        if self.is_async:
            return PushResult({}, job_reference='{"id": 1}', calls=1, is_open=True)
        pushed = super().__call__(parcel, journal)
        if self.happens(0.1):
            return pushed._replace(unanswered_calls=1, is_outage=True)
        return pushed

    def poll(self, parcel: PushBatch, job: str) -> PushResult:
        if self.happens(0.5):
            return PushResult({}, job_reference=job, calls=1, is_open=True)
        return super().__call__(parcel, ResponseJournal.in_memory("poll"))


def planned_operations(grid: CountGrid) -> dict[UnitOperation, int]:
    return {operation: grid.cells[GridRow.PLANNED, operation] for operation in UnitOperation}


def ended_operations(grid: CountGrid) -> dict[UnitOperation, int]:
    return {operation: sum(grid.cells[cell, operation] for cell in PLANNED_ROWS) for operation in UnitOperation}


def assert_adds_up(grid: CountGrid) -> None:
    assert planned_operations(grid) == ended_operations(grid)
    assert min(grid.cells.values(), default=0) >= 0
    attempted = sum(grid.total(cell) for cell in (GridRow.SUCCEEDED, GridRow.REJECTED, GridRow.FAILED))
    assert attempted == grid.total(GridRow.ATTEMPTED)


@dataclasses.dataclass
class CountedJobHarness(KindSyncHarness):
    """A sync whose API makes jobs of batches."""

    @property
    def sync(self) -> Sync:
        sync = super().sync
        push = dataclasses.replace(sync.push_config.push, batch_mode="async")
        functions = frozenset({"push", "poll"})
        return dataclasses.replace(
            sync, push_config=dataclasses.replace(sync.push_config, push=push, functions=functions)
        )


def assert_runs_add_up(harness: KindSyncHarness) -> None:
    """Check each run that has ended, in the history and in its metadata."""
    for run in RunHistory(harness.state / "history.sqlite").list_runs(SYNC_ID, limit=1000):
        if run.result is RunResult.RUNNING:
            continue
        grid = load_grid(run)
        assert GridRow.PLANNED in grid.known_rows, run
        assert_adds_up(grid)
        metadata = harness.tracking.read_metadata(SYNC_ID, run.run_id)
        assert metadata
        assert run.counts["grid"] == metadata["counts"]


@pytest.mark.parametrize("makes_jobs", [False, True])
@pytest.mark.parametrize(("kind", "batch_size"), KINDS_AND_SIZES)
def test_the_planned_units_are_the_sum_of_their_outcomes(
    tmp_path: Path, kind: str, batch_size: int, makes_jobs: bool
) -> None:
    """This holds for errors, rejections, kills, outages, jobs and pauses."""
    chance = new_random("counts", kind, batch_size, makes_jobs)
    desk = (CountedJobHarness if makes_jobs else KindSyncHarness)(tmp_path, kind, batch_size=batch_size)
    desk.api = api = RandomApi(chance, makes_jobs=makes_jobs)
    for key, values in random_kind_steps(KINDS[kind], chance, keys=KEYS, count=STEPS):
        desk.write(**{key: values})
        desk.hold_reason = "it is paused" if chance.random() < 0.15 else None
        desk.now += chance.choice((0, 100_000))
        with contextlib.suppress(KindSyncCrash):
            summary = desk.run()
            assert_adds_up(summary.grid)
    desk.hold_reason = None
    api.is_reliable = True
    desk.now += 1_000_000
    desk.run()
    assert_runs_add_up(desk)


def test_a_run_killed_while_it_sends_an_empty_table_has_a_plan(tmp_path: Path) -> None:
    """A plan of no rows isn't an unknown plan."""
    harness = KindSyncHarness(tmp_path, "table", batch_size=0)
    harness.write(a=[])
    harness.api = api = RandomApi(random.Random(0), makes_jobs=False)
    api.happens = lambda share: True  # type: ignore[method-assign]  # the first call ends the process
    with contextlib.suppress(KindSyncCrash):
        harness.run()
    api.happens = lambda share: False  # type: ignore[method-assign]
    harness.run()
    assert_runs_add_up(harness)


class Content(NamedTuple):
    parts: dict[str, list[int]]
    rows: dict[str, list[object]]

    @classmethod
    def of(cls, harness: KindSyncHarness) -> Self:
        return cls(harness.table.content_by_key(), harness.table.content_by_rowid())


def changed_units(kind: str, before: Content, after: Content) -> dict[UnitOperation, int]:
    """Return what a user would count, from the content of the table alone."""
    if kind in ("append", "scd2"):
        return operations((before.rows.get(row), after.rows.get(row)) for row in {*before.rows, *after.rows})
    keys = {*before.parts, *after.parts}
    pairs = [(before.parts.get(key), after.parts.get(key)) for key in sorted(keys)]
    if kind in ("merge", "tracked"):
        return operations(pairs)
    if kind == "table":
        pairs = [([*itertools.chain(*before.parts.values())], [*itertools.chain(*after.parts.values())])]
    counts: Counter[UnitOperation] = Counter()
    for old, new in pairs:
        if sorted(old or []) == sorted(new or []):
            continue
        had, has = len(old or []), len(new or [])
        counts[UnitOperation.UPDATE] += min(had, has)
        counts[UnitOperation.INSERT] += max(has - had, 0)
        counts[UnitOperation.DELETE] += max(had - has, 0)
    return {operation: counts[operation] for operation in UnitOperation}


def operations(pairs: Iterable[tuple[object, object]]) -> dict[UnitOperation, int]:
    counts: Counter[UnitOperation] = Counter()
    for old, new in pairs:
        if old != new:
            what = UnitOperation.UPDATE if old and new else UnitOperation.INSERT if new else UnitOperation.DELETE
            counts[what] += 1
    return {operation: counts[operation] for operation in UnitOperation}


@pytest.mark.parametrize(("kind", "batch_size"), KINDS_AND_SIZES)
def test_a_run_counts_what_a_user_would_count(tmp_path: Path, kind: str, batch_size: int) -> None:
    """The user compares the table before and after. A dry run says the same in advance."""
    chance = new_random("contents", kind, batch_size)
    desk = KindSyncHarness(tmp_path, kind, batch_size=batch_size)
    before = Content({}, {})
    for key, values in random_kind_steps(KINDS[kind], chance, keys=KEYS, count=25):
        desk.write(**{key: values})
        after = Content.of(desk)
        expected = changed_units(kind, before, after)
        assert tuple(expected.values()) == tuple(desk.run_dry().expected_changes.change_counts)
        if any(expected.values()):
            summary = desk.run()
            assert expected == planned_operations(summary.grid)
            assert sum(expected.values()) == summary.grid.total(GridRow.SUCCEEDED)
            before = after


def test_a_rejected_group_is_one_unit_and_no_delete(tmp_path: Path) -> None:
    """A customer whose change was rejected wasn't deleted."""
    desk = KindSyncHarness(tmp_path, "tracked")
    desk.deliver_values(a=[1, 2], b=[3])
    desk.write(a=[4, 5], b=[])
    desk.api.choose_status = lambda row: "reject: bad phone"
    summary = desk.run()
    assert {UnitOperation.INSERT: 0, UnitOperation.UPDATE: 1, UnitOperation.DELETE: 1} == planned_operations(
        summary.grid
    )
    assert (2, 2) == (summary.grid.total(GridRow.REJECTED), summary.grid.total(GridRow.ATTEMPTED))
    rejected = [record[:3] for record in desk.delivered_records() if record[3] == "rejected"]
    assert [("a", "upsert", "insert"), ("a", "upsert", "insert"), ("b", "delete", "delete")] == rejected


def test_a_group_whose_delete_is_rejected_has_a_record_that_says_so(tmp_path: Path) -> None:
    """Its new rows arrived, so nothing else would show the rejection."""
    desk = KindSyncHarness(tmp_path, "tracked")
    desk.deliver_values(a=[1, 2])
    desk.write(a=[3])
    desk.api.choose_status = lambda row: "reject: locked" if row[2] == 1 else "ok"
    summary = desk.run()
    assert (0, 1) == (summary.grid.total(GridRow.SUCCEEDED), summary.grid.total(GridRow.REJECTED))
    records = [record for record in desk.delivered_records() if record[3] == "rejected"]
    assert [("a", "upsert", "delete", "rejected")] == records


@pytest.mark.parametrize("kind", ["table", "partition"])
def test_an_old_row_that_is_replaced_is_half_of_an_update(tmp_path: Path, kind: str) -> None:
    """Three rows become two: that is two updates and one delete, even if the API rejects deletes."""
    desk = KindSyncHarness(tmp_path, kind)
    desk.deliver_values(a=[1, 2, 3])
    desk.write(a=[4, 5])
    desk.api.choose_status = lambda row: "reject: locked" if row[0] == "delete" else "ok"
    grid = desk.run().grid
    rejected = {operation: grid.cells[GridRow.REJECTED, operation] for operation in UnitOperation}
    assert {UnitOperation.INSERT: 0, UnitOperation.UPDATE: 2, UnitOperation.DELETE: 1} == rejected
    assert (3, 0) == (grid.total(GridRow.PLANNED), grid.total(GridRow.SUCCEEDED))
    operations = Counter(record[1] for record in desk.delivered_records() if record[3] == "rejected")
    assert {"upsert": 2, "delete": 1} == operations


def test_max_rejects_counts_groups(tmp_path: Path) -> None:
    """Three rejected invoices of ten lines aren't thirty rejections."""
    desk = KindSyncHarness(tmp_path, "tracked")
    desk.deliver_values(a=[1, 2], b=[3, 4], c=[5])
    desk.write(a=[6, 7], b=[8, 9], c=[10])
    desk.api.choose_status = lambda row: "reject: no" if row[1] in "ab" else "ok"
    summary = desk.run()
    for limit, severity in ((2, Severity.WARN), (1, Severity.ERROR)):
        verdict = check_rejects(summary, SyncLimits(max_rejects=RowLimit(Decimal(limit))))
        assert severity is verdict.severity
    assert "2 of 3 groups rejected: over @max_rejects" == verdict.description


def test_the_depth_of_a_queue_is_counted_in_units(tmp_path: Path) -> None:
    """Three rows of a table that were all replaced are three waiting changes, not six."""
    desk = KindSyncHarness(tmp_path, "table")
    desk.deliver_values(a=[1, 2, 3])
    desk.write(a=[4, 5, 6])
    desk.api.choose_status = lambda row: "error: later"
    summary = desk.run()
    queue = summary.queue
    assert queue
    assert (3, 0, 3) == (queue.depth, queue.pending_units, queue.waiting_units)
    assert {UnitOperation.INSERT: 0, UnitOperation.UPDATE: 3, UnitOperation.DELETE: 0} == planned_operations(
        summary.grid
    )
    assert 3 == summary.grid.total(GridRow.FAILED)
    assert {"update"} == {row.operation.value for row in summary.pending_samples}


def test_alerts_count_groups(tmp_path: Path) -> None:
    """A rejected invoice with many lines is one invoice, as everywhere else."""
    desk = KindSyncHarness(tmp_path, "tracked")
    desk.deliver_values(a=[1, 2], b=[3, 4])
    desk.write(a=[5, 6], b=[7, 8])
    desk.api.choose_status = lambda row: "reject: no" if row[1] == "a" else "ok"
    desk.run()
    runs = RunHistory(desk.state / "history.sqlite").list_runs(SYNC_ID, limit=9)
    readings = {
        reading.rule: reading for reading in evaluate_runs(SYNC_ID, runs, AlertSettings(rejects=0.1), noun="group")
    }
    assert "1 of 2 groups rejected, over 10%" == readings["rejects"].sentence
