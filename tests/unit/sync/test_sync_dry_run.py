"""The dry run of a sync: it runs on a copy of the queue, has the counts of a run, and changes nothing."""

import shutil
from pathlib import Path

import pytest
from support.files.folder_contents import read_folder
from support.syncs.kind_sync_harness import SYNC_ID, KindSyncHarness

from ondatra_dagster.delivery.queue.change_and_outcome_counts import UnitOperation
from ondatra_dagster.delivery.queue.preview_of_changes_to_send import RowChangeCounts
from ondatra_dagster.project.model import RowLimit
from ondatra_dagster.sync.run_history_store import RunHistory, RunMode, RunResult
from ondatra_dagster.sync.run_summary import DryRunResult, load_expected_changes
from ondatra_dagster.sync.sync_checks import Severity, check_deletes

QUERIED = ["table", "append", "merge", "tracked", "scd2", "partition"]
# a becomes 2, b stays, c is new, d is removed if the kind removes rows
EXPECTED = {
    "table": RowChangeCounts(creates=0, updates=3, deletes=0),  # new rows replace old ones
    "append": RowChangeCounts(creates=2, updates=0, deletes=0),
    "merge": RowChangeCounts(creates=1, updates=1, deletes=0),
    "tracked": RowChangeCounts(creates=1, updates=1, deletes=1),
    "scd2": RowChangeCounts(creates=2, updates=2, deletes=0),  # a closed version is an update
    "partition": RowChangeCounts(creates=1, updates=1, deletes=0),
}


def kept(harness: KindSyncHarness) -> dict[str, bytes]:
    return {**read_folder(harness.state / "queue"), **read_folder(harness.state / "tracking")}


def numbers(told: DryRunResult) -> tuple[RowChangeCounts, int, int | None, int | None]:
    return (
        told.expected_changes.change_counts,
        told.expected_changes.changed_units,
        told.expected_changes.units_before,
        told.expected_changes.units_after,
    )


@pytest.mark.parametrize("kind", QUERIED)
def test_new_changed_and_removed_rows_are_counted_as_the_destination_sees_them(tmp_path: Path, kind: str) -> None:
    """The destination's number of rows before and after is right too."""
    desk = KindSyncHarness(tmp_path, kind)
    desk.deliver_values(a=[1], b=[5], d=[8])
    before = kept(desk)
    desk.write(a=[2], c=[7], d=[])
    expected, changed, rows_before, rows_after = numbers(desk.run_dry())
    assert (EXPECTED[kind], EXPECTED[kind].total) == (expected, changed)
    assert (3, desk.table.expected_table.rows.total()) == (rows_before, rows_after)
    assert before == kept(desk)
    assert [] == desk.api.received_calls


@pytest.mark.parametrize(("kind", "batch_size"), [*((kind, 100) for kind in QUERIED), ("table", 0), ("partition", 0)])
def test_a_run_has_the_counts_of_the_dry_run_before_it(tmp_path: Path, kind: str, batch_size: int) -> None:
    """The planned rows are equal for the first run, for a change, and for no change."""
    desk = KindSyncHarness(tmp_path, kind, batch_size=batch_size)
    for values in ({"a": [1], "b": [5]}, {"a": [2]}, {}):
        desk.write(**values)
        planned = desk.run_dry().summary.grid.to_json()["planned"]
        assert planned == desk.run().grid.to_json()["planned"]


def test_a_dry_run_of_a_new_sync_creates_every_row_and_leaves_no_snapshot(tmp_path: Path) -> None:
    """With the snapshot of a first run, the sync would look as if its queue was lost."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.write(a=[1], b=[5])
    result = desk.run_dry()
    assert (RowChangeCounts(creates=2), 2, 0, 2) == numbers(result)
    assert {} == kept(desk)
    assert 2 == len(desk.run_and_pop_received())


def test_samples_show_the_key_and_what_changes_in_it(tmp_path: Path) -> None:
    """An update shows just the columns that differ. Other changes show all columns."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    desk.write(a=[2], b=[5])
    update, insert = desk.run_dry().expected_changes.samples
    assert ("a", UnitOperation.UPDATE, {"value": (1, 2)}) == (
        update.key,
        update.operation,
        dict(update.changed_columns),
    )
    assert ("b", UnitOperation.INSERT, {"id": (None, "b"), "value": (None, 5)}) == (
        insert.key,
        insert.operation,
        {name: values for name, values in insert.changed_columns.items() if name in ("id", "value")},
    )


