"""The command `ondatra history`, which lists the newest sync runs."""

import click

from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.cli.current_project import open_workspace
from ondatra_dagster.cli.output import ColumnShrink, format_cell, print_json, print_message, print_shrunk_table
from ondatra_dagster.cli.run_output import format_changes
from ondatra_dagster.count_time_and_size_format import format_elapsed, format_local_time
from ondatra_dagster.row_changes import Json
from ondatra_dagster.sync.run_history_store import PastRun
from ondatra_dagster.sync.run_summary import GridRow, load_expected_changes, load_grid
from ondatra_dagster.sync.send_guards import unit_noun

COUNT_COLUMNS = (GridRow.SUCCEEDED, GridRow.REJECTED, GridRow.FAILED, GridRow.INVALID)
HISTORY_HEAD = (
    *("run", "sync", "started", "took", "by", "mode", "why", "versions"),
    *("delivered", "rejected", "failed", "invalid", "result"),
)
# on a narrow terminal, these columns shrink in this order
HISTORY_SHRINKS = (ColumnShrink("result", 12), ColumnShrink("why", 12), ColumnShrink("by", 12))


@click.command("history")
@click.argument("sync", required=False)
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many runs, the newest first."
)
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per run.")
def command(sync: str | None, limit: int, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Show the newest runs of SYNC, or of all syncs."""
    workspace = open_workspace()
    sync_id = None if sync is None else workspace.sync(sync).id
    runs = workspace.history.as_required().list_runs(sync_id, limit=limit, with_dry=True)
    if as_json:
        for run in runs:
            print_json(_run_object(run))
    elif runs:
        print_shrunk_table(HISTORY_HEAD, (_table_row(run, _unit_noun(workspace, run)) for run in runs), HISTORY_SHRINKS)
    else:
        print_message("no sync has run yet")
    return 0


def _unit_noun(workspace: Workspace, run: PastRun) -> str:
    """Return the noun for a unit of the run's sync, such as "row"; "row" if the project no longer has the sync."""
    sync = workspace.syncs.get(run.sync_id)
    return unit_noun(sync) if sync else "row"


def _table_row(run: PastRun, noun: str) -> tuple[str, ...]:
    grid = load_grid(run) if run.counts.get("grid") else None  # a run in progress has no counts yet
    return (
        *(run.run_id, run.sync_id, format_local_time(run.started_at)),
        format_elapsed((run.ended_at - run.started_at).total_seconds()) if run.ended_at else "",
        *(run.trigger, run.mode.value, run.reason),
        f"{_format_number(run.version_from)}→{_format_number(run.version_to)}",
        *(_format_number(grid.known_total(cell)) if grid else "" for cell in COUNT_COLUMNS),
        format_cell(_format_result(run, noun)),
    )


def _format_result(run: PastRun, noun: str) -> str:
    """Return the run's result, followed by its first error or a dry run's expected changes."""
    expected_changes = load_expected_changes(run)
    result_text = format_changes(expected_changes, noun=noun) if expected_changes else next(iter(run.first_errors), "")
    return ": ".join(filter(None, (run.result.value, result_text)))


def _format_number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _run_object(run: PastRun) -> dict[str, Json]:
    return {
        "run": run.run_id,
        "sync": run.sync_id,
        "model": run.model,
        "dagster_run": run.dagster_run_id,
        "started_at": run.started_at.isoformat(),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "trigger": run.trigger,
        "mode": run.mode.value,
        "reason": run.reason,
        "version_from": run.version_from,
        "version_to": run.version_to,
        "result": run.result.value,
        "errors": list(run.first_errors),
        **run.counts,
    }
