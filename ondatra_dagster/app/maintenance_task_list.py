"""The maintenance tasks of a project, with their inputs. Schedules and the CLI decide when the tasks run."""

import functools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from ondatra_dagster.app import push_and_check_sync
from ondatra_dagster.app.compute_write_and_read_tables import RunTables
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.collector import event_store
from ondatra_dagster.delivery.http import rate_limit
from ondatra_dagster.operations import (
    alert_store,
    enqueue_report_and_refresh_tasks,
    record_retention,
    state_file_maintenance,
    sync_log_appender,
    table_maintenance,
)
from ondatra_dagster.operations.maintenance_task_runner import MaintenanceTask, TaskResult
from ondatra_dagster.operations.oldest_needed_version import OldestNeededVersions
from ondatra_dagster.operations.table_maintenance import ManagedTable, TableMaintenance
from ondatra_dagster.planning import unchanged_run_cache
from ondatra_dagster.planning.find_table_and_columns import SYNC_LOG_TABLE, invalid_table_path, table_path
from ondatra_dagster.planning.input_versions import table_state_lookup
from ondatra_dagster.project.settings.storage_access import StorageAddress
from ondatra_dagster.sync import run_history_store
from ondatra_dagster.sync.enqueue_step import catch_up_queue

# the advice for damaged files, by file name: it says what is lost without the file
DAMAGED_FILE_REMEDIES = {
    "alerts.sqlite": alert_store.ALERT_SCHEMA.damage_advice,
    "cache.sqlite": unchanged_run_cache.SCHEMA.damage_advice,
    event_store.STORE_FILE_NAME: event_store.SCHEMA.damage_advice,
    "history.sqlite": run_history_store.HISTORY_SCHEMA.damage_advice,
    "rates.sqlite": rate_limit.RATES_SCHEMA.damage_advice,
}


def build_maintenance_tasks(workspace: Workspace, warehouse: RunTables) -> dict[str, MaintenanceTask]:
    """Return all tasks by name, in the order in which they run: changes are enqueued before data is deleted."""
    return {
        enqueue_report_and_refresh_tasks.ENQUEUE_TASK: lambda: enqueue_report_and_refresh_tasks.enqueue_pending_changes(
            _pending_enqueues(workspace, warehouse)
        ),
        sync_log_appender.SYNC_LOG_TASK: lambda: workspace.sync_log.append_missing(warehouse.sync_log),
        record_retention.RETENTION_TASK: lambda: _prune_records(workspace),
        enqueue_report_and_refresh_tasks.FACT_TABLE_TASK: lambda: enqueue_report_and_refresh_tasks.refresh_fact_tables(
            workspace.tracking, workspace.syncs.values()
        ),
        table_maintenance.TABLE_TASK: lambda: _maintain_tables(workspace, warehouse),
        enqueue_report_and_refresh_tasks.DEAD_LETTER_TASK: lambda: _report_dead_letters(workspace),
        state_file_maintenance.STATE_FILE_TASK: lambda: state_file_maintenance.compact_files(
            state_file_maintenance.list_state_files(workspace.settings.state, DAMAGED_FILE_REMEDIES)
        ),
        state_file_maintenance.LOG_TASK: lambda: state_file_maintenance.rotate_logs(workspace.settings.state / "logs"),
    }


def _pending_enqueues(
    workspace: Workspace, warehouse: RunTables
) -> Mapping[str, enqueue_report_and_refresh_tasks.EnqueueChanges]:
    """Return the enqueue function of each sync with new versions, and of each sync whose queue can't be read.

    For an unreadable queue, enqueueing reports the reason. With sinks off the result is empty, because no
    sync runs.
    """
    enqueue_tasks = {}
    for sync in workspace.syncs.values() if workspace.settings.sinks != "off" else ():
        queue_result, source = workspace.try_read_queue(sync.id), push_and_check_sync.read_source_state(workspace, sync)
        queue = None if queue_result.is_forgotten else queue_result.status
        if queue_result.read_error or (queue and source and source.version > queue.watermark):
            ports = push_and_check_sync.build_ports(workspace, sync, warehouse.feed(sync))
            enqueue_tasks[sync.id] = functools.partial(catch_up_queue, sync, ports)
    return enqueue_tasks


def _report_dead_letters(workspace: Workspace) -> TaskResult:
    queue_results = {sync_id: workspace.try_read_queue(sync_id) for sync_id in workspace.syncs}
    return enqueue_report_and_refresh_tasks.report_dead_letters(
        {sync_id: queue.status for sync_id, queue in queue_results.items()},
        unread=[sync_id for sync_id, queue in queue_results.items() if queue.read_error],
        lost_syncs=[
            sync_id for sync_id, queue in queue_results.items() if queue.loss_message and not queue.is_forgotten
        ],
        now=workspace.clock(),
    )


def _prune_records(workspace: Workspace) -> TaskResult:
    return record_retention.prune_records(
        workspace.tracking,
        workspace.sync_log,
        workspace.syncs,
        days=workspace.settings.tracking_retention_days,
        now=datetime.fromtimestamp(workspace.clock(), UTC),
    )


def _maintain_tables(workspace: Workspace, warehouse: RunTables) -> TaskResult:
    days = workspace.settings.table_retention_days
    maintenance = TableMaintenance(warehouse.open_for_maintenance, days=days, clock=workspace.clock)
    return maintenance.maintain_tables(_managed_tables(workspace))


def _managed_tables(workspace: Workspace) -> Iterator[ManagedTable]:
    """Yield the table and the table of invalid rows of each model, then the sync log's table."""
    settings = workspace.settings
    needed_versions = OldestNeededVersions(
        workspace.project, workspace.syncs, workspace.tracking, workspace.queue, table_state_lookup(settings)
    )
    for model in workspace.project.models.values():
        path = table_path(settings, model.id)
        yield ManagedTable(
            name=model.name,
            lock_name=model.id,
            address=path,
            oldest_needed_version=functools.partial(needed_versions.oldest_for_model, model),
        )
        yield ManagedTable(
            name=invalid_table_path(model.name),
            lock_name=model.id,
            address=StorageAddress(invalid_table_path(path), path.s3),
            oldest_needed_version=functools.partial(needed_versions.oldest_for_invalid_rows, model),
        )
    yield ManagedTable(
        name=SYNC_LOG_TABLE,
        lock_name=SYNC_LOG_TABLE,
        address=table_path(settings, SYNC_LOG_TABLE),
        oldest_needed_version=lambda state: state.version,
    )
