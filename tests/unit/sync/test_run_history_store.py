"""The history of runs, on a real SQLite file."""

import collections
import dataclasses
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from ondatra_dagster.errors import StateError
from ondatra_dagster.sync.run_history_store import PastRun, RunHistory, RunMode, RunResult

STARTED = datetime(2026, 11, 18, 12, 1, 2, tzinfo=UTC)


def a_run(number: int = 1, **fields: object) -> PastRun:
    return PastRun(
        **{
            "sync_id": "sync.hubspot",
            "run_id": f"run-{number}",
            "model": "sync.hubspot",
            "dagster_run_id": None,
            "started_at": STARTED + timedelta(minutes=number),
            "trigger": "command",
            "mode": RunMode.INCREMENTAL,
            "reason": "version 4 is newer than 3",
            "version_from": 3,
        }
        | fields
    )


def ended(run: PastRun, result: RunResult = RunResult.SUCCEEDED, **fields: object) -> PastRun:
    return dataclasses.replace(run, ended_at=run.started_at + timedelta(seconds=9), result=result, **fields)


@pytest.fixture
def history(tmp_path: Path) -> RunHistory:
    return RunHistory(tmp_path / ".ondatra" / "history.sqlite")


def test_a_project_that_never_ran_has_no_history_and_no_file(history: RunHistory, tmp_path: Path) -> None:
    """Reading writes nothing."""
    assert () == history.list_runs()
    assert [] == list(tmp_path.iterdir())


def test_a_file_that_another_process_has_just_created_is_an_empty_history(tmp_path: Path) -> None:
    """`ondatra history` must not fail during the very first run."""
    (tmp_path / "history.sqlite").touch()

    assert () == RunHistory(tmp_path / "history.sqlite").list_runs()


def test_a_run_is_running_until_it_is_finished(history: RunHistory) -> None:
    run = a_run()
    history.begin_run(run)
    assert (run,) == history.list_runs("sync.hubspot")

    finished = ended(
        run,
        RunResult.FAILED,
        version_to=4,
        counts={"rejected": {"insert": 2}},
        first_errors=("422 no such plan", "é"),
        dagster_run_id="d-1",
    )
    history.finish_run(finished)
    assert (finished,) == history.list_runs("sync.hubspot")


def test_the_newest_runs_come_first_up_to_the_limit(history: RunHistory) -> None:
    for number in (2, 1, 3):
        history.finish_run(ended(a_run(number)))
    history.finish_run(ended(a_run(4, sync_id="sync.erp")))

    assert ["run-4", "run-3"] == [run.run_id for run in history.list_runs(limit=2)]
    assert ["run-3", "run-2", "run-1"] == [run.run_id for run in history.list_runs("sync.hubspot")]
    assert () == history.list_runs("sync.nobody")


def test_a_run_that_lost_its_process_is_called_crashed_by_the_next_run(history: RunHistory) -> None:
    """A killed process says nothing. Only the next run can know it, because it holds the lock."""
    elsewhere = a_run(1, sync_id="sync.erp")
    history.begin_run(a_run(1))
    history.begin_run(elsewhere)
    history.begin_run(a_run(2))

    assert (a_run(2), dataclasses.replace(a_run(1), result=RunResult.CRASHED)) == history.list_runs("sync.hubspot")
    assert (elsewhere,) == history.list_runs("sync.erp")


def test_a_run_whose_process_is_gone_has_crashed(tmp_path: Path) -> None:
    """This holds even before the next run begins, which may be tomorrow."""
    at_work = {"sync.erp"}
    history = RunHistory(tmp_path / "history.sqlite", is_at_work=at_work.__contains__)
    crashed = dataclasses.replace(a_run(1), result=RunResult.CRASHED)
    history.begin_run(a_run(1))
    history.begin_run(a_run(2, sync_id="sync.erp"))
    assert (a_run(2, sync_id="sync.erp"), crashed) == history.list_runs()
    assert crashed == history.find_run("sync.hubspot", a_run(1).run_id) == history.read_newest_runs()["sync.hubspot"]
    assert {"sync.hubspot": 1, "sync.erp": 0} == {
        sync_id: totals.failed_runs for sync_id, totals in history.read_totals().items()
    }


def test_an_interrupted_run_is_neither_failed_nor_crashed(tmp_path: Path) -> None:
    """It ended because it was asked to end. Failed runs are counted separately."""
    history = RunHistory(tmp_path / "history.sqlite")
    history.finish_run(dataclasses.replace(a_run(1), result=RunResult.FAILED))
    history.finish_run(dataclasses.replace(a_run(2), result=RunResult.INTERRUPTED))
    totals = history.read_totals()["sync.hubspot"]
    assert (2, 1, 1) == (totals.runs, totals.failed_runs, totals.interrupted_runs)
    assert {} == history.count_crashed_runs()


