"""The counts of a run as a person reads them: on every screen they add up, and all screens say the same."""

import json
import re
from pathlib import Path

import pytest
from support.kind_desk import SYNC_ID, KindDesk
from support.kind_tables import steps
from support.seeds import new_chance

from ondatra_dagster.browser.pages.run import count_rows
from ondatra_dagster.cli.run_progress import JsonProgress, TextProgress
from ondatra_dagster.orchestration.progress import SyncResult
from ondatra_dagster.orchestration.records_page import RecordsPlaces
from ondatra_dagster.orchestration.shown import sync_metadata
from ondatra_dagster.planning.plan import Plan
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.sync.summary import PARTS_OF_PLANNED, Cell, RunSummary, grid_of
from ondatra_dagster.sync.verdicts import judge
from ondatra_dagster.tracking.history import History, PastRun

ANSWERS = ("ok", "ok", "warn: odd", "error: later", "reject: no")
SINKS = [
    ("append", 100),
    ("merge", 100),
    ("tracked", 100),
    ("scd2", 100),
    ("table", 2),
    ("partition", 2),
    ("table", 0),
    ("partition", 0),
]
Counts = dict[str, int]


def of_text(text: str) -> Counts:
    """From `delivered 2 inserts, 1 update; 1 rejected; 1 failed; 1 not sent`."""
    line = next(line for line in text.splitlines() if SYNC_ID in line)
    delivered = re.search(r"delivered ([^;]*)", line)
    counts = {cell.value: 0 for cell in PARTS_OF_PLANNED}
    counts["succeeded"] = sum(map(int, re.findall(r"(\d+) ", delivered[1]))) if delivered else 0
    for number, cell in re.findall(r"(\d+) (rejected|failed|in jobs|not sent)", line):
        counts[cell.replace(" ", "_")] = int(number)
    return counts


def of_grid(grid: dict[str, Counts]) -> Counts:
    return {cell: sum(operations.values()) for cell, operations in grid.items()}


def of_dagster(result: SyncResult) -> tuple[Counts, Counts]:
    """From the table, and from the numbers that Dagster draws."""
    metadata = sync_metadata(result, RecordsPlaces(None, "http://127.0.0.1"))
    table = {record.data["units"]: record.data for record in metadata["counts"].records}
    operations = ("insert", "update", "delete")
    return (
        {cell: sum(row[operation] for operation in operations) for cell, row in table.items()},
        {cell.value: metadata[cell.value].value for cell in Cell},
    )


def of_page(run: PastRun, desk: KindDesk) -> Counts:
    """From the last column of the run's page."""
    grid = grid_of(run.counts["grid"])  # type: ignore[arg-type]
    return {
        cell.value: int(re.sub(r"<[^>]*>", "", str([*count_rows(run, cell, grid, sync=desk.sync)][-1])))
        for cell in Cell
    }


def assert_screens_agree(desk: KindDesk, summary: RunSummary, capsys: pytest.CaptureFixture[str]) -> None:
    result = SyncResult(sync=desk.sync, summary=summary, verdicts=judge(summary, desk.sync.limits))
    run = History(desk.state / "history.sqlite").runs(SYNC_ID, limit=1)[0]
    counts = {cell.value: summary.grid.count(cell) for cell in Cell}
    assert counts["planned"] == sum(counts[cell] for cell in PARTS_OF_PLANNED)

    capsys.readouterr()
    TextProgress(Plan(models=(), syncs=())).sync_ended(result)
    if counts["attempted"]:
        assert {cell: counts[cell] for cell in PARTS_OF_PLANNED} == of_text(capsys.readouterr().err)
    JsonProgress(Plan(models=(), syncs=())).sync_ended(result)
    assert counts == of_grid(json.loads(capsys.readouterr().out)["counts"])
    assert (counts, counts) == of_dagster(result)
    assert counts == of_grid(run.counts["grid"])  # type: ignore[arg-type]
    assert counts == of_page(run, desk)
    metadata = desk.tracking.metadata(SYNC_ID, run.run_id)
    assert metadata
    assert counts == of_grid(metadata["counts"])  # type: ignore[arg-type]
    checks = {verdict.check: verdict.counts for verdict in result.verdicts}
    assert (counts["rejected"], counts["attempted"], counts["failed"]) == (
        checks["rejects"]["rejected"],
        checks["rejects"]["attempted"],
        checks["undelivered"]["failed"],
    )
    assert counts["rejected"] >= sum(reason.units for reason in summary.rejects)
    assert counts["failed"] >= sum(reason.units for reason in summary.failures)


@pytest.mark.parametrize(("kind", "batch_size"), SINKS)
def test_every_screen_tells_the_same_counts(
    tmp_path: Path, kind: str, batch_size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """One screen in rows and another in keys is what makes a person trust none of them."""
    chance = new_chance("screens", kind, batch_size)
    desk = KindDesk(tmp_path, kind, batch_size=batch_size)
    desk.api.answer = lambda row: chance.choice(ANSWERS)
    runs = 0
    for key, values in steps(KINDS[kind], chance, keys="abc", count=10):
        desk.write(**{key: values})
        desk.held = "it is paused" if chance.random() < 0.2 else None
        desk.now += 100_000
        summary = desk.run()
        if summary.run_id:
            runs += 1
            assert_screens_agree(desk, summary, capsys)
    totals = History(desk.state / "history.sqlite").totals()[SYNC_ID]
    past = History(desk.state / "history.sqlite").runs(SYNC_ID, limit=100)
    grids = [of_grid(run.counts["grid"]) for run in past]  # type: ignore[arg-type]
    assert runs == len(past) > 0
    assert {cell: sum(grid[cell] for grid in grids) for cell in totals.rows} == totals.rows
