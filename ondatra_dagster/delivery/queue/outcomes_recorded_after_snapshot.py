"""The recovery of a queue's units from the records of runs that came after its snapshot.

First snapshot_and_restore makes the queue from the snapshot. Units that the records report as delivered then aren't
sent again. Units that the records report as refused are dead letters again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import orjson

from ondatra_dagster.delivery.queue.async_jobs import remove_units_from_jobs
from ondatra_dagster.delivery.queue.claimed_batches import DESIRED_CHANGE_TYPES
from ondatra_dagster.delivery.queue.queue_database import NOTHING_ENQUEUED, Queue
from ondatra_dagster.delivery.queue.unpublished_records import STATUS_SUCCEEDED
from ondatra_dagster.row_changes import ChangeType, FeedSegment, RowChange

DELETE_DELIVERED = "delete from unit where key = ? and version <= ?"
# A row that is inserted in the same version as a delete is sent with the delete, but its record is published later.
DELETE_DELIVERED_DELETES = "delete from unit where key = ? and version <= ? and (version <> ? or desired = '')"
# Rows that arrived before the newest change are maybe_sent in the snapshot, because their batch was frozen.
# This excludes maybe_sent = '', which means a delete that is sent before its insert and has no inserted rows.
ACKNOWLEDGE_MAYBE_SENT = """
update unit set acknowledged = maybe_sent, maybe_sent = null
where key = ? and version > ? and maybe_sent <> '' and state != 'claimed'
"""
ACKNOWLEDGE_DELETE = """
update unit set acknowledged = '', maybe_sent = null
where key = ? and version >= ? and (version = ? or maybe_sent is not null) and state != 'claimed'
"""
# An insert is sent only after the deletes of its version have ended; a dead delete has a record.
DELETE_REPLACED = """
delete from unit where phase = 0 and version <= ? and state != 'dead'
    and key not in (select value from json_each(?))
"""
MARK_DEAD = """
update unit set state = 'dead', message = ?, died_at = ?, attempts = 0 where key = ? and version <= ?
"""


class KeyOutcome(NamedTuple):
    """The outcome of a delivery key in a run that left no snapshot."""

    key: str
    version: int
    status: str
    message: str | None
    change_type: str
    run_id: str = ""

    @property
    def send_id(self) -> tuple[str, str, int]:
        """Return the value that rows which were sent together have in common."""
        return self.key, self.run_id, self.version


def recorded_content_sizes(outcomes: Iterable[KeyOutcome], known_sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Return the highest number of rows that the API may have of each mirror.

    It follows from these outcomes and the `known_sizes` before them. A crashed run may have recorded only some of
    the rows that it sent, so a lower number than before proves nothing. An empty mirror has no record.
    """
    rows = dict(known_sizes)
    for (key, _, _), row_count in Counter(end.send_id for end in outcomes if end.status == STATUS_SUCCEEDED).items():
        rows[key] = max(row_count, rows.get(key, 0))
    return rows


def _outcome_order(outcome: KeyOutcome) -> tuple[int, bool]:
    """Return the sort key within one delivery key: a delete comes before an insert of the same version."""
    return outcome.version, outcome.change_type != ChangeType.DELETE


def _delivered_outcomes(outcomes: Collection[KeyOutcome]) -> Mapping[str, KeyOutcome]:
    """Return the newest delivered outcome of each key. A group isn't delivered if a part of it was refused."""
    refused_sends = {end.send_id for end in outcomes if end.status != STATUS_SUCCEEDED}
    return {end.key: end for end in sorted(outcomes, key=_outcome_order) if end.send_id not in refused_sends}


def _rejected_outcomes(outcomes: Iterable[KeyOutcome]) -> Mapping[str, KeyOutcome]:
    """Return the newest refusal of each key. If two refusals have the same version, return that of the newer run."""
    rejections = (end for end in outcomes if end.status != STATUS_SUCCEEDED)
    return {end.key: end for end in sorted(rejections, key=lambda outcome: (outcome.version, outcome.run_id))}


def _find_deletes_ended_upto(outcomes: Iterable[KeyOutcome], frozen: Collection[str]) -> int:
    """Return the version up to which all deletes have ended, because an insert of that version was sent.

    Most of these deletes have no record.
    """
    inserts = (end for end in outcomes if end.change_type != ChangeType.DELETE and end.key not in frozen)
    return max((end.version for end in inserts), default=NOTHING_ENQUEUED)


def _keys_of_deletes(outcomes: Mapping[str, KeyOutcome]) -> Collection[str]:
    """Return the keys whose outcome is a delete."""
    return {key for key, end in outcomes.items() if end.change_type == ChangeType.DELETE}


