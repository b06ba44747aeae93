"""The enqueueing of the change feed: rows become visible and the watermark moves in one transaction.

A resync enqueues all rows of a table, and deletes of keys that the table no longer has.

Before that transaction, the rows are written in small transactions, under a version above the watermark. No claim
selects such rows. So a million rows need no large transaction, and a crash leaves nothing visible.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import KeyState, UnitKind
from ondatra_dagster.delivery.gc_tuning import raise_gc_threshold
from ondatra_dagster.delivery.queue.damage_checksums import (
    UNIT_COLUMNS,
    check_row_digest,
    check_unit_digest,
    row_digest,
    unit_digest,
)
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.row_changes import ChangeType, FeedSegment, RowChange
from ondatra_dagster.storage.sqlite_database import SqlValue

CHUNK_KEYS = 5_000
ONE_ROW_KINDS = frozenset({UnitKind.ROW, UnitKind.VERSION})


# key, belongs_to, version, acknowledged, maybe_sent, desired, rows, phase, since
NewUnit: TypeAlias = tuple[str, str, int, str, str | None, str, int, int, float]


# left behind by a crash during an enqueue
DELETE_STAGED = "delete from staged"
DELETE_INVISIBLE_UNITS = "delete from unit where version > :watermark and state = 'pending'"
READ_INVISIBLE_UNITS = (
    f"select id, digest, {', '.join(UNIT_COLUMNS)} from unit where version > :watermark and state = 'pending'"
)
KEYS_WITH_UNITS = "select key from unit where key in (select value from json_each(?))"
ANY_UNIT = "select 1 from unit limit 1"
ADD_UNIT = """
insert into unit (key, belongs_to, version, acknowledged, maybe_sent, desired, rows, phase, state, since, digest)
values (?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?)
"""
STAGE_KEY = """
insert into staged values (?, ?, ?, ?)
on conflict (key) do update
set version = excluded.version, desired = excluded.desired, digest = excluded.digest
"""
READ_STAGED = f"""
select staged.key, staged.version, staged.desired, staged.digest, unit.id, unit.state, unit.digest,
    {", ".join(f"unit.{name}" for name in UNIT_COLUMNS)}
from staged join unit on unit.key = staged.key order by staged.key limit ?
"""
DELETE_STAGED_UPTO = "delete from staged where key <= ?"


# A newer change replaces a unit's content and resets its attempts. A claimed unit stays claimed until its batch
# ends.
UPDATE_DESIRED = """
update unit set version = ?, desired = ?, rows = ?, phase = ?, attempts = 0, outages = 0, due_at = null,
    message = null, died_at = null, since = iif(state = 'dead', ?, since),
    state = iif(state = 'claimed', 'claimed', 'pending')
