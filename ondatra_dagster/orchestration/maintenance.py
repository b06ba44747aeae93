"""The duties of a project, filled with its own things. When they are done is for schedules and cli to say."""

import functools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Protocol

from ondatra_dagster.collector import event_file
from ondatra_dagster.delivery.http import rate_limit
from ondatra_dagster.operations import (
    alert_book,
    fact_tables,
    feeds,
    letters,
    retention,
    state_files,
    sync_log,
    tables,
)
from ondatra_dagster.operations.maintain import Done, Duty
from ondatra_dagster.operations.needed_versions import NeededVersions
from ondatra_dagster.operations.sync_log import LogTable
from ondatra_dagster.operations.tables import Maintained, Upkeep, UpkeepTable
from ondatra_dagster.orchestration import sync_runs
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning import noop_cache
from ondatra_dagster.planning.delta_log import SYNC_LOG, invalid_path, table_path
from ondatra_dagster.planning.versions import tables_of
from ondatra_dagster.project.settings.addresses import Address
from ondatra_dagster.sync.intake import take_in_changes
from ondatra_dagster.sync.ports import Feed
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking import history

# of damaged files, by their names: each says what it costs to go on without the file
REMEDIES = {
    "alerts.sqlite": alert_book.SCHEMA.if_damaged,
    "cache.sqlite": noop_cache.SCHEMA.if_damaged,
    event_file.NAME: event_file.SCHEMA.if_damaged,
    "history.sqlite": history.SCHEMA.if_damaged,
    "rates.sqlite": rate_limit.SCHEMA.if_damaged,
}


class Tables(Protocol):
    """The warehouse, as far as the duties ask for it."""

    def feed(self, sync: Sync) -> Feed: ...
    def sync_log(self) -> LogTable: ...
    def upkeep(self, table: Maintained) -> UpkeepTable: ...


def duties(workspace: Workspace, warehouse: Tables) -> list[Duty]:
    """All of them, in their order: what has to be seen is taken in before anything goes."""
    done = {
        feeds.FEEDS: lambda: feeds.take_in_feeds(_behind(workspace, warehouse)),
        sync_log.DUTY: lambda: workspace.sync_log.bring_up(warehouse.sync_log),
        retention.RETENTION: lambda: _prune(workspace),
        fact_tables.FACT_TABLES: lambda: fact_tables.refresh_fact_tables(
            workspace.tracking, workspace.syncs.values()
        ),
        tables.TABLES: lambda: _upkeep(workspace, warehouse),
        letters.DEAD_LETTERS: lambda: _report_dead_letters(workspace),
        state_files.DATABASES: lambda: state_files.compact_files(
            state_files.state_files(workspace.settings.state, REMEDIES)
        ),
        state_files.LOGS: lambda: state_files.turn_logs(workspace.settings.state / "logs"),
    }
    return [Duty(name=name, do=do) for name, do in done.items()]


def _behind(workspace: Workspace, warehouse: Tables) -> Mapping[str, feeds.TakeIn]:
    """The syncs that have versions to take in, and those that nobody can tell of: to take in says why.

    None when sinks are off: then nothing of them runs.
    """
    behind = {}
    for sync in workspace.syncs.values() if workspace.settings.sinks != "off" else ():
        seen, source = workspace.queue_seen(sync.id), sync_runs.source_state(workspace, sync)
        queue = None if seen.is_forgotten else seen.state
        if seen.unread or (queue and source and source.version > queue.watermark):
            ports = sync_runs.ports(workspace, sync, warehouse.feed(sync))
            behind[sync.id] = functools.partial(take_in_changes, sync, ports)
    return behind


def _report_dead_letters(workspace: Workspace) -> Done:
    seen = {sync_id: workspace.queue_seen(sync_id) for sync_id in workspace.syncs}
    return letters.report_dead_letters(
        {sync_id: queue.state for sync_id, queue in seen.items()},
        unread=[sync_id for sync_id, queue in seen.items() if queue.unread],
        lost=[sync_id for sync_id, queue in seen.items() if queue.lost and not queue.is_forgotten],
        now=workspace.clock(),
    )


def _prune(workspace: Workspace) -> Done:
    return retention.prune(
        workspace.tracking,
        workspace.sync_log,
        workspace.syncs,
        days=workspace.settings.tracking_retention_days,
        now=datetime.fromtimestamp(workspace.clock(), UTC),
    )


def _upkeep(workspace: Workspace, warehouse: Tables) -> Done:
    days = workspace.settings.table_retention_days
    upkeep = Upkeep(warehouse.upkeep, days=days, clock=workspace.clock)
    return upkeep.go(_maintained(workspace))


def _maintained(workspace: Workspace) -> Iterator[Maintained]:
    """Each model's table, that of its rows that were set aside, and the sync log."""
    settings = workspace.settings
    needed = NeededVersions(
        workspace.project, workspace.syncs, workspace.tracking, workspace.queue, tables_of(settings)
    )
    for model in workspace.project.models.values():
        path = table_path(settings, model.id)
        yield Maintained(
            name=model.name, lock=model.id, address=path, needed=functools.partial(needed.of_model, model)
        )
        yield Maintained(
            name=invalid_path(model.name),
            lock=model.id,
            address=Address(invalid_path(path), path.s3),
            needed=functools.partial(needed.of_invalid, model),
        )
    yield Maintained(
        name=SYNC_LOG,
        lock=SYNC_LOG,
        address=table_path(settings, SYNC_LOG),
        needed=lambda state: state.version,
    )
