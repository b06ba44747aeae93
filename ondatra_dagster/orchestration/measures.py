"""How a project stands, in numbers: for the status and for Prometheus. It looks at files only."""

from collections.abc import Iterator, Mapping

from ondatra_dagster.operations.metrics import ModelMeasures, SyncMeasures, metrics_text
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.delta_log import read_table_state, table_path
from ondatra_dagster.planning.disk_use import disk_use
from ondatra_dagster.sync.hold import hold
from ondatra_dagster.tracking.history import PastRun, Totals


def project_metrics(workspace: Workspace) -> str:
    """What Prometheus is told, now; to be handed over to who serves it."""
    return metrics_text(sync_measures(workspace), model_measures(workspace))


def sync_measures(workspace: Workspace) -> Iterator[SyncMeasures]:
    """Each sync's queue, and what its runs in the history come to."""
    totals, newest = workspace.history.totals(), workspace.history.newest()
    for sync_id in workspace.syncs:
        yield _of_sync(workspace, sync_id, totals.get(sync_id), newest.get(sync_id))


def model_measures(workspace: Workspace) -> Iterator[ModelMeasures]:
    """Each model's table."""
    for model in workspace.project.models.values():
        path = table_path(workspace.settings, model.id)
        table = read_table_state(path)
        yield ModelMeasures(
            model=model.name,
            version=table.version if table else None,
            rows=table.note.rows if table and table.note else None,
            disk_bytes=disk_use(path),
            changed_at=table.changed_at.timestamp() if table and table.changed_at else None,
        )


def disk_totals(workspace: Workspace) -> Mapping[str, int]:
    """What tables, queues, records and the rest take of this machine's disk."""
    settings = workspace.settings
    parts = {
        "tables": disk_use(settings.warehouse),
        "queues": disk_use(settings.state / "queue"),
        "records": disk_use(settings.tracking),
        "logs": disk_use(settings.state / "logs"),
        "dagster": disk_use(settings.state / "dagster"),
    }
    return {name: size for name, size in parts.items() if size}


def _of_sync(
    workspace: Workspace, sync_id: str, totals: Totals | None, newest: PastRun | None
) -> SyncMeasures:
    seen, now = workspace.queue_seen(sync_id), workspace.clock()
    queue, nothing = None if seen.lost else seen.state, None if seen.why_unknown else 0
    oldest = queue.oldest_since if queue else None
    last = totals.last_success if totals else None
    ended = newest.ended_at if newest else None
    return SyncMeasures(
        sync=sync_id,
        depth=queue.depth if queue else nothing,
        oldest_seconds=None if oldest is None else round(now - oldest, 3),
        dead=queue.dead if queue else nothing,
        open_jobs=queue.open_jobs if queue else nothing,
        next_due_at=queue.next_due_at if queue else None,
        is_held=hold(workspace.syncs[sync_id], workspace.settings) is not None,
        rows=totals.rows if totals else {},
        runs=totals.runs if totals else 0,
        failed_runs=totals.failed_runs if totals else 0,
        interrupted_runs=totals.interrupted_runs if totals else 0,
        last_success_at=last.timestamp() if last else None,
        last_run_seconds=(ended - newest.started_at).total_seconds() if newest and ended else None,
    )
