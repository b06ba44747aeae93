"""The check of a queue before a run, and the recovery of a lost or stale queue from its snapshot and the records."""

from collections.abc import Hashable, Iterable
from datetime import UTC

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.finalize_call import add_finalize_counts, renew_pending_finalize
from ondatra_dagster.delivery.queue.outcomes_recorded_after_snapshot import (
    KeyOutcome,
    RecordedOutcomes,
    recorded_content_sizes,
)
from ondatra_dagster.delivery.queue.queue_database import NOTHING_ENQUEUED, Queue
from ondatra_dagster.delivery.queue.removal_count import read_content_sizes, write_content_sizes
from ondatra_dagster.delivery.queue.snapshot_and_restore import (
    SNAPSHOTS_WITHOUT_RUN,
    QueueSnapshot,
    count_snapshots_without_run,
    is_restoring,
    make_snapshot,
    mark_all_maybe_sent,
    restore_snapshot,
)
from ondatra_dagster.delivery.queue.unpublished_records import (
    SNAPSHOT_RUN,
    STATUS_SUCCEEDED,
    count_started_files,
    open_runs,
)
from ondatra_dagster.delivery.unit_shape_by_model_kind import KEY_NAMES_SINCE, write_unit_format
from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.records.record_schema import DeliveredRecord
from ondatra_dagster.row_changes import ChangeType
from ondatra_dagster.sync.record_publisher import note_runs_with_invalid_records
from ondatra_dagster.sync.recovery.state_folder_conflict import find_newest_run
from ondatra_dagster.sync.recovery.unit_shape_check import refuse_snapshot_of_other_format, update_unit_format
from ondatra_dagster.sync.run_context import Ports, SourceState
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.whole_table_unit_and_clone_feeds import WHOLE_TABLE_KEY

# the run id in a snapshot that was written before the sync's first run; it sorts before every run
RUN_ID_BEFORE_ALL_RUNS = "00000000T000000Z-aaaaaa"


def recover_queue(
    queue: Queue, sync: Sync, ports: Ports, source: SourceState, *, is_new_state: bool = False
) -> RecordedOutcomes:
    """Make the queue usable for a run, or raise an error that says why it isn't usable.

    Return the outcomes that were recorded after the queue's snapshot. With `is_new_state`, a sync without a
    snapshot begins as in its first run, even if rows were delivered before.
    """
    snapshot, newest_run_id = ports.record_store.read_newest_snapshot(sync.id), find_newest_run(sync, ports)
    has_queue = queue.read_meta("table_id") is not None and not is_restoring(queue)
    is_lost = not has_queue or _is_stale(queue, sync, ports, snapshot, newest_run_id)
    usable_snapshot = snapshot if is_lost and snapshot and _may_have_sent(snapshot, newest_run_id) else None
    if usable_snapshot:
        refuse_snapshot_of_other_format(usable_snapshot, sync, source)
        ports.notify(describe_restore(queue, sync, ports, usable_snapshot))
        restore_snapshot(queue, usable_snapshot, now=ports.clock(), recorded_upto=newest_run_id)
        renew_pending_finalize(queue, journal=sync.journal_file)
    elif is_lost or _is_empty_for_another_destination(queue, sync, source):
        if snapshot is None and not is_new_state:
            _refuse_if_run_before(sync, ports)
        _begin_queue(queue, sync, ports, source, snapshot)
    _refuse_another_table(queue, sync, source)
    _refuse_another_destination(queue, sync)
    update_unit_format(queue, sync, ports, source)
    return (
        _recover_from_records(queue, sync, ports, source, usable_snapshot) if usable_snapshot else RecordedOutcomes(())
    )


def _may_have_sent(snapshot: QueueSnapshot, newest: str) -> bool:
    """Return whether the run that wrote the snapshot, or a later run, may have had something to send."""
    return snapshot.watermark != NOTHING_ENQUEUED or newest > snapshot.run_id


def _is_empty_for_another_destination(queue: Queue, sync: Sync, source: SourceState) -> bool:
    """Return whether the queue was set up for another table or API, and has never enqueued anything."""
    stored_destination = queue.read_meta("table_id"), queue.read_meta("base_url") or ""
    return queue.watermark == NOTHING_ENQUEUED and stored_destination != (
        source.table_id,
        sync.push_config.base_url or "",
    )


def is_queue_stale(queue: Queue, sync: Sync, ports: Ports) -> bool:
    """Return whether this queue file is a restored old copy, because later runs of the sync didn't use it."""
    return _is_stale(queue, sync, ports, ports.record_store.read_newest_snapshot(sync.id), find_newest_run(sync, ports))


def _is_stale(queue: Queue, sync: Sync, ports: Ports, snapshot: QueueSnapshot | None, newest: str) -> bool:
    if snapshot is None:
        return False
    last_run_id = queue.read_meta("last_run") or RUN_ID_BEFORE_ALL_RUNS
    queue_count, store_count = count_snapshots_without_run(queue, snapshot)
    if last_run_id < max(snapshot.run_id, newest) or queue_count < store_count:
        return True
    return any(_has_unknown_records(queue, sync, ports, snapshot, run_id) for run_id in open_runs(queue))


