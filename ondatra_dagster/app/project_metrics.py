"""The metrics of a project's syncs, tables and disk space, as values and in Prometheus' text format 0.0.4."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.project.settings.storage_access import local_path
from ondatra_dagster.prometheus_format import COUNTER, GAUGE, Metric, MetricSample, format_metrics
from ondatra_dagster.sync.run_history_store import NO_TOTALS, PastRun, SyncTotals
from ondatra_dagster.sync.send_guards import find_hold_reason


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SyncMetrics:
    """The metrics of one sync. A metric is None if it is unknown or doesn't exist."""

    sync: str
    depth: int | None = 0
    oldest_seconds: float | None = None
    dead: int | None = 0
    open_jobs: int | None = 0
    next_due_at: float | None = None  # seconds since 1970
    is_held: bool = False
    totals: SyncTotals = NO_TOTALS
    last_run_seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelMetrics:
    """The metrics of one model's table."""

    model: str
    version: int | None = None
    rows: int | None = None
    disk_bytes: int | None = None
    changed_at: float | None = None


def format_project_metrics(syncs: Iterable[SyncMetrics], models: Iterable[ModelMetrics]) -> str:
    """Return all metrics in Prometheus' text format; the text ends with a line feed."""
    metrics = (*_sync_metrics(tuple(syncs)), *_model_metrics(tuple(models)))
    return format_metrics(metrics)


def _sync_metrics(syncs: tuple[SyncMetrics, ...]) -> Iterator[Metric]:
    def build_metric(name: str, of_type: str, text: str, values: Iterable[float | None]) -> Metric:
        labels = ({"sync": sync.sync} for sync in syncs)
        return Metric(f"ondatra_sync_{name}", of_type, text, _known_samples(labels, values))

    yield build_metric("queue_depth", GAUGE, "Keys that are still to be delivered.", [s.depth for s in syncs])
    yield build_metric(
        "oldest_waiting_seconds", GAUGE, "Age of the oldest of these keys.", [s.oldest_seconds for s in syncs]
    )
    yield build_metric("dead_letters", GAUGE, "Keys that are dead letters.", [s.dead for s in syncs])
    yield build_metric("open_jobs", GAUGE, "Asynchronous jobs that are open.", [s.open_jobs for s in syncs])
    yield build_metric(
        "next_due_timestamp_seconds", GAUGE, "When a retry or a poll is due.", [s.next_due_at for s in syncs]
    )
    yield build_metric("held", GAUGE, "1 while nothing may be sent.", [s.is_held for s in syncs])
    yield build_metric("runs_total", COUNTER, "Runs in the history.", [s.totals.runs for s in syncs])
    yield build_metric(
        "failed_runs_total", COUNTER, "Runs that failed or crashed.", [s.totals.failed_runs for s in syncs]
    )
    yield build_metric(
        "interrupted_runs_total",
        COUNTER,
        "Runs that were ended by Ctrl-C or SIGTERM.",
        [s.totals.interrupted_runs for s in syncs],
    )
    yield Metric(
        "ondatra_sync_units_total",
        COUNTER,
        "Units in the runs of the history, by their outcome.",
        [
            MetricSample({"sync": sync.sync, "outcome": outcome}, sync.totals.row_counts.get(cell, 0))
            for sync in syncs
            for cell, outcome in (("succeeded", "delivered"), ("rejected", "rejected"), ("failed", "failed"))
        ],
    )
    successes = [s.totals.last_success.timestamp() if s.totals.last_success else None for s in syncs]
    yield build_metric("last_success_timestamp_seconds", GAUGE, "When a run last succeeded.", successes)
    yield build_metric(
        "last_run_duration_seconds", GAUGE, "How long the newest run took.", [s.last_run_seconds for s in syncs]
    )


