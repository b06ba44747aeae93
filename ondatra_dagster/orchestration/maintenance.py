"""The duties of a project, filled with its own things. When they are done is for schedules and cli to say."""

import functools
from collections.abc import Callable
from datetime import UTC, datetime

from ondatra_dagster.operations import fact_tables, retention, sync_log
from ondatra_dagster.operations.maintain import Duty
from ondatra_dagster.operations.sync_log import LogTable
from ondatra_dagster.orchestration.workspace import Workspace


def duties(workspace: Workspace, opened: Callable[[], LogTable]) -> list[Duty]:
    """All of them, in their order: records go when they are in the log."""
    settings, tracking, syncs = workspace.settings, workspace.tracking, workspace.syncs
    log = workspace.sync_log
    return [
        Duty(name=sync_log.DUTY, do=functools.partial(log.bring_up, opened)),
        Duty(
            name=retention.RETENTION,
            do=functools.partial(
                retention.prune,
                tracking,
                log,
                syncs,
                days=settings.tracking_retention_days,
                now=datetime.fromtimestamp(workspace.clock(), UTC),
            ),
        ),
        Duty(
            name=fact_tables.FACT_TABLES,
            do=functools.partial(fact_tables.refresh_fact_tables, tracking, syncs.values()),
        ),
    ]