where id = ?
"""
DELETE_UNIT = "delete from unit where id = ?"


REQUEUE_UNITS = """
update unit set state = 'pending', attempts = 0, outages = 0, due_at = null, message = null, died_at = null
where state in ('waiting', 'dead') and {}
"""
# A delete must be sent until the API accepts it: waiting and dead deletes are retried before newer rows are
# sent.
REQUEUE_DELETES = REQUEUE_UNITS.format("phase = 0")


# Deletes whose rows are replaced by inserts only show push the old rows.
MARK_CONTEXT_DELETES = """
update unit set is_context = 1 where phase = 0 and version > :watermark and belongs_to in (
    select belongs_to from unit where phase = 1 and version > :watermark
)
"""


# A new version of a key is sent together with the older versions that are still in the queue.
REQUEUE_OLDER_VERSIONS = REQUEUE_UNITS.format("belongs_to in (select belongs_to from unit where version > :watermark)")


class CoalescedChange(NamedTuple):
    """The change of one key over several versions. `acknowledged` and `desired` are row sets as text."""

    key: str
    version: int  # the version of its newest change
    acknowledged: str
    desired: str
    belongs_to: str


@raise_gc_threshold()
def enqueue_segment(
    queue: Queue, segment: FeedSegment, *, now: float, is_held: Callable[[CoalescedChange], bool] | None = None
) -> int:
    """Make a segment's changes visible and move the watermark to its end; return the number of changed keys.

    A second call with the same versions changes nothing. `is_held` tells whether the API already has a key in some
    form; the rows of such a key are sent as updates.
    """
    if segment.last_version <= queue.watermark:
        return 0
    _delete_leftovers(queue)
    keys = 0
    for chunk in split_into_chunks(coalesce_segment(queue, segment), CHUNK_KEYS):
        with queue.store.write_transaction():
            _stage_chunk(queue, chunk, now, is_held)
        keys += len(chunk)
    with queue.store.write_transaction():
        _apply_staged(queue, now)
        if keys:
            _requeue_older_versions(queue)
        queue.write_meta("watermark", segment.last_version)
    return keys


def _requeue_older_versions(queue: Queue) -> None:
    """Requeue the units of older versions that must be sent before the new rows or together with these."""
    if queue.replaces_rows:
        queue.store.execute(REQUEUE_DELETES)
        queue.store.execute(MARK_CONTEXT_DELETES, {"watermark": queue.watermark})
    elif queue.unit_kind is UnitKind.VERSION:
        queue.store.execute(REQUEUE_OLDER_VERSIONS, {"watermark": queue.watermark})


def _delete_leftovers(queue: Queue) -> None:
    with queue.store.write_transaction():
        queue.store.execute(DELETE_STAGED)
        for unit, digest, *values in queue.store.iterate_rows(READ_INVISIBLE_UNITS, {"watermark": queue.watermark}):
            check_unit_digest(queue.store, unit, values, digest)  # a damaged version may hide a unit
        queue.store.execute(DELETE_INVISIBLE_UNITS, {"watermark": queue.watermark})


def coalesce_segment(queue: Queue, segment: FeedSegment) -> Iterator[CoalescedChange]:
    """Yield one change for each key of a segment, in which the key's changes are coalesced."""
    pages = iter(segment.pages)
    for first_page in pages:  # all pages of a segment have the layout of its first page
        other_changes = (change for page in pages for change in page.changes)
        yield from coalesce_changes(
            itertools.chain(first_page.changes, other_changes), queue.store_layout(first_page.layout)
        )


def split_into_chunks(keys: Iterator[CoalescedChange], size: int) -> Iterator[list[CoalescedChange]]:
    while chunk := list(itertools.islice(keys, size)):
        yield chunk


def _stage_chunk(
    queue: Queue, chunk: list[CoalescedChange], now: float, is_held: Callable[[CoalescedChange], bool] | None
) -> None:
    known_keys = keys_with_units(queue, [change.key for change in chunk])
    new_changes = (change for change in chunk if change.key not in known_keys)
    add_units(queue, _build_units(queue, new_changes, now, is_held))
    staged_rows = [
        (change.key, change.version, change.desired, row_digest(change.key, change.version, change.desired))
        for change in chunk
        if change.key in known_keys
    ]
    if staged_rows:
        queue.store.execute_many(STAGE_KEY, staged_rows)


def add_units(queue: Queue, units: Iterable[NewUnit]) -> None:
    """Put new units into the queue, in the caller's transaction."""
    queue.store.execute_many(ADD_UNIT, _with_digests(units))


def _with_digests(units: Iterable[NewUnit]) -> Iterator[tuple[SqlValue, ...]]:
    for unit in units:
        key, belongs_to, version, acknowledged, maybe_sent, desired, rows, phase, _ = unit
        yield *unit, unit_digest((key, belongs_to, 0, version, acknowledged, maybe_sent, desired, rows, phase, 0))


def keys_with_units(queue: Queue, keys: Collection[str]) -> set[str]:
    """Return those of these keys that have a unit in the queue."""
    if not queue.store.fetch_rows(ANY_UNIT):
        return set()
    keys_json = orjson.dumps(list(keys)).decode()
    return {str(key) for (key,) in queue.store.fetch_rows(KEYS_WITH_UNITS, (keys_json,))}


