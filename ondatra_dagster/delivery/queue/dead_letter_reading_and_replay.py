"""The dead letters of a queue: units that are not sent again unless they are replayed."""

import dataclasses
import json
from array import array
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.delivery.acknowledged_to_desired_diff import (
    KeyState,
    UnitKind,
    count_batch_rows,
    find_rows_to_send,
)
from ondatra_dagster.delivery.queue.damage_checksums import UNIT_COLUMNS, check_unit_digest
from ondatra_dagster.delivery.queue.queue_database import UNIT_IDENTIFIER, Queue, read_layouts
from ondatra_dagster.delivery.queue.queue_status import MIRROR_WEIGHT, ROW_UNIT_WEIGHT
from ondatra_dagster.row_changes import ChangeType, Json, Layout
from ondatra_dagster.storage.sqlite_database import SqliteStore, SqlRow

READ_DEAD_UNIT_IDS = """
select id from unit
where state = 'dead' and died_at >= :since order by died_at, id limit :limit offset :offset
"""
READ_DEAD_UNITS = f"""
select id, {UNIT_IDENTIFIER}, attempts, refused_at, message, died_at, digest, {", ".join(UNIT_COLUMNS)}
from unit not indexed
where state = 'dead' and id in (select value from json_each(:ids)) order by died_at, id
"""
CHUNK_DEAD_LETTERS = 500  # other processes may write between two chunks
REQUEUE_DEAD_UNIT = """
update unit set state = 'pending', attempts = 0, outages = 0, key_renewals = key_renewals + 1,
    message = null, died_at = null, rows = ?, since = ?
where id = ?
"""
DELETE_UNIT = "delete from unit where id = ?"
REQUEUE_WAITING_UNITS = "update unit set state = 'pending', due_at = null where state = 'waiting'"
NO_LIMIT = -1  # SQLite's value for no limit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter: a unit that the API refused, or that failed too often."""

    unit_id: int
    key: str
    version: int
    attempts: int  # including the last one; 1 for a refused unit whose attempts are unknown
    is_rejected: bool  # False: it failed too often
    error: str
    died_at: datetime
    rows_to_send: tuple[tuple[ChangeType, dict[str, Json]], ...]  # what a replay would send now, or its first rows
    row_count: int  # how many rows a replay would send
    change_type: ChangeType | None  # of the last of these rows
    weight: int  # how many rows of a batch it takes; 0 if nothing must be sent


def read_dead_letters(
    store: SqliteStore,
    shape: UnitKind,
    *,
    limit: int | None = None,
    since: datetime | None = None,
    offset: int = 0,
    most_rows: int | None = None,
) -> Iterator[DeadLetter]:
    """Yield the dead letters, the oldest first, in chunks; the store may be read-only.

    Each has at most `most_rows` of its rows, because a whole table may be one dead letter. Dead letters that are
    requeued meanwhile are left out.
    """
    parameters = {
        "since": since.timestamp() if since else 0.0,
        "limit": NO_LIMIT if limit is None else limit,
        "offset": offset,
    }
    unit_ids = array("q", (unit for (unit,) in store.iterate_rows(READ_DEAD_UNIT_IDS, parameters)))
    for start in range(0, len(unit_ids), CHUNK_DEAD_LETTERS):
        ids = json.dumps(unit_ids[start : start + CHUNK_DEAD_LETTERS].tolist())
        rows = store.fetch_rows(READ_DEAD_UNITS, {"ids": ids})
        layouts = read_layouts(store)
        yield from (_build_dead_letter(store, row, shape, layouts, most_rows) for row in rows)