class RecordedOutcomes:
    """The newest outcome of each key after the snapshot, according to the records.

    `crash_versions` has, for each run that crashed after the snapshot, the version up to which it may have sent rows
    without a record. The keys in `frozen` were already claimed in the snapshot, so their delivery says nothing
    about later deletes.
    """

    def __init__(
        self,
        outcomes: Collection[KeyOutcome],
        *,
        replaces_rows: bool = False,
        crash_versions: Mapping[str, int] = MappingProxyType({}),
        frozen: Collection[str] = (),
    ) -> None:
        self._crash_versions = frozenset(crash_versions.values())
        self._marked_dead_upto = NOTHING_ENQUEUED
        delivered_outcomes = _delivered_outcomes(outcomes)
        self._delivered_versions = {key: end.version for key, end in delivered_outcomes.items()}
        self._deleted_keys = _keys_of_deletes(delivered_outcomes)
        self._rejected_by_key = _rejected_outcomes(outcomes)
        self._rejected_deletes = _keys_of_deletes(self._rejected_by_key)
        self._deletes_ended_upto = _find_deletes_ended_upto(outcomes, frozen) if replaces_rows else NOTHING_ENQUEUED
        # a refused change is dead only after everything is enqueued that its run had enqueued
        self._dead_from_version = {
            key: max(end.version, crash_versions.get(end.run_id, end.version))
            for key, end in self._rejected_by_key.items()
        }

    def split_versions(self, *, after: int, upto: int) -> Sequence[int]:
        """Return the versions at which the enqueue up to `upto` is split.

        No run sent rows at a version between two of them. A row that was inserted before such a version and deleted
        after it may be at the API without a record.
        """
        recorded_versions = [
            *self._delivered_versions.values(),
            *(end.version for end in self._rejected_by_key.values()),
        ]
        first_versions = [min(recorded_versions)] if recorded_versions and after == NOTHING_ENQUEUED else []
        versions_between = (version for version in (*self._crash_versions, *first_versions) if after < version < upto)
        return [*sorted(set(versions_between)), *([upto] if upto > after else [])]

    def may_be_sent(self, version: int) -> bool:
        """Return whether a crashed run may have sent the rows that the table had at this version."""
        return version in self._crash_versions

    def __bool__(self) -> bool:
        return bool(self._delivered_versions or self._rejected_by_key)

    def delete_delivered_units(self, queue: Queue) -> None:
        """Delete units whose newest change was delivered. Units with a newer change continue from what the API has."""
        deletes = [
            (key, version, version) for key, version in self._delivered_versions.items() if key in self._deleted_keys
        ]
        writes = [item for item in self._delivered_versions.items() if item[0] not in self._deleted_keys]
        with queue.store.write_transaction():
            remove_units_from_jobs(queue, self._delivered_versions.keys() | self._rejected_by_key.keys())
            queue.store.execute_many(DELETE_DELIVERED, writes)
            queue.store.execute_many(ACKNOWLEDGE_MAYBE_SENT, writes)
            queue.store.execute_many(DELETE_DELIVERED_DELETES, deletes)
            queue.store.execute_many(ACKNOWLEDGE_DELETE, deletes)
        self.delete_replaced_units(queue)

    def delete_replaced_units(self, queue: Queue, *, after: int = NOTHING_ENQUEUED) -> None:
        """Delete units that delete replaced rows and are known to have ended.

        Either the delete arrived, or its row was never sent. Hardly any of these deletes has a record. Call this
        function again when changes `after` a version are enqueued. It does nothing once that version is past all
        such deletes, because deletes that must be sent again have to stay.
        """
        if after < self._deletes_ended_upto:
            queue.store.execute(
                DELETE_REPLACED, (self._deletes_ended_upto, orjson.dumps(list(self._rejected_deletes)).decode())
            )

    def mark_rejected_dead(self, queue: Queue, now: float) -> None:
        """Make those units dead letters whose newest change was refused.

        A unit is left out until the queue has everything that the refused run had enqueued. Call this function at
        each version of split_versions(). Changes that are enqueued later make dead units pending again, as always.
        """
        upto = queue.watermark
        due_outcomes = [
            end
            for key, end in self._rejected_by_key.items()
            if self._marked_dead_upto < self._dead_from_version[key] <= upto
        ]
        with queue.store.write_transaction():
            queue.store.execute_many(MARK_DEAD, [(end.message, now, end.key, end.version) for end in due_outcomes])
        self._marked_dead_upto = upto

    def without_delivered_changes(self, segment: FeedSegment) -> FeedSegment:
        """Return the segment without the changes that are known to have arrived, and without their context rows."""
        pages = (
            page._replace(changes=[change for change in page.changes if self._is_undelivered(change)])
            for page in segment.pages
        )
        return segment._replace(pages=pages)

    def _is_undelivered(self, change: RowChange) -> bool:
        """Return whether no record proves that the change was delivered.

        A delivered delete doesn't prove that an insert of the same version was delivered.
        """
        delivered_version = self._delivered_versions.get(change.key, NOTHING_ENQUEUED)
        is_same_version = change.version == delivered_version and change.change_type in DESIRED_CHANGE_TYPES
        return change.version > delivered_version or (is_same_version and change.key in self._deleted_keys)