def _build_units(
    queue: Queue, changes: Iterable[CoalescedChange], now: float, is_held: Callable[[CoalescedChange], bool] | None
) -> Iterator[NewUnit]:
    is_mirror, is_row = queue.unit_kind is UnitKind.MIRROR, queue.unit_kind in ONE_ROW_KINDS
    for change in changes:
        key, version, acknowledged, desired, belongs_to = change
        if is_held and is_held(change):
            yield build_maybe_sent_unit(queue, change, now)
            continue
        if is_mirror:
            acknowledged = ""  # a mirror is sent whole, whatever the API has
        elif not (acknowledged or desired):
            continue
        rows = 1 if is_row and not acknowledged else count_stored_rows_to_send(queue, acknowledged, None, desired)
        if rows:
            yield key, belongs_to, version, acknowledged, None, desired, rows, send_phase(queue, desired), now


def build_maybe_sent_unit(queue: Queue, change: CoalescedChange, now: float) -> NewUnit:
    """Return a unit that sends a key's rows again as a whole, because the API may have them in an unknown form.

    A kind that replaces rows has no updates: there the row is deleted and inserted.
    """
    key, version, _, desired, belongs_to = change
    acknowledged = "" if queue.unit_kind is UnitKind.MIRROR else desired
    maybe_sent = "" if queue.replaces_rows else acknowledged
    rows = count_stored_rows_to_send(queue, acknowledged, maybe_sent, desired)
    return key, belongs_to, version, acknowledged, maybe_sent, desired, rows, send_phase(queue, desired), now


def count_stored_rows_to_send(queue: Queue, acknowledged: str, maybe_sent: str | None, desired: str) -> int:
    """Return how many rows of a batch are needed to give the API a key's desired rows; 0 if nothing must be sent.

    The arguments are row sets in the form in which the queue stores them.
    """
    return KeyState.load(acknowledged, desired, maybe_sent).count_rows(queue.unit_kind, queue.layouts)


def send_phase(queue: Queue, desired: str) -> int:
    """Return the phase of rows: 1 if they must wait until the rows that they replace are deleted, else 0."""
    return 1 if queue.replaces_rows and desired else 0


def _apply_staged(queue: Queue, now: float) -> None:
    while staged_rows := queue.store.fetch_rows(READ_STAGED, (CHUNK_KEYS,)):
        for key, version, desired, staged_digest, unit, state, digest, *values in staged_rows:
            check_row_digest(queue.store, "staged", key, (key, version, desired), staged_digest)
            check_unit_digest(queue.store, unit, values, digest)
            _, _, _, _, acknowledged, maybe_sent, *_ = values
            rows = count_stored_rows_to_send(queue, acknowledged, maybe_sent, desired)
            if rows == 0 and state != "claimed":
                queue.store.execute(DELETE_UNIT, (unit,))
            else:
                queue.store.execute(
                    UPDATE_DESIRED, (version, desired, rows, send_phase(queue, str(desired)), now, unit)
                )
        queue.store.execute(DELETE_STAGED_UPTO, (staged_rows[-1][0],))


_REMOVING_CHANGE_TYPES = frozenset({ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE})


def coalesce_changes(changes: Iterable[RowChange], layout: int) -> Iterator[CoalescedChange]:
    """Yield one CoalescedChange for each key, in order. The changes of one key must be adjacent, oldest first."""
    for key, group in itertools.groupby(changes, attrgetter("key")):
        rows = list(group)
        if len(rows) == 1:  # nearly all rows of a first sync, so worth a fast path
            yield _coalesce_one(rows[0], layout)
        else:
            yield _coalesce_many(key, rows, layout)


