"""`ondatra status`: every model and sync on one screen. It looks at files only."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import click

from ondatra_dagster.changes import Json
from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import harmless, indented, put_json, put_table, say
from ondatra_dagster.operations.alert_book import Standing
from ondatra_dagster.orchestration.alerting import Alerts
from ondatra_dagster.orchestration.measures import disk_totals, project_metrics
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.delta_log import table_path
from ondatra_dagster.planning.disk_use import disk_use
from ondatra_dagster.planning.plan import ModelStep, SyncStep
from ondatra_dagster.project.model import Model
from ondatra_dagster.sync.hold import hold
from ondatra_dagster.tracking.history import PastRun
from ondatra_dagster.wording import count, duration, moment, size_of

# heading → which part of a line stands below it
MODELS = {
    "model": "model",
    "kind": "kind",
    "version": "version",
    "rows": "rows",
    "last run": "last_run_at",
    "disk": "disk",
    "next run": "plan",
}
SYNCS = {
    "sync": "sync",
    "model": "model",
    "waiting": "waiting",
    "oldest": "oldest",
    "next retry": "next_retry",
    "jobs": "open_jobs",
    "dead": "dead",
    "last run": "last_run_at",
    "result": "result",
    "next run": "plan",
}


@click.command("status")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a model or sync on stdout.")
@click.option(
    "as_metrics", "--metrics", is_flag=True, help="What Prometheus reads, for its textfile collector."
)
def command(as_json: bool, as_metrics: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Show models and syncs, and what a run would do; 1 when a queue or the history can't be read."""
    workspace = open_workspace()
    if as_metrics:
        click.echo(project_metrics(workspace), nl=False)
        return 0
    lines = list(_lines(workspace))
    code = 1 if any(line.get("error") for line in lines) else 0
    if problem := workspace.history.problem:
        say(f"warning: {problem}")
        code = 1
    if as_json:
        for line in lines:
            put_json(line)
        return code
    _show(workspace, lines)
    for name, waiting in workspace.homeless_events().items():
        say(f"{count(waiting, 'event')} wait for {name}, which is no model any more; bring it back")
    return code


def _lines(workspace: Workspace) -> Iterable[dict[str, Json]]:
    """Models first, then syncs."""
    plan, alerting = workspace.plan(), Alerts(workspace).standing()
    unchanged, newest = workspace.noop_cache.read(), workspace.history.newest()
    for model in plan.models:
        seen = unchanged.get(model.model.id)
        line = _model(workspace, model, seen.at if seen else None)
        yield {**line, "alerts": _rules_of(alerting, "model", model.model.name)}
    for sync in plan.syncs:
        line = _sync(workspace, sync, newest.get(sync.sync_id))
        yield {**line, "alerts": _rules_of(alerting, "sync", sync.sync_id)}


def _show(workspace: Workspace, lines: list[dict[str, Json]]) -> None:
    models = [line for line in lines if "sync" not in line]
    syncs = [line for line in lines if "sync" in line]
    put_table(list(MODELS), ([_cell(line, name) for name in MODELS.values()] for line in models))
    if syncs:
        click.echo()
        put_table(list(SYNCS), ([_cell(line, name) for name in SYNCS.values()] for line in syncs))
    totals = disk_totals(workspace)
    if totals:
        click.echo("\non disk: " + ", ".join(f"{name} {size_of(size)}" for name, size in totals.items()))
    for each in Alerts(workspace).standing():
        since = moment(datetime.fromisoformat(each.since))
        click.echo(f"alerting since {since}: {each.subject}: {indented(harmless(each.sentence))}")


def _model(workspace: Workspace, step: ModelStep, seen_at: float | None) -> dict[str, Json]:
    table = step.table
    ran = [table.changed_at] if table and table.changed_at else []
    if table and seen_at:
        ran.append(datetime.fromtimestamp(seen_at, UTC))
    return {
        **_events(workspace, step.model),
        "model": step.model.name,
        "kind": step.model.kind.name,
        "version": table.version if table else None,
        "rows": table.note.rows if table and table.note else None,
        "last_run_at": moment(max(ran)) if ran else None,
        "disk_bytes": disk_use(table_path(workspace.settings, step.model.id)),
        "will_run": step.will_run,
        "plan": step.reason,
    }


def _events(workspace: Workspace, model: Model) -> dict[str, Json]:
    """What waits of a model of kind events; nothing to be said of others."""
    if model.kind.has_query:
        return {}
    waiting = workspace.events_waiting(model.id)
    age = max(round(workspace.clock() - waiting.oldest_at), 0) if waiting.oldest_at else None
    return {"events_waiting": waiting.events, "oldest_event_seconds": age}


def _sync(workspace: Workspace, step: SyncStep, last: PastRun | None) -> dict[str, Json]:
    seen, now = workspace.queue_seen(step.sync_id), workspace.clock()
    queue = None if seen.lost else seen.state
    sync, nothing = workspace.syncs[step.sync_id], None if seen.why_unknown else 0
    return {
        "sync": step.sync_id,
        "model": step.model.name,
        "waiting": queue.depth if queue else nothing,
        "oldest_seconds": round(now - queue.oldest_since) if queue and queue.oldest_since else None,
        "next_retry_seconds": round(queue.next_due_at - now) if queue and queue.next_due_at else None,
        "open_jobs": queue.open_jobs if queue else nothing,
        "dead": queue.dead if queue else nothing,
        "paused": sync.pause.exists(),
        "held": hold(sync, workspace.settings),
        "last_run": last.run_id if last else None,
        "last_run_at": moment(last.started_at) if last else None,
        "result": last.result.value if last else None,
        "will_run": step.will_run,
        "plan": seen.why_unknown or step.reason,
        "lost": seen.lost is not None,
        "error": seen.unread,
    }


def _rules_of(alerting: Iterable[Standing], subject_type: str, name: str) -> list[Json]:
    return [each.rule for each in alerting if (each.type, each.subject) == (subject_type, name)]


def _cell(line: Mapping[str, Json], name: str) -> object:
    """A part of a line as people read it."""
    if name in ("oldest", "next_retry"):
        return _time(line[f"{name}_seconds"], over="due" if name == "next_retry" else duration(0))
    if name == "disk":
        size = line["disk_bytes"]
        return size_of(size) if isinstance(size, int) and size else ""
    return line.get(name)


def _time(seconds: Json, *, over: str) -> str:
    """How long, and what is said when that is no time at all."""
    if not isinstance(seconds, int | float):
        return ""
    return duration(seconds) if seconds > 0 else over