def _build_dead_letter(
    store: SqliteStore, row: SqlRow, shape: UnitKind, layouts: dict[int, Layout], most_rows: int | None
) -> DeadLetter:
    unit, key, attempts, refused_at, message, died_at, digest, *values = row
    check_unit_digest(store, unit, values, digest)
    _, _, _, version, acknowledged, maybe_sent, desired, *_ = values  # the UNIT_COLUMNS
    sent_rows = find_rows_to_send(KeyState.load(acknowledged, desired, maybe_sent), shape, layouts)
    return DeadLetter(
        unit_id=int(unit),
        key=str(key),
        version=int(version),
        attempts=int(attempts or refused_at or 1),
        is_rejected=not attempts,
        error=str(message or ""),
        died_at=datetime.fromtimestamp(float(died_at), UTC),
        rows_to_send=tuple(
            (change_type, layouts[row.layout_id].parse_row(row.payload)) for change_type, row in sent_rows[:most_rows]
        ),
        row_count=len(sent_rows),
        change_type=sent_rows[-1].change_type if sent_rows else None,
        weight=count_batch_rows(sent_rows, shape),
    )


def replay_dead_letters(queue: Queue, *, now: float, limit: int | None = None, since: datetime | None = None) -> int:
    """Requeue dead letters, so that the next run sends the difference between the API's and the table's present rows.

    Return how many dead letters there were.
    """
    with queue.store.write_transaction():
        dead_letters = read_dead_letters(queue.store, queue.unit_kind, limit=limit, since=since, most_rows=0)
        unit_weights = [(dead_letter.unit_id, dead_letter.weight) for dead_letter in dead_letters]
        queue.store.execute_many(REQUEUE_DEAD_UNIT, ((weight, now, unit) for unit, weight in unit_weights if weight))
        queue.store.execute_many(DELETE_UNIT, ((unit,) for unit, weight in unit_weights if not weight))
    return len(unit_weights)


def retry_waiting_now(queue: Queue) -> int:
    """Make the waiting units pending now, without their retry delay; return how many there were."""
    return queue.store.execute(REQUEUE_WAITING_UNITS)


SHOWN_KEYS = 3
WHOLE_TABLE = "the whole table"  # which has no key
GROUP_DEAD_UNITS = """
with letter as (
    select {key} as key, coalesce(message, '') as reason, {weight} as units, died_at, id
    from unit where state = 'dead'
), told as (
    select key, reason, sum(units) over (partition by reason) as units,
        row_number() over (partition by reason order by died_at, id) as place
    from letter
)
select reason, units, key from told where place <= :keys order by units desc, reason, place limit :limit
"""


class FailureReason(NamedTuple):
    """A failure message, with the number of its units and their first keys (one more than is shown)."""

    message: str
    unit_count: int
    keys: tuple[str, ...]

    def describe_units(self, noun: str) -> str:
        """Return the units as text, such as `b2` or `4 rows (a1, b2, c3 and others)`."""
        return self.key_list if self.unit_count == 1 else f"{format_count(self.unit_count, noun)} ({self.key_list})"

    @property
    def key_list(self) -> str:
        """Return the first keys as text, such as `a1, b2, c3 and others`."""
        suffix = " and others" if len(self.keys) > SHOWN_KEYS else ""
        return ", ".join(key or WHOLE_TABLE for key in self.keys[:SHOWN_KEYS]) + suffix


def read_dead_letter_reasons(store: SqliteStore, shape: UnitKind, *, limit: int) -> tuple[FailureReason, ...]:
    """Return the messages of the dead letters with their units, the most frequent message first."""
    keys_per_reason = SHOWN_KEYS + 1
    weight = MIRROR_WEIGHT if shape is UnitKind.MIRROR else ROW_UNIT_WEIGHT
    statement = GROUP_DEAD_UNITS.format(key=UNIT_IDENTIFIER, weight=weight)
    keys: dict[tuple[str, int], list[str]] = {}
    for reason, units, key in store.fetch_rows(statement, {"keys": keys_per_reason, "limit": limit * keys_per_reason}):
        keys.setdefault((str(reason), int(units)), []).append(str(key))
    return tuple(
        FailureReason(*reason_and_units, tuple(unit_keys)) for reason_and_units, unit_keys in list(keys.items())[:limit]
    )
