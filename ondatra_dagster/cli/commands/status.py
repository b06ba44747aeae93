"""The command `ondatra status`, which shows every model and sync on one screen. It only reads files."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import click

from ondatra_dagster.app.alert_service import AlertService
from ondatra_dagster.app.project_metrics import disk_usage, project_metrics_text, read_disk_totals
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.cli.current_project import open_workspace
from ondatra_dagster.cli.output import indent_lines, print_json, print_message, print_table, replace_control_characters
from ondatra_dagster.count_time_and_size_format import format_count, format_duration, format_local_time, format_size
from ondatra_dagster.operations.alert_store import ActiveAlert
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.planning.plan import ModelStep, SyncStep
from ondatra_dagster.project.model import Model
from ondatra_dagster.row_changes import Json
from ondatra_dagster.sync.run_history_store import PastRun
from ondatra_dagster.sync.send_guards import find_hold_reason

# heading of a column → the field that is shown in it
MODEL_COLUMNS = {
    "model": "model",
    "kind": "kind",
    "version": "version",
    "rows": "rows",
    "last run": "last_run_at",
    "disk": "disk",
    "next run": "plan",
}
SYNC_COLUMNS = {
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
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per model or sync.")
@click.option("as_metrics", "--metrics", is_flag=True, help="Print metrics for Prometheus's textfile collector.")
def command(as_json: bool, as_metrics: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Show models and syncs, and what a run would do; exits with 1 when a queue or the history can't be read."""
    workspace = open_workspace()
    if as_metrics:
        click.echo(project_metrics_text(workspace), nl=False)
        return 0
    lines = list(_status_lines(workspace))
    code = 1 if any(line.get("error") for line in lines) else 0
    if problem := workspace.history.problem:
        print_message(f"warning: {problem}")
        code = 1
    if as_json:
        for line in lines:
            print_json(line)
        return code
    _print_status(workspace, lines)
    for name, event_count in workspace.events_without_model().items():
        print_message(f"{format_count(event_count, 'event')} wait for {name}, which is no longer a model; restore it")
    return code


def _status_lines(workspace: Workspace) -> Iterable[dict[str, Json]]:
    """Yield a line for each model, then a line for each sync."""
    plan, active_alerts = workspace.plan(), AlertService(workspace).read_active_alerts()
    unchanged_runs, newest_runs = workspace.unchanged_run_cache.read_runs(), workspace.history.read_newest_runs()
    for model in plan.models:
        unchanged_run = unchanged_runs.get(model.model.id)
        line = _model_line(workspace, model, unchanged_run.at if unchanged_run else None)
        yield {**line, "alerts": _active_rules(active_alerts, "model", model.model.name)}
    for sync in plan.syncs:
        line = _sync_line(workspace, sync, newest_runs.get(sync.sync_id))
        yield {**line, "alerts": _active_rules(active_alerts, "sync", sync.sync_id)}


def _print_status(workspace: Workspace, lines: list[dict[str, Json]]) -> None:
    models = [line for line in lines if "sync" not in line]
    syncs = [line for line in lines if "sync" in line]
    _print_lines(models, MODEL_COLUMNS)
    if syncs:
        click.echo()
        _print_lines(syncs, SYNC_COLUMNS)
    totals = read_disk_totals(workspace)
    if totals:
        click.echo("\non disk: " + ", ".join(f"{name} {format_size(size)}" for name, size in totals.items()))
    for alert in AlertService(workspace).read_active_alerts():
        since = format_local_time(datetime.fromisoformat(alert.since))
        click.echo(
            f"alerting since {since}: {alert.subject}: {indent_lines(replace_control_characters(alert.sentence))}"
        )


def _print_lines(lines: Iterable[Mapping[str, Json]], columns: Mapping[str, str]) -> None:
    print_table(list(columns), ([_format_column(line, name) for name in columns.values()] for line in lines))


def _model_line(workspace: Workspace, step: ModelStep, seen_at: float | None) -> dict[str, Json]:
    table = step.table
    run_times = [table.changed_at] if table and table.changed_at else []
    if table and seen_at:
        run_times.append(datetime.fromtimestamp(seen_at, UTC))
    return {
        **_event_fields(workspace, step.model),
        "model": step.model.name,
        "kind": step.model.kind.name,
        "version": table.version if table else None,
        "rows": table.commit_metadata.rows if table and table.commit_metadata else None,
        "last_run_at": format_local_time(max(run_times)) if run_times else None,
        "disk_bytes": disk_usage(table_path(workspace.settings, step.model.id)),
        "will_run": step.will_run,
        "plan": step.reason,
    }


def _event_fields(workspace: Workspace, model: Model) -> dict[str, Json]:
    """Return the fields about waiting events for a model of kind events; an empty dict for other kinds."""
    if model.kind.has_query:
        return {}
    waiting_events = workspace.events_waiting(model.id)
    age = max(round(workspace.clock() - waiting_events.oldest_at), 0) if waiting_events.oldest_at else None
    return {"events_waiting": waiting_events.events, "oldest_event_seconds": age}


def _sync_line(workspace: Workspace, step: SyncStep, last: PastRun | None) -> dict[str, Json]:
    queue_result, now = workspace.try_read_queue(step.sync_id), workspace.clock()
    queue = None if queue_result.loss_message else queue_result.status
    sync, default_count = workspace.syncs[step.sync_id], None if queue_result.unknown_reason else 0
    return {
        "sync": step.sync_id,
        "model": step.model.name,
        "waiting": queue.depth if queue else default_count,
        "oldest_seconds": round(now - queue.oldest_since) if queue and queue.oldest_since else None,
        "next_retry_seconds": round(queue.next_due_at - now) if queue and queue.next_due_at else None,
        "open_jobs": queue.open_jobs if queue else default_count,
        "dead": queue.dead_units if queue else default_count,
        "paused": sync.pause_file.exists(),
        "held": find_hold_reason(sync, workspace.settings),
        "last_run": last.run_id if last else None,
        "last_run_at": format_local_time(last.started_at) if last else None,
        "result": last.result.value if last else None,
        "will_run": step.will_run,
        "plan": queue_result.unknown_reason or step.reason,
        "lost": queue_result.loss_message is not None,
        "error": queue_result.read_error,
    }


def _active_rules(active_alerts: Iterable[ActiveAlert], subject_type: str, name: str) -> list[Json]:
    return [alert.rule for alert in active_alerts if (alert.type, alert.subject) == (subject_type, name)]


def _format_column(line: Mapping[str, Json], name: str) -> object:
    """Return the value that the table shows for a field of a line."""
    if name in ("oldest", "next_retry"):
        return _format_seconds(
            line[f"{name}_seconds"], expired_text="due" if name == "next_retry" else format_duration(0)
        )
    if name == "disk":
        size = line["disk_bytes"]
        return format_size(size) if isinstance(size, int) and size else ""
    return line.get(name)


def _format_seconds(seconds: Json, *, expired_text: str) -> str:
    """Return the text of a duration. For a duration that isn't positive, return `expired_text`."""
    if not isinstance(seconds, int | float):
        return ""
    return format_duration(seconds) if seconds > 0 else expired_text
