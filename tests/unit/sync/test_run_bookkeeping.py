"""The history and metadata.json of runs that didn't end normally."""

import dataclasses
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

import pytest

from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.errors import ResyncNeededError, StateError
from ondatra_dagster.project.model import RowLimit
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import ResyncOptions, resync_queue
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.run_history_store import PastRun, RunMode, RunResult
from ondatra_dagster.sync.run_summary import RECORDED_ROWS, CountGrid, GridRow, load_grid
from ondatra_dagster.sync.sync_checks import Severity, SyncLimits, check_rejects
from ondatra_dagster.sync.sync_run import run_sync

OK = RowOutcome.parse_status("ok")
SYNC = "sync.contacts"


class RunLogCrash(BaseException):
    """A crash that none of our code catches."""


def after(answers: int, then: Callable[[], None]) -> Callable[[Mapping[str, object]], RowOutcome]:
    """Return an API that accepts this many rows before something happens."""
    rows: list[object] = []

    def answer(row: Mapping[str, object]) -> RowOutcome:
        rows.append(row)
        if len(rows) > answers:
            then()
        return OK

    return answer


def killed() -> None:
    raise RunLogCrash


def grid(run: PastRun) -> CountGrid:
    return load_grid(run)


def runs(harness) -> list[PastRun]:
    """Return the runs, the oldest first."""
    return list(reversed(harness.history.list_runs(SYNC)))


def test_a_crashed_run_is_shown_with_what_it_delivered(harness) -> None:
    """The API has its rows. A line of zeros would say that it doesn't."""
    harness.batch_size = 2
    harness.contacts.write(**{f"a{number}": "Ada" for number in range(1, 11)})
    harness.api.choose_outcome = after(6, killed)
    with pytest.raises(RunLogCrash):
        harness.run()
    harness.api.choose_outcome = lambda row: OK
    harness.run()
    crashed, last = runs(harness)
    assert (RunResult.CRASHED, RunResult.SUCCEEDED) == (crashed.result, last.result)
    assert (6, 4) == tuple(grid(run).total(GridRow.SUCCEEDED) for run in (crashed, last))
    assert crashed.counts["grid"] == harness.tracking.read_metadata(SYNC, crashed.run_id)["counts"]


def test_a_crashed_run_has_its_counts_up_to_the_crash(harness) -> None:
    """Calls had failed, and two rows weren't sent. Zeros would say that all had gone well until the crash."""
    harness.batch_size = 2
    harness.contacts.write(**{f"a{number}": "Ada" for number in range(1, 7)})
    choose_outcome = after(4, killed)
    harness.api.choose_outcome = lambda row: (
        RowOutcome.parse_status("error: later") if row["id"] == 2 else choose_outcome(row)
    )
    with pytest.raises(RunLogCrash):
        harness.run()
    harness.api.choose_outcome = lambda row: OK
    harness.run()
    crashed, _last = map(grid, runs(harness))
    counts = {cell.value: crashed.known_total(cell) for cell in GridRow}
    assert {
        "planned": 6, "attempted": 4, "succeeded": 3, "rejected": 0,
        "failed": 1, "in_jobs": 0, "not_sent": 2, "invalid": 0,
    } == counts  # fmt: skip


def test_rejects_of_a_crashed_run_are_reported_without_unknown_counts(harness) -> None:
    """The records say how many rows were rejected, but the number of attempted rows is unknown."""
    rejects = CountGrid(known_rows=RECORDED_ROWS)
    rejects.add_counts(GridRow.REJECTED, {"insert": 1})
    summary = harness.run()
    past = dataclasses.replace(summary, grid=rejects, queue_read_at=summary.ended_at)
    verdict = check_rejects(past, SyncLimits(max_rejects=RowLimit(Decimal(50), is_percentage=True)))
    assert (Severity.WARN, "1 row rejected by the newest run") == (verdict.severity, verdict.description)
    assert (1, None) == (verdict.counts["rejected"], verdict.counts["attempted"])


