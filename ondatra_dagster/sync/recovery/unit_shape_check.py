"""The check that the queue's units have the format in which this sync sends them.

Dead letters are checked too, because a replay sends them, and a newer change of the row builds on them.
"""

from collections.abc import Collection

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.delivery.queue.queue_database import NOTHING_ENQUEUED, Queue
from ondatra_dagster.delivery.queue.queue_status import RemainingUnits, count_remaining_units
from ondatra_dagster.delivery.queue.snapshot_and_restore import QueueSnapshot
from ondatra_dagster.delivery.unit_shape_by_model_kind import (
    KEY_NAMES_SINCE,
    UNIT_FORMAT,
    UnitFormat,
    read_unit_format,
    write_unit_format,
)
from ondatra_dagster.errors import ResyncNeededError
from ondatra_dagster.sync.run_context import Ports, SourceState
from ondatra_dagster.sync.sync_definition import Sync


def update_unit_format(queue: Queue, sync: Sync, ports: Ports, source: SourceState) -> None:
    """Set the queue's unit format to this sync's; raise ResyncNeededError if units in another format are left."""
    queue_format, new_format = read_unit_format(queue), sync.unit_format.with_key_types(source.columns)
    if queue_format == new_format:
        return
    refuse_other_format(queue, sync, new_format)
    _refuse_changes_of_other_format(queue, sync, ports, new_format)
    last_run_with_other_keys = find_last_run_with_other_keys(
        queue_format, queue.read_meta(KEY_NAMES_SINCE) or "", new_format, ports.record_store.list_runs(sync.id)
    )
    with queue.store.write_transaction():
        write_unit_format(queue, new_format, last_run_with_other_keys=last_run_with_other_keys)


def refuse_other_format(queue: Queue, sync: Sync, form: UnitFormat | None = None) -> None:
    """Raise ResyncNeededError if the queue has units in another format than `form`, by default the sync's."""
    queue_format, form = read_unit_format(queue), form or sync.unit_format
    if queue_format and not queue_format.has_same_units(form):
        _raise_resync_needed(count_remaining_units(queue), queue_format, sync.id, form)


def _refuse_changes_of_other_format(queue: Queue, sync: Sync, ports: Ports, form: UnitFormat) -> None:
    """Raise ResyncNeededError if changes in another format aren't enqueued yet.

    Such changes may contain only some rows of a group.
    """
    queue_format, watermark = read_unit_format(queue), queue.watermark
    if (
        queue_format is None
        or queue_format.has_same_units(form)
        or not form.has_many_rows
        or watermark == NOTHING_ENQUEUED
    ):
        return
    if ports.has_old_changes(watermark):
        raise ResyncNeededError(
            f"{sync.id} has {form.describe_difference(queue_format)} now, and hasn't enqueued yet"
            f" what {sync.model.name} changed while it had {queue_format.describe_difference(form)}:"
            f" that can't be sent otherwise; run `ondatra resync {sync.id}`"
        )


def refuse_snapshot_of_other_format(snapshot: QueueSnapshot, sync: Sync, source: SourceState) -> None:
    """Raise ResyncNeededError if the snapshot that restores a lost queue has units of another format."""
    snapshot_format, sync_format = read_snapshot_format(snapshot), sync.unit_format.with_key_types(source.columns)
    if snapshot_format and not snapshot_format.has_same_units(sync_format):
        remaining_units = [unit for unit in snapshot.units if unit.version <= snapshot.watermark]
        _raise_resync_needed(
            RemainingUnits(len(remaining_units), sum(unit.state == "dead" for unit in remaining_units)),
            snapshot_format,
            sync.id,
            sync_format,
        )


def _raise_resync_needed(
    remaining_units: RemainingUnits, known_format: UnitFormat, sync_id: str, form: UnitFormat
) -> None:
    if not remaining_units.unit_count:
        return
    dead_letter_note = (
        f" ({format_count(remaining_units.dead_units, 'dead letter')} among them)" if remaining_units.dead_units else ""
    )
    raise ResyncNeededError(
        f"{sync_id} has {form.describe_difference(known_format)} now, but"
        f" {format_count(remaining_units.unit_count, 'key')} in its queue{dead_letter_note}"
        f" entered it with {known_format.describe_difference(form)} and can't be sent otherwise; restore that until"
        f" none is left, or run `ondatra resync {sync_id}`"
    )


def read_snapshot_format(snapshot: QueueSnapshot) -> UnitFormat | None:
    """Return the format of the snapshot's units; None if the snapshot doesn't contain a format."""
    text = snapshot.queue_metadata.get(UNIT_FORMAT)
    return UnitFormat.load(text) if text else None


def find_last_run_with_other_keys(
    known_format: UnitFormat | None, last_run: str, form: UnitFormat, runs: Collection[str]
) -> str:
    """Return the last run whose records have identifiers in another format than `form`.

    `last_run` is the last such run for `known_format`, the format until now.
    """
    if known_format is None or known_format.has_same_names(form):
        return last_run
    return max(runs, default="")
