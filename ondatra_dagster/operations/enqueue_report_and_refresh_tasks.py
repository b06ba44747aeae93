"""The maintenance tasks of queues and fact tables: enqueue changes, report dead letters, refresh fact tables."""

from collections.abc import Callable, Collection, Mapping

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.delivery.queue.queue_status import QueueStatus
from ondatra_dagster.errors import BusyError, OndatraError, ResyncNeededError
from ondatra_dagster.operations.maintenance_task_runner import TaskResult
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.records.source_and_destination_tables import build_fact_tables
from ondatra_dagster.sync.sync_definition import Sync

ENQUEUE_TASK = "feeds"
EnqueueChanges = Callable[[], int | None]  # returns the number of new versions


def enqueue_pending_changes(syncs: Mapping[str, EnqueueChanges]) -> TaskResult:
    """Enqueue the new table changes of the given syncs, and return the task's result."""
    versions, problems, is_successful = {}, [], True
    for sync_id, enqueue_changes in syncs.items():
        try:
            if (version_count := enqueue_changes()) is not None:
                versions[sync_id] = version_count
        except BusyError:
            problems.append(f"{sync_id} is running, and enqueues them itself")
        except ResyncNeededError as error:  # the sync's own runs fail with the same error
            problems.append(str(error))
        except OndatraError as error:
            is_successful = False
            problems.append(f"{sync_id}: {error}")
    version_note = f"{format_count(len(versions), 'sync')} enqueued new versions" if versions else ""
    return TaskResult(
        task=ENQUEUE_TASK,
        message="; ".join(filter(None, [version_note, *problems])) or "every sync has its table's newest version",
        counts={"syncs": len(versions), "versions": sum(versions.values())},
        details=tuple({"sync": sync_id, "versions": number} for sync_id, number in versions.items()),
        is_successful=is_successful,
    )


def report_dead_letters(
    queues: Mapping[str, QueueStatus | None],
    *,
    unread: Collection[str] = (),
    lost_syncs: Collection[str] = (),
    now: float,
) -> TaskResult:
    """Report how many dead letters each sync has, and the age of the oldest one. Nothing is deleted.

    If a sync's queue can't be read or is lost, the number of its dead letters is unknown.
    """
    dead_letters_by_sync = {
        sync_id: (queue.dead_units, int((now - (queue.dead_since or now)) / DAY_SECONDS))
        for sync_id, queue in queues.items()
        if queue and queue.dead_units
    }
    total = sum(dead_count for dead_count, _ in dead_letters_by_sync.values())
    oldest_days = max((days for _, days in dead_letters_by_sync.values()), default=0)
    summary = (
        f"{format_count(total, 'dead letter')} of {', '.join(dead_letters_by_sync)},"
        f" the oldest of {format_count(oldest_days, 'day')}"
    )
    reasons = {"can't be read": unread, "is lost": lost_syncs}
    unknown_note = "".join(
        f"; unknown for {', '.join(syncs)}: its queue {reason}" for reason, syncs in reasons.items() if syncs
    )
    return TaskResult(
        task=DEAD_LETTER_TASK,
        message=(f"{summary}: see `ondatra dead SYNC`" if dead_letters_by_sync else "there are none") + unknown_note,
        counts={"dead": total, "oldest_days": oldest_days},
        details=tuple(
            {"sync": sync_id, "dead": dead_count, "oldest_days": days}
            for sync_id, (dead_count, days) in dead_letters_by_sync.items()
        ),
        is_successful=not unread,
    )


DEAD_LETTER_TASK = "dead_letters"
DAY_SECONDS = 86_400


FACT_TABLE_TASK = "fact_tables"


def refresh_fact_tables(tracking: RecordStore, syncs: Collection[Sync]) -> TaskResult:
    """Write the project's rows of the fact tables again, and return the task's result."""
    facts = build_fact_tables(sync.endpoints for sync in syncs)
    tracking.write_fact_tables(facts)
    return TaskResult(
        task=FACT_TABLE_TASK,
        message=f"the source and destination tables describe {format_count(len(syncs), 'sync')}",
        counts={name: len(rows) for name, rows in facts.items()},
    )