def test_a_run_that_is_killed_at_its_end_keeps_all_its_counts(harness) -> None:
    """Its files say less than the run knew, and the next run may find nothing to do."""
    harness.contacts.write(a1="Ada", a2="Bo")
    harness.api.choose_outcome = lambda row: OK if row["id"] == 1 else RowOutcome.parse_status("error: later")
    with pytest.raises(RunLogCrash):
        run_sync(harness.sync, dying_at_the_end(harness), RunOptions(trigger="test"))
    assert [RunResult.RUNNING] == [run.result for run in runs(harness)]
    assert harness.run().run_id is None
    (crashed,) = runs(harness)
    assert (RunResult.CRASHED, 1, 1, 2) == (
        crashed.result,
        *(grid(crashed).total(cell) for cell in (GridRow.SUCCEEDED, GridRow.FAILED, GridRow.PLANNED)),
    )


def dying_at_the_end(harness):
    """Return ports whose clock crashes from the moment when the run's counts are written."""

    def clock() -> float:
        if any(harness.tracking.read_metadata(SYNC, run)["counts"] for run in harness.tracking.list_runs(SYNC)):
            raise RunLogCrash
        return harness.now

    return dataclasses.replace(harness.build_ports(), clock=clock)


def test_a_run_that_cannot_write_its_snapshot_fails_and_no_record_is_lost(harness) -> None:
    """A bucket may be unavailable for a while."""
    snapshots = harness.state / "tracking" / "queue_snapshots" / "1"
    harness.contacts.write(a1="Ada")
    harness.api.choose_outcome = after(0, lambda: in_the_way_of(snapshots))
    with pytest.raises(StateError, match="queue_snapshots"):
        harness.run()
    (failed,) = runs(harness)
    assert (RunResult.FAILED, 1) == (failed.result, grid(failed).total(GridRow.SUCCEEDED))
    assert "queue_snapshots" in failed.first_errors[0]
    out_of_the_way_of(snapshots)
    harness.api.choose_outcome = lambda row: OK
    harness.contacts.write(a1="Åsa")
    harness.run()
    assert [RunResult.FAILED, RunResult.SUCCEEDED] == [run.result for run in runs(harness)]
    assert [("1", "insert", "succeeded"), ("1", "update_postimage", "succeeded")] == harness.record_statuses()


def in_the_way_of(folder: Path) -> None:
    folder.rename(folder.with_name("aside"))
    folder.touch()


def out_of_the_way_of(folder: Path) -> None:
    folder.unlink()
    folder.with_name("aside").rename(folder)


def test_a_refused_run_is_in_the_history(harness) -> None:
    """A user who asks why nothing arrives looks there first."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.contacts.table_id = "another"
    with pytest.raises(ResyncNeededError) as caught:
        harness.run()
    refused = runs(harness)[-1]
    assert (RunResult.FAILED, (str(caught.value),)) == (refused.result, refused.first_errors)
    assert refused.ended_at is not None


def test_each_run_says_how_much_it_read_and_why(harness) -> None:
    """An unexpected full run uses up an API's quota."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.contacts.write(a1="Åsa")
    harness.run()
    harness.contacts.add_invalid_row("NULL")
    harness.run()
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions())
    harness.run()
    assert [
        (RunMode.FULL, "the first run sends the whole table"),
        (RunMode.INCREMENTAL, "version 2 is new"),
        (RunMode.INCREMENTAL, "rows were newly invalid"),
        (RunMode.FULL, "a resync was requested"),
    ] == [(run.mode, run.reason) for run in runs(harness)]


def test_folders_of_other_programs_are_no_runs(harness) -> None:
    """A user may keep a copy next to the runs, in the user's own bucket."""
    harness.contacts.write(a1="Ada")
    first = harness.run()
    (harness.state / "tracking" / "sync_tracking_datasets" / "1" / SYNC / "old").mkdir()
    harness.contacts.write(a1="Åsa")
    assert first.run_id < harness.run().run_id