def test_the_sample_of_a_group_shows_how_many_rows_it_has(tmp_path: Path) -> None:
    """A group may have thousands of rows."""
    desk = KindSyncHarness(tmp_path, "tracked")
    desk.deliver_values(a=[1, 2, 3])
    desk.write(a=[4])
    result = desk.run_dry()
    assert RowChangeCounts(updates=1) == result.expected_changes.change_counts
    (sample,) = result.expected_changes.samples
    assert ("a", 3, 1) == (sample.key, sample.rows_before, sample.rows_after)


def test_waiting_rows_and_dead_letters_are_counted_separately(tmp_path: Path) -> None:
    """A run that starts now doesn't send them. The rows that the API has are counted without them."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.api.choose_status = lambda row: {"a": "error: later", "b": "reject: no"}.get(row[1], "ok")
    desk.deliver_values(a=[1], b=[2], c=[3])
    desk.now -= 10_000  # nothing is due
    result = desk.run_dry()
    assert (RowChangeCounts(), 0, 1, 1) == numbers(result)
    assert (1, 1) == (result.counts["waiting"], result.counts["dead"])
    desk.now += 10_000_000
    assert RowChangeCounts(creates=1) == desk.run_dry().expected_changes.change_counts


def test_a_newer_value_of_a_dead_letter_is_a_create(tmp_path: Path) -> None:
    """The API never accepted the older one."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.api.choose_status = lambda row: "reject: no"
    desk.deliver_values(a=[1])
    desk.write(a=[2])
    assert (RowChangeCounts(creates=1), 1, 0, 1) == numbers(desk.run_dry())


def test_the_guard_checks_a_dry_run_but_its_permission_is_not_kept(tmp_path: Path) -> None:
    """A dry run with --allow-deletes has allowed no deletes."""
    desk = KindSyncHarness(tmp_path, "tracked", max_deletes=RowLimit(1))
    desk.deliver_values(a=[1], b=[2], c=[3])
    desk.write(a=[], b=[])
    limits = desk.sync.limits
    assert Severity.PASS is check_deletes(desk.run_dry(allows_deletes=True).summary, limits).severity
    result = desk.run_dry()
    assert Severity.ERROR is check_deletes(result.summary, limits).severity
    assert RowChangeCounts(deletes=2) == result.expected_changes.change_counts


def test_a_dry_run_rebuilds_a_lost_queue_in_its_copy_only(tmp_path: Path) -> None:
    """A later run rebuilds it too, and finds the snapshot unchanged."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1], b=[5])
    shutil.rmtree(desk.state / "queue")
    before = kept(desk)
    desk.write(a=[2])
    result = desk.run_dry()
    assert (RowChangeCounts(updates=1), 1, 2, 2) == numbers(result)
    assert before == kept(desk)


def test_the_reason_why_a_run_would_be_refused_is_reported_and_stored(tmp_path: Path) -> None:
    """It is the same sentence as in a run."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    desk.base_url = "https://elsewhere.example.com"
    result = desk.run_dry()
    assert "run `ondatra resync sync.things`" in result.refusal
    history = RunHistory(desk.state / "history.sqlite")
    run, real = history.list_runs(SYNC_ID, with_dry=True)
    assert (RunResult.DRY, (result.refusal,)) == (run.result, run.first_errors)
    assert (real,) == history.list_runs(SYNC_ID)


def test_the_history_has_the_counts_of_a_dry_run(tmp_path: Path) -> None:
    """It has no values of the user's rows."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    desk.write(a=[4711])
    desk.run_dry()
    run, real = RunHistory(desk.state / "history.sqlite").list_runs(SYNC_ID, with_dry=True)
    assert (RunMode.INCREMENTAL, RowChangeCounts(updates=1), None) == (
        run.mode,
        load_expected_changes(run),
        load_expected_changes(real),
    )
    assert "4711" not in str(run)


def test_a_mirror_is_compared_with_the_last_one_that_was_sent(tmp_path: Path) -> None:
    """Nothing else is kept of it."""
    desk = KindSyncHarness(tmp_path, "table", batch_size=0)
    desk.deliver_values(a=[1], b=[5], c=[6])
    desk.write(c=[])
    assert (RowChangeCounts(updates=2, deletes=1), 3, 3, 2) == numbers(desk.run_dry())


def test_numbers_of_rows_that_were_not_counted_are_unknown(tmp_path: Path) -> None:
    """This is better than a wrong number."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.deliver_values(a=[1])
    desk.write(b=[2])
    result = desk.run_dry(is_counted=False)
    assert (None, None, None) == (
        result.source_rows,
        result.expected_changes.units_before,
        result.expected_changes.units_after,
    )
