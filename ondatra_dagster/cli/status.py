"""`ondatra status`: every model and sync on one screen. It looks at files only."""

import time
from collections.abc import Mapping

import click

from ondatra_dagster.changes import Json
from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import put_json, put_table, say
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.plan import ModelStep, SyncStep
from ondatra_dagster.project.model import Model
from ondatra_dagster.wording import count, duration, moment

MODELS = ("model", "kind", "version", "rows", "next run")
SYNCS = ("sync", "model", "waiting", "oldest", "next retry", "jobs", "dead", "last run", "result", "next run")


@click.command("status")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a model or sync on stdout.")
def command(as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Show how models and syncs stand, and what a run would do."""
    workspace = open_workspace()
    plan = workspace.plan()
    models = [_model(workspace, step) for step in plan.models]
    syncs = [_sync(workspace, step) for step in plan.syncs]
    if as_json:
        for line in (*models, *syncs):
            put_json(line)
        return 0
    put_table(
        MODELS, [[line[name] for name in ("model", "kind", "version", "rows", "plan")] for line in models]
    )
    if syncs:
        click.echo()
        put_table(SYNCS, map(_shown, syncs))
    for name, waiting in workspace.homeless_events().items():
        say(f"{count(waiting, 'event')} wait for {name}, which is no model any more; bring it back")
    return 0


def _model(workspace: Workspace, step: ModelStep) -> dict[str, Json]:
    table = step.table
    return {
        **_events(workspace, step.model),
        "model": step.model.name,
        "kind": step.model.kind.name,
        "version": table.version if table else None,
        "rows": table.note.rows if table and table.note else None,
        "will_run": step.will_run,
        "plan": step.reason,
    }


def _events(workspace: Workspace, model: Model) -> dict[str, Json]:
    """What waits of a model of kind events; nothing to be said of others."""
    if model.kind.has_query:
        return {}
    waiting = workspace.events_waiting(model.id)
    age = round(time.time() - waiting.oldest_at) if waiting.oldest_at else None
    return {"events_waiting": waiting.events, "oldest_event_seconds": age}


def _sync(workspace: Workspace, step: SyncStep) -> dict[str, Json]:
    queue = workspace.queue(step.sync_id)
    last = next(iter(workspace.history.runs(step.sync_id, limit=1)), None)
    now = time.time()
    return {
        "sync": step.sync_id,
        "model": step.model.name,
        "waiting": queue.depth if queue else 0,
        "oldest_seconds": round(now - queue.oldest_since) if queue and queue.oldest_since else None,
        "next_retry_seconds": round(queue.next_due_at - now) if queue and queue.next_due_at else None,
        "open_jobs": queue.open_jobs if queue else 0,
        "dead": queue.dead if queue else 0,
        "paused": workspace.syncs[step.sync_id].pause.exists(),
        "last_run": last.run_id if last else None,
        "last_run_at": moment(last.started_at) if last else None,
        "result": last.result.value if last else None,
        "will_run": step.will_run,
        "plan": step.reason,
    }


def _shown(line: Mapping[str, Json]) -> list[object]:
    ages = {name: _age(line[f"{name}_seconds"]) for name in ("oldest", "next_retry")}
    names = (
        "sync",
        "model",
        "waiting",
        "oldest",
        "next_retry",
        "open_jobs",
        "dead",
        "last_run_at",
        "result",
        "plan",
    )
    return [ages.get(name, line.get(name)) for name in names]


def _age(seconds: Json) -> str:
    if not isinstance(seconds, int | float):
        return ""
    return duration(seconds) if seconds > 0 else "due"
