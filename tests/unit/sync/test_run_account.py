"""What history and metadata.json tell of runs that didn't end as runs should."""

import dataclasses
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

import pytest

from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.errors import ResyncNeededError, StateError
from ondatra_dagster.project.model import Limit
from ondatra_dagster.sync.resync import Way, resync
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.summary import RECORDED, Cell, Grid, grid_of
from ondatra_dagster.sync.verdicts import Limits, Severity, judge_rejects
from ondatra_dagster.tracking.history import Mode, PastRun, Result

OK = Outcome.parse("ok")
SYNC = "sync.contacts"


class Killed(BaseException):
    """Nothing of ours catches it."""


def after(answers: int, then: Callable[[], None]) -> Callable[[Mapping[str, object]], Outcome]:
    """An API that takes so many rows before something happens."""
    taken: list[object] = []

    def answer(row: Mapping[str, object]) -> Outcome:
        taken.append(row)
        if len(taken) > answers:
            then()
        return OK

    return answer


def killed() -> None:
    raise Killed


def grid(run: PastRun) -> Grid:
    return grid_of(run.counts["grid"])  # type: ignore[arg-type]  # as to_json() wrote it


def runs(desk) -> list[PastRun]:
    """The oldest first."""
    return list(reversed(desk.history.runs(SYNC)))


def test_a_crashed_run_is_told_with_what_it_delivered(desk) -> None:
    """Its rows are at the API: a line of noughts would say that they aren't."""
    desk.batch_size = 2
    desk.contacts.write(**{f"a{number}": "Ada" for number in range(1, 11)})
    desk.api.answer = after(6, killed)
    with pytest.raises(Killed):
        desk.run()
    desk.api.answer = lambda row: OK
    desk.run()
    crashed, last = runs(desk)
    assert (Result.CRASHED, Result.SUCCEEDED) == (crashed.result, last.result)
    assert (6, 4) == tuple(grid(run).count(Cell.SUCCEEDED) for run in (crashed, last))
    assert crashed.counts["grid"] == desk.tracking.metadata(SYNC, crashed.run_id)["counts"]


def test_a_crashed_run_has_its_counts_up_to_the_crash(desk) -> None:
    """Calls had failed, and two rows weren't sent: zeros would say that all went well as far as it went."""
    desk.batch_size = 2
    desk.contacts.write(**{f"a{number}": "Ada" for number in range(1, 7)})
    taken = after(4, killed)
    desk.api.answer = lambda row: Outcome.parse("error: later") if row["id"] == 2 else taken(row)
    with pytest.raises(Killed):
        desk.run()
    desk.api.answer = lambda row: OK
    desk.run()
    crashed, _last = map(grid, runs(desk))
    counts = {cell.value: crashed.known(cell) for cell in Cell}
    assert {
        "planned": 6, "attempted": 4, "succeeded": 3, "rejected": 0,
        "failed": 1, "in_jobs": 0, "not_sent": 2, "invalid": 0,
    } == counts  # fmt: skip


def test_rejects_of_a_crashed_run_are_told_without_what_nobody_counted(desk) -> None:
    """Its records say how many were refused, and of how many nobody knows."""
    rejects = Grid(counted=RECORDED)
    rejects.add(Cell.REJECTED, {"insert": 1})
    summary = desk.run()
    past = dataclasses.replace(summary, grid=rejects, seen_at=summary.ended_at)
    verdict = judge_rejects(past, Limits(max_rejects=Limit(Decimal(50), is_share=True)))
    assert (Severity.WARN, "1 row rejected by the newest run") == (verdict.severity, verdict.description)
    assert (1, None) == (verdict.counts["rejected"], verdict.counts["attempted"])


def test_a_run_that_is_cut_off_at_its_end_keeps_all_that_it_knew(desk) -> None:
    """Its files tell less than it did, and the next run may find nothing to do."""
    desk.contacts.write(a1="Ada", a2="Bo")
    desk.api.answer = lambda row: OK if row["id"] == 1 else Outcome.parse("error: later")
    with pytest.raises(Killed):
        run_sync(desk.sync, dying_at_the_end(desk), Occasion(trigger="test"))
    assert [Result.RUNNING] == [run.result for run in runs(desk)]
    assert desk.run().run_id is None
    (crashed,) = runs(desk)
    assert (Result.CRASHED, 1, 1, 2) == (
        crashed.result,
        *(grid(crashed).count(cell) for cell in (Cell.SUCCEEDED, Cell.FAILED, Cell.PLANNED)),
    )


def dying_at_the_end(desk):
    """Ports whose clock stops for good when the run's counts are written."""

    def clock() -> float:
        if any(desk.tracking.metadata(SYNC, run)["counts"] for run in desk.tracking.runs(SYNC)):
            raise Killed
        return desk.now

    return dataclasses.replace(desk.ports(), clock=clock)


def test_a_run_whose_records_have_no_place_says_so_and_the_next_one_writes_them(desk) -> None:
    """A bucket that is away for a while."""
    frontiers = desk.state / "tracking" / "frontiers" / "1"
    desk.contacts.write(a1="Ada")
    desk.api.answer = after(0, lambda: in_the_way_of(frontiers))
    with pytest.raises(StateError, match="frontiers"):
        desk.run()
    (failed,) = runs(desk)
    assert (Result.FAILED, 1) == (failed.result, grid(failed).count(Cell.SUCCEEDED))
    assert "frontiers" in failed.first_errors[0]
    out_of_the_way_of(frontiers)
    desk.api.answer = lambda row: OK
    desk.contacts.write(a1="Åsa")
    desk.run()
    assert [Result.FAILED, Result.SUCCEEDED] == [run.result for run in runs(desk)]
    assert [("1", "insert", "succeeded"), ("1", "update_postimage", "succeeded")] == desk.statuses()


def in_the_way_of(folder: Path) -> None:
    folder.rename(folder.with_name("aside"))
    folder.touch()


def out_of_the_way_of(folder: Path) -> None:
    folder.unlink()
    folder.with_name("aside").rename(folder)


def test_a_refused_run_is_in_the_history(desk) -> None:
    """Whoever asks why nothing arrives looks there first."""
    desk.contacts.write(a1="Ada")
    desk.run()
    desk.contacts.table_id = "another"
    with pytest.raises(ResyncNeededError) as caught:
        desk.run()
    refused = runs(desk)[-1]
    assert (Result.FAILED, (str(caught.value),)) == (refused.result, refused.first_errors)
    assert refused.ended_at is not None


def test_each_run_says_how_much_it_looked_at_and_why(desk) -> None:
    """A full run that nobody expected is what costs an API's quota."""
    desk.contacts.write(a1="Ada")
    desk.run()
    desk.contacts.write(a1="Åsa")
    desk.run()
    desk.contacts.set_one_aside("NULL")
    desk.run()
    resync(desk.sync, desk.ports(), Way())
    desk.run()
    assert [
        (Mode.FULL, "the first run sends the whole table"),
        (Mode.INCREMENTAL, "version 2 is new"),
        (Mode.INCREMENTAL, "rows were newly set aside"),
        (Mode.FULL, "a resync was asked for"),
    ] == [(run.mode, run.reason) for run in runs(desk)]


def test_folders_of_other_people_are_no_runs(desk) -> None:
    """In a bucket of one's own somebody may keep a copy beside."""
    desk.contacts.write(a1="Ada")
    first = desk.run()
    (desk.state / "tracking" / "sync_tracking_datasets" / "1" / SYNC / "old").mkdir()
    desk.contacts.write(a1="Åsa")
    assert first.run_id < desk.run().run_id
