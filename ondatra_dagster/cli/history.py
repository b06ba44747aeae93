"""`ondatra history`: the newest sync runs."""

import click

from ondatra_dagster.changes import Json
from ondatra_dagster.cli.forecast_told import moved
from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import Shrink, as_cell, put_json, put_table, say, shortened, terminal_width
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.sync.forecast import expected_of
from ondatra_dagster.sync.guard import unit_noun
from ondatra_dagster.sync.summary import Cell, grid_of
from ondatra_dagster.tracking.history import PastRun
from ondatra_dagster.wording import moment, took

COUNTED = (Cell.SUCCEEDED, Cell.REJECTED, Cell.FAILED, Cell.INVALID)
HEAD = (
    *("run", "sync", "started", "took", "by", "mode", "why", "versions"),
    *("delivered", "rejected", "failed", "invalid", "result"),
)
# where a terminal is too narrow, in this order
SHRINKS = (Shrink("result", 12), Shrink("why", 12), Shrink("by", 12))


@click.command("history")
@click.argument("sync", required=False)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many runs, the newest first.",
)
@click.option("as_json", "--json", is_flag=True, help="One JSON object a run on stdout.")
def command(sync: str | None, limit: int, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Show the newest runs of SYNC, or of all syncs."""
    workspace = open_workspace()
    sync_id = None if sync is None else workspace.sync(sync).id
    runs = workspace.history.required().runs(sync_id, limit=limit, with_dry=True)
    if as_json:
        for run in runs:
            put_json(_object(run))
    elif runs:
        put_table(
            HEAD,
            shortened(
                HEAD,
                (_row(run, _noun(workspace, run)) for run in runs),
                width=terminal_width(),
                shrinks=SHRINKS,
            ),
        )
    else:
        say("no sync has run yet")
    return 0


def _noun(workspace: Workspace, run: PastRun) -> str:
    """Return what a unit of the run's sync is called, if the project still has the sync."""
    sync = workspace.syncs.get(run.sync_id)
    return unit_noun(sync) if sync else "row"


def _row(run: PastRun, noun: str) -> tuple[str, ...]:
    # as RunSummary.to_json() wrote it; a run that goes on has no counts yet
    counts = run.counts.get("grid")
    grid = grid_of(counts) if counts else None  # type: ignore[arg-type]
    return (
        *(run.run_id, run.sync_id, moment(run.started_at)),
        took((run.ended_at - run.started_at).total_seconds()) if run.ended_at else "",
        *(run.trigger, run.mode.value, run.reason),
        f"{_number(run.version_from)}→{_number(run.version_to)}",
        *(_number(grid.known(cell)) if grid else "" for cell in COUNTED),
        as_cell(_result(run, noun)),
    )


def _result(run: PastRun, noun: str) -> str:
    """How it ended, and the first thing that went wrong; of a dry run also what it said would happen."""
    expected = expected_of(run)
    told = moved(expected, noun=noun) if expected else next(iter(run.first_errors), "")
    return ": ".join(filter(None, (run.result.value, told)))


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _object(run: PastRun) -> dict[str, Json]:
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