def _model_metrics(models: tuple[ModelMetrics, ...]) -> Iterator[Metric]:
    def build_metric(name: str, text: str, values: Iterable[float | None]) -> Metric:
        labels = ({"model": model.model} for model in models)
        return Metric(f"ondatra_table_{name}", GAUGE, text, _known_samples(labels, values))

    yield build_metric("version", "The newest version that changed rows.", [m.version for m in models])
    yield build_metric("rows", "Rows of the table.", [m.rows for m in models])
    yield build_metric("disk_bytes", "Size of its folder, with old versions.", [m.disk_bytes for m in models])
    yield build_metric("changed_timestamp_seconds", "When its rows last changed.", [m.changed_at for m in models])


def _known_samples(labels: Iterable[Mapping[str, str]], values: Iterable[float | None]) -> list[MetricSample]:
    """Return samples for the known values. A 0 for an unknown value would wrongly say that there is no problem."""
    pairs = zip(labels, values, strict=True)
    return [MetricSample(label, value) for label, value in pairs if value is not None]


def project_metrics_text(workspace: Workspace) -> str:
    """Return the current metrics of the project, in Prometheus' text format."""
    return format_project_metrics(read_sync_metrics(workspace), read_model_metrics(workspace))


def read_sync_metrics(workspace: Workspace) -> Iterator[SyncMetrics]:
    """Yield the metrics of each sync's queue, and the totals of its runs in the history."""
    totals, newest_runs = workspace.history.read_totals(), workspace.history.read_newest_runs()
    for sync_id in workspace.syncs:
        yield _read_metrics_of_sync(workspace, sync_id, totals.get(sync_id, NO_TOTALS), newest_runs.get(sync_id))


def read_model_metrics(workspace: Workspace) -> Iterator[ModelMetrics]:
    """Yield the metrics of each model's table."""
    for model in workspace.project.models.values():
        path = table_path(workspace.settings, model.id)
        table = read_table_state(path)
        yield ModelMetrics(
            model=model.name,
            version=table.version if table else None,
            rows=table.commit_metadata.rows if table and table.commit_metadata else None,
            disk_bytes=disk_usage(path),
            changed_at=table.changed_at.timestamp() if table and table.changed_at else None,
        )


def read_disk_totals(workspace: Workspace) -> Mapping[str, int]:
    """Return how many bytes tables, queues, records, logs and Dagster's files use on this machine's disk."""
    settings = workspace.settings
    sizes = {
        "tables": disk_usage(settings.warehouse),
        "queues": disk_usage(settings.state / "queue"),
        "records": disk_usage(settings.tracking),
        "logs": disk_usage(settings.state / "logs"),
        "dagster": disk_usage(settings.state / "dagster"),
    }
    return {name: size for name, size in sizes.items() if size}


def disk_usage(address: str | Path) -> int | None:
    """Return the bytes below a path or an address: 0 if nothing is there, None if it isn't on this machine."""
    path = local_path(address)
    return None if path is None else _folder_size(str(path))


def _folder_size(folder: str) -> int:
    size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    size += _folder_size(entry.path)
                else:
                    size += entry.stat(follow_symlinks=False).st_size
    except (FileNotFoundError, NotADirectoryError):
        return size  # another process removed the folder
    return size


def _read_metrics_of_sync(
    workspace: Workspace, sync_id: str, totals: SyncTotals, newest: PastRun | None
) -> SyncMetrics:
    result, now = workspace.try_read_queue(sync_id), workspace.clock()
    queue, default_count = None if result.loss_message else result.status, None if result.unknown_reason else 0
    oldest_since = queue.oldest_since if queue else None
    ended_at = newest.ended_at if newest else None
    return SyncMetrics(
        sync=sync_id,
        depth=queue.depth if queue else default_count,
        oldest_seconds=None if oldest_since is None else round(now - oldest_since, 3),
        dead=queue.dead_units if queue else default_count,
        open_jobs=queue.open_jobs if queue else default_count,
        next_due_at=queue.next_due_at if queue else None,
        is_held=find_hold_reason(workspace.syncs[sync_id], workspace.settings) is not None,
        totals=totals,
        last_run_seconds=(ended_at - newest.started_at).total_seconds() if newest and ended_at else None,
    )