def test_a_run_that_ends_while_the_history_is_read_has_not_crashed(tmp_path: Path) -> None:
    """A run stores its result before it releases the lock of its sync."""
    run = a_run(1)

    def ends(_: str) -> bool:
        RunHistory(tmp_path / "history.sqlite").finish_run(ended(run))
        return False

    history = RunHistory(tmp_path / "history.sqlite", is_at_work=ends)
    history.begin_run(run)
    assert (ended(run),) == history.list_runs()


def test_a_dry_run_does_not_change_a_run_in_progress(history: RunHistory) -> None:
    """It doesn't lock the queue, and may happen during a real run."""
    history.begin_run(a_run(1))
    dry = ended(a_run(2), RunResult.DRY)
    history.finish_run(dry)

    assert (dry, a_run(1)) == history.list_runs("sync.hubspot", with_dry=True)
    assert (a_run(1),) == history.list_runs("sync.hubspot")


def test_times_of_other_time_zones_are_ordered_by_moment(history: RunHistory) -> None:
    """The order of texts is the order of times only within one zone."""
    plus_nine = timezone(timedelta(hours=9))
    history.finish_run(ended(a_run(1, started_at=datetime(2026, 11, 18, 20, 0, tzinfo=plus_nine))))  # 11:00 UTC
    history.finish_run(ended(a_run(2, started_at=STARTED)))

    assert ["run-2", "run-1"] == [run.run_id for run in history.list_runs()]


def test_the_file_is_private(history: RunHistory, tmp_path: Path) -> None:
    """First errors may quote what an API said about a person."""
    history.begin_run(a_run())

    assert 0o600 == (tmp_path / ".ondatra" / "history.sqlite").stat().st_mode & 0o777


WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from ondatra_dagster.sync.run_history_store import RunHistory, RunMode, PastRun, RunResult
import dataclasses
history = RunHistory(Path(sys.argv[1]))
for number in range(15):
    run = PastRun(
        sync_id=f"sync.{sys.argv[2]}", run_id=f"{number:03}", model="m", dagster_run_id=None, trigger="cli",
        started_at=datetime.now(UTC), mode=RunMode.FULL, reason="first run", version_from=None,
    )
    history.begin_run(run)
    history.finish_run(dataclasses.replace(run, result=RunResult.SUCCEEDED, ended_at=datetime.now(UTC)))
    history.list_runs()
"""


def test_several_processes_write_at_the_same_time(history: RunHistory, tmp_path: Path) -> None:
    """Sensors, schedules and users start runs of different syncs at the same moment, even the very first run."""
    path = tmp_path / ".ondatra" / "history.sqlite"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(name)]) for name in range(3)]

    assert [0, 0, 0] == [writer.wait(timeout=60) for writer in writers]
    assert {RunResult.SUCCEEDED: 45} == collections.Counter(run.result for run in history.list_runs(limit=100))


def test_older_runs_are_on_further_pages(history: RunHistory) -> None:
    for number in range(5):
        history.finish_run(ended(a_run(number), RunResult.DRY if number == 3 else RunResult.SUCCEEDED))
    assert ["run-4", "run-2"] == [run.run_id for run in history.list_runs("sync.hubspot", limit=2)]
    assert ["run-1", "run-0"] == [run.run_id for run in history.list_runs("sync.hubspot", limit=2, offset=2)]
    assert () == history.list_runs("sync.hubspot", limit=2, offset=9)


def test_a_run_is_found_by_its_id(history: RunHistory) -> None:
    """Dry runs are found too, but no runs of another sync."""
    assert history.find_run("sync.hubspot", "run-1") is None
    history.finish_run(ended(a_run(1), RunResult.DRY))
    history.finish_run(ended(a_run(2)))
    assert ended(a_run(1), RunResult.DRY) == history.find_run("sync.hubspot", "run-1")
    assert history.find_run("sync.other", "run-1") is None
    assert history.find_run("sync.hubspot", "run-") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"\xff" * len(content),
        lambda content: content.replace(b"succeeded", b"succeedex"),
        lambda content: content.replace(b'{"delivered":3}', b'{"delivered":3]'),
    ],
)
def test_a_damaged_history_is_a_warning_or_an_error_if_it_is_required(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Deliveries continue, because they don't depend on the history."""
    path = tmp_path / "history.sqlite"
    RunHistory(path).finish_run(ended(a_run(), counts={"delivered": 3}))
    with sqlite3.connect(path) as connection:
        connection.execute("pragma journal_mode = delete")
    content = path.read_bytes()
    damaged = damage(content)
    assert content != damaged
    path.write_bytes(damaged)
    history = RunHistory(path)

    assert ((), {}) == (history.list_runs(), history.read_newest_runs())
    history.close_crashed_run("sync.hubspot", "another", {})
    (warning,) = caplog.messages
    assert "history.sqlite is damaged" in warning
    with pytest.raises(StateError, match=r"history\.sqlite is damaged .*; move it away"):
        history.as_required().list_runs()
