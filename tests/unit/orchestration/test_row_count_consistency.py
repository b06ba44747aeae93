"""The counts of a run: they add up on every screen, and all screens show the same counts."""

import json
import re
from pathlib import Path

import pytest
from support.random_histories.random_seeds import new_random
from support.syncs.kind_feed_table import random_kind_steps
from support.syncs.kind_sync_harness import SYNC_ID, KindSyncHarness

from ondatra_dagster.app.run_events import SyncResult
from ondatra_dagster.app.ui_urls import RecordLocations
from ondatra_dagster.cli.run_output import JsonProgress, TextProgress
from ondatra_dagster.orchestration.dagster_metadata import sync_metadata
from ondatra_dagster.planning.plan import Plan
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.sync.run_history_store import PastRun, RunHistory
from ondatra_dagster.sync.run_summary import PLANNED_ROWS, GridRow, RunSummary, load_grid
from ondatra_dagster.sync.sync_checks import run_sync_checks
from ondatra_dagster.ui.pages.run_page import count_cells

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
    """Return the counts in `delivered 2 inserts, 1 update; 1 rejected; 1 failed; 1 not sent`."""
    line = next(line for line in text.splitlines() if SYNC_ID in line)
    delivered = re.search(r"delivered ([^;]*)", line)
    counts = {cell.value: 0 for cell in PLANNED_ROWS}
    counts["succeeded"] = sum(map(int, re.findall(r"(\d+) ", delivered[1]))) if delivered else 0
    for number, cell in re.findall(r"(\d+) (rejected|failed|in jobs|not sent)", line):
        counts[cell.replace(" ", "_")] = int(number)
    return counts


def of_grid(grid: dict[str, Counts]) -> Counts:
    return {cell: sum(operations.values()) for cell, operations in grid.items()}


def of_dagster(result: SyncResult) -> tuple[Counts, Counts]:
    """Return the counts in the table, and the numbers that Dagster draws."""
    metadata = sync_metadata(result, RecordLocations(None, "http://127.0.0.1"))
    table = {record.data["units"]: record.data for record in metadata["counts"].records}
    operations = ("insert", "update", "delete")
    return (
        {cell: sum(row[operation] for operation in operations) for cell, row in table.items()},
        {cell.value: metadata[cell.value].value for cell in GridRow},
    )


def of_page(run: PastRun, desk: KindSyncHarness) -> Counts:
    """Return the counts in the last column of the run's page."""
    grid = load_grid(run)
    return {
        cell.value: int(re.sub(r"<[^>]*>", "", str([*count_cells(run, cell, grid, sync=desk.sync)][-1])))
        for cell in GridRow
    }


def assert_screens_agree(desk: KindSyncHarness, summary: RunSummary, capsys: pytest.CaptureFixture[str]) -> None:
    result = SyncResult(sync=desk.sync, summary=summary, verdicts=run_sync_checks(summary, desk.sync.limits))
    run = RunHistory(desk.state / "history.sqlite").list_runs(SYNC_ID, limit=1)[0]
    counts = {cell.value: summary.grid.total(cell) for cell in GridRow}
    assert counts["planned"] == sum(counts[cell] for cell in PLANNED_ROWS)

    capsys.readouterr()
    TextProgress(Plan(models=(), syncs=())).on_sync_end(result)
    if counts["attempted"]:
        assert {cell: counts[cell] for cell in PLANNED_ROWS} == of_text(capsys.readouterr().err)
    JsonProgress(Plan(models=(), syncs=())).on_sync_end(result)
    assert counts == of_grid(json.loads(capsys.readouterr().out)["counts"])
    assert (counts, counts) == of_dagster(result)
    assert counts == of_grid(run.counts["grid"])  # type: ignore[arg-type]
    assert counts == of_page(run, desk)
    metadata = desk.tracking.read_metadata(SYNC_ID, run.run_id)
    assert metadata
    assert counts == of_grid(metadata["counts"])  # type: ignore[arg-type]
    checks = {verdict.name: verdict.counts for verdict in result.verdicts}
    assert (counts["rejected"], counts["attempted"], counts["failed"]) == (
        checks["rejects"]["rejected"],
        checks["rejects"]["attempted"],
        checks["undelivered"]["failed"],
    )
    assert counts["rejected"] >= sum(reason.unit_count for reason in summary.reject_reasons)
    assert counts["failed"] >= sum(reason.unit_count for reason in summary.failure_reasons)


@pytest.mark.parametrize(("kind", "batch_size"), SINKS)
def test_every_screen_shows_the_same_counts(
    tmp_path: Path, kind: str, batch_size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """If one screen counts rows and another counts keys, the user trusts neither."""
    chance = new_random("screens", kind, batch_size)
    desk = KindSyncHarness(tmp_path, kind, batch_size=batch_size)
    desk.api.choose_status = lambda row: chance.choice(ANSWERS)
    runs = 0
    for key, values in random_kind_steps(KINDS[kind], chance, keys="abc", count=10):
        desk.write(**{key: values})
        desk.hold_reason = "it is paused" if chance.random() < 0.2 else None
        desk.now += 100_000
        summary = desk.run()
        if summary.run_id:
            runs += 1
            assert_screens_agree(desk, summary, capsys)
    totals = RunHistory(desk.state / "history.sqlite").read_totals()[SYNC_ID]
    past = RunHistory(desk.state / "history.sqlite").list_runs(SYNC_ID, limit=100)
    grids = [of_grid(run.counts["grid"]) for run in past]  # type: ignore[arg-type]
    assert runs == len(past) > 0
    assert {cell: sum(grid[cell] for grid in grids) for cell in totals.row_counts} == totals.row_counts