def _has_unknown_records(queue: Queue, sync: Sync, ports: Ports, snapshot: QueueSnapshot, run_id: str) -> bool:
    """Return whether a run that is open in this queue has left a snapshot or records that the queue doesn't know."""
    if snapshot.run_id == run_id and queue.read_meta(SNAPSHOT_RUN) != run_id:
        return True
    started_files = count_started_files(queue, run_id)
    stored_files = ports.record_store.list_record_files(sync.id, run_id)
    unknown_files = [file for file in stored_files if file[1] >= started_files.get(file[0], 0)]
    return ports.record_store.count_records(sync.id, run_id, unknown_files) > 0  # a run's end leaves an empty file


def _begin_queue(queue: Queue, sync: Sync, ports: Ports, source: SourceState, snapshot: QueueSnapshot | None) -> None:
    """Set up the queue for this table and API. Nothing has been sent yet, so an earlier table or API doesn't matter."""
    with queue.store.write_transaction():
        if snapshot:
            queue.write_meta("last_run", snapshot.run_id)  # the queue knows all that this snapshot says
        queue.write_meta("table_id", source.table_id)
        queue.write_meta("base_url", sync.push_config.base_url or "")
        write_unit_format(queue, sync.unit_format.with_key_types(source.columns), last_run_with_other_keys="")
        # in the transaction: each queue that was set up has a snapshot, so it can be rebuilt at any time
        first_snapshot = make_snapshot(queue, sync_id=sync.id, run_id=RUN_ID_BEFORE_ALL_RUNS, written_at=ports.now())
        ports.record_store.write_snapshot(first_snapshot)


def _recover_from_records(
    queue: Queue, sync: Sync, ports: Ports, source: SourceState, snapshot: QueueSnapshot
) -> RecordedOutcomes:
    """Return the outcomes that runs after the snapshot recorded, and apply them to the queue."""
    last_run_with_other_keys = (queue.read_meta(KEY_NAMES_SINCE) or "") if sync.delivers_by_key else ""
    delivered_records = list(ports.record_store.read_delivered_since(sync.id, snapshot.run_id))
    runs = [run for run in ports.record_store.list_runs(sync.id) if run > snapshot.run_id]
    key_outcomes = [
        _build_key_end(sync, record)
        for record in delivered_records
        if record.table_id == snapshot.table_id and record.run_id > last_run_with_other_keys
    ]
    version_by_run = {run: version for run in runs if (version := _read_version_to(sync, ports, run)) is not None}
    _refuse_older_table(
        sync, source, max([*version_by_run.values(), *(record.version for record in key_outcomes)], default=-1)
    )
    if delivered_records and "finalize" in sync.push_config.functions:
        _owe_finalize_call(queue, [_build_key_end(sync, record) for record in delivered_records])
    if sync.unit_shape is UnitKind.MIRROR:
        write_content_sizes(queue, recorded_content_sizes(key_outcomes, read_content_sizes(queue.store)).items())
    recorded_outcomes = RecordedOutcomes(
        key_outcomes,
        replaces_rows=queue.replaces_rows,
        crash_versions=version_by_run,
        frozen={unit.key for unit in snapshot.units if unit.state == "claimed"},
    )
    recorded_outcomes.delete_delivered_units(queue)
    if runs:
        note_runs_with_invalid_records(queue, since=snapshot.run_id, upto=runs[-1])
        mark_all_maybe_sent(queue)  # the newest of these runs crashed, so its last sends aren't recorded
    return recorded_outcomes


def _build_key_end(sync: Sync, record: DeliveredRecord) -> KeyOutcome:
    version, message = record.table_version, record.status_message
    return KeyOutcome(derive_unit_key(sync, record), version, record.status, message, record.change_type, record.run_id)


def _read_version_to(sync: Sync, ports: Ports, run_id: str) -> int | None:
    """Return the table version up to which a run delivers, from the run's metadata; None if unknown."""
    versions = (ports.record_store.read_metadata(sync.id, run_id) or {}).get("versions")
    last_version = versions.get("to") if isinstance(versions, dict) else None
    return last_version if isinstance(last_version, int) else None


def _owe_finalize_call(queue: Queue, outcomes: Iterable[KeyOutcome]) -> None:
    """Make finalize() due for the units of these records, because it may not have been called for them."""
    is_delivered: dict[Hashable, bool] = {}
    for number, end in enumerate(outcomes):
        if end.change_type == ChangeType.UPDATE_PREIMAGE:
            continue
        unit_id = end.send_id if queue.unit_kind is UnitKind.GROUP else number
        is_delivered[unit_id] = is_delivered.get(unit_id, True) and end.status == STATUS_SUCCEEDED
    succeeded_count = sum(is_delivered.values())
    with queue.store.write_transaction():
        add_finalize_counts(queue, succeeded=succeeded_count, failed=len(is_delivered) - succeeded_count)