def _coalesce_one(change: RowChange, layout: int) -> CoalescedChange:
    image = f"{change.rowid} {layout} {change.payload}"
    if change.change_type in _REMOVING_CHANGE_TYPES:
        return CoalescedChange(change.key, change.version, image, "", change.belongs_to)
    return CoalescedChange(change.key, change.version, "", image, change.belongs_to)


def _coalesce_many(key: str, rows: list[RowChange], layout: int) -> CoalescedChange:
    first_changes: dict[int, RowChange] = {}
    last_changes: dict[int, RowChange] = {}
    for change in rows:
        first_changes.setdefault(change.rowid, change)
        last_changes[change.rowid] = change
    acknowledged = [change for change in first_changes.values() if change.change_type in _REMOVING_CHANGE_TYPES]
    desired = [change for change in last_changes.values() if change.change_type not in _REMOVING_CHANGE_TYPES]
    return CoalescedChange(
        key,
        max(change.version for change in rows),
        _dump_rows(acknowledged, layout),
        _dump_rows(desired, layout),
        rows[0].belongs_to,
    )


def _dump_rows(changes: list[RowChange], layout: int) -> str:
    return "\n".join([f"{change.rowid} {layout} {change.payload}" for change in changes])


# dead letters are retried too; claimed units are sent first in any case
REQUEUE_KEYS = REQUEUE_UNITS.format("key in (select value from json_each(?))")
REQUEUE_ALL_DELETES = REQUEUE_UNITS.format("desired = ''")


def enqueue_all_rows(queue: Queue, segment: FeedSegment, *, now: float, only_adds: bool) -> int:
    """Enqueue every row of a snapshot once more; return the number of keys.

    If a key already has a unit, this unit is requeued. All other rows are sent as updates, or with `only_adds` as
    inserts. A crash may leave some of the rows enqueued, which does no harm.
    """
    build_unit = _build_insert if only_adds else build_maybe_sent_unit
    return _add_units(queue, segment, lambda change: build_unit(queue, change, now), renews=True)


def enqueue_deletes(queue: Queue, segment: FeedSegment, *, now: float) -> int:
    """Enqueue a segment's deletes for keys without a unit, and requeue the deletes that wait or are dead letters.

    Return the number of all these deletes.
    """
    added_units = _add_units(queue, segment, lambda change: _build_delete(queue, change, now), renews=False)
    with queue.store.write_transaction():
        requeued_units = queue.store.execute(REQUEUE_ALL_DELETES)
    return added_units + requeued_units


def _add_units(
    queue: Queue, segment: FeedSegment, build_unit: Callable[[CoalescedChange], NewUnit], *, renews: bool
) -> int:
    keys = 0
    for chunk in split_into_chunks(coalesce_segment(queue, segment), CHUNK_KEYS):
        with queue.store.write_transaction():
            known_keys = keys_with_units(queue, [change.key for change in chunk])
            new_units = [build_unit(change) for change in chunk if change.key not in known_keys]
            add_units(queue, new_units)
            if renews:
                queue.store.execute(REQUEUE_KEYS, (orjson.dumps(sorted(known_keys)).decode(),))
            keys += len(chunk) if renews else len(new_units)
    return keys


def _build_insert(queue: Queue, change: CoalescedChange, now: float) -> NewUnit:
    return (
        change.key,
        change.belongs_to,
        change.version,
        "",
        None,
        change.desired,
        1,
        send_phase(queue, change.desired),
        now,
    )


def _build_delete(queue: Queue, change: CoalescedChange, now: float) -> NewUnit:
    rows = count_stored_rows_to_send(queue, change.acknowledged, None, "")
    return (
        change.key,
        change.belongs_to,
        change.version,
        change.acknowledged,
        None,
        "",
        rows,
        send_phase(queue, ""),
        now,
    )


DELETE_UNITS_AND_WATERMARK = (
    "delete from unit",
    "delete from staged",
    "delete from batch",
    # without table_id and watermark the queue is empty: after a crash, a resync starts from the beginning
    "delete from meta where name in ('table_id', 'watermark', 'removals_upto', 'size')",
)