def derive_unit_key(sync: Sync, record: DeliveredRecord) -> str:
    """Return the key of a record's unit."""
    if sync.is_whole_table:
        return WHOLE_TABLE_KEY
    return record.identifier if sync.delivers_by_key else str(record.rowid)


def _refuse_if_run_before(sync: Sync, ports: Ports) -> None:
    # without records, only the history distinguishes a sync whose state is lost from one that has never run
    records = ports.record_store.list_runs(sync.id) or ports.is_in_sync_log()
    if records or ports.history.as_required().has_begun(sync.id):
        raise ResyncNeededError(
            f"{sync.id} has run before, but both its queue and its queue snapshot in the tracking store are lost,"
            " so the API's content is unknown. Restore one of them, or run"
            f" `ondatra resync {sync.id}`, or send all rows as new ones: `ondatra run --allow-new-state"
            f" {sync.model.name}`"
        )


def _refuse_another_table(queue: Queue, sync: Sync, source: SourceState) -> None:
    if queue.read_meta("table_id") != source.table_id:
        raise ResyncNeededError(
            f"the table of {sync.model.name} was created again since {sync.id} last ran, so its rows can't be"
            f" compared with what the API holds; run `ondatra resync {sync.id}`"
        )
    _refuse_older_table(sync, source, queue.watermark)
    if NOTHING_ENQUEUED != queue.watermark < source.oldest_readable_version:
        raise ResyncNeededError(
            f"{sync.id} has {sync.model.name} up to version {queue.watermark}, but the changes between"
            f" that and version {source.oldest_readable_version} were removed, after a newer state of {sync.id} had"
            f" them. It was restored from a backup; run `ondatra resync {sync.id}`"
        )


def _refuse_older_table(sync: Sync, source: SourceState, sent_upto: int) -> None:
    if source.version < sent_upto:
        raise ResyncNeededError(
            f"the table of {sync.model.name} is at version {source.version}, but {sync.id} has sent up to"
            f" version {sent_upto}: it was restored from a backup; run `ondatra resync {sync.id}`"
        )


def _refuse_another_destination(queue: Queue, sync: Sync) -> None:
    queue_url, sync_url = queue.read_meta("base_url") or "", sync.push_config.base_url or ""
    if queue_url != sync_url:
        raise ResyncNeededError(
            f"{sync.push_config.file} now sends to {sync_url or 'no base_url'}, but the queue of {sync.id} describes"
            f" what {queue_url or 'no base_url'} holds; restore base_url, or run `ondatra resync {sync.id}`"
        )


def read_base_url(queue: Queue, sync: Sync, ports: Ports) -> str:
    """Return the base_url that the queue or its snapshot was written for; without both, the sync's own base_url."""
    base_url = queue.read_meta("base_url")
    snapshot = ports.record_store.read_newest_snapshot(sync.id) if base_url is None else None
    return snapshot.base_url if snapshot else (sync.push_config.base_url or "") if base_url is None else base_url


def write_queue_snapshot(queue: Queue, sync: Sync, ports: Ports) -> None:
    """Write the queue's snapshot in place of the last run's, so that a lost queue is rebuilt in its present state."""
    snapshot = ports.record_store.read_newest_snapshot(sync.id)
    snapshot_run_id = snapshot.run_id if snapshot else RUN_ID_BEFORE_ALL_RUNS
    # the records of all runs until now add nothing to this snapshot
    newest_run_id = max(snapshot_run_id, queue.read_meta("last_run") or "", find_newest_run(sync, ports))
    queue.write_meta("last_run", newest_run_id)
    # an older copy of the queue knows the same runs, and must still count as stale
    queue.write_meta(SNAPSHOTS_WITHOUT_RUN, 1 + (max(count_snapshots_without_run(queue, snapshot)) if snapshot else 0))
    new_snapshot = make_snapshot(queue, sync_id=sync.id, run_id=newest_run_id, written_at=ports.now())
    ports.record_store.write_snapshot(new_snapshot)


def describe_restore(queue: Queue, sync: Sync, ports: Ports, snapshot: QueueSnapshot) -> str:
    """Return a message that says why the queue is missing or stale, and from which snapshot the sync continues."""
    own_state, at = ports.record_store.state, snapshot.written_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    continue_text = f"it continues from the queue snapshot in the tracking store of {at} UTC"
    is_missing = queue.read_meta("table_id") is None
    if snapshot.state_id == own_state.id:
        cause_text = "is missing" if is_missing else "is older than the last run: it was restored from a backup"
        return f"{sync.id}: the queue {cause_text}; {continue_text}"
    if snapshot.state_id == own_state.copy_of:
        cause_text = f"this state folder (id {own_state.id}) is a copy of the one with the id {own_state.copy_of}"
    elif is_missing:
        cause_text = f"this state folder (id {own_state.id}) is new to this sync"
    else:
        cause_text = "another state folder has delivered this sync since the last run from here"
    return f"{sync.id}: {cause_text}; {continue_text} by the state folder with the id {snapshot.state_id or 'unknown'}"
