"""Dead letters: rows that won't be sent again by themselves, and the way back for them."""

import dataclasses
import json
from array import array
from collections.abc import Iterator
from datetime import UTC, datetime

from ondatra_dagster.changes import ChangeType, Json, Layout
from ondatra_dagster.delivery.queue.digests import UNIT_COLUMNS, check_unit
from ondatra_dagster.delivery.queue.tables import IDENTIFIER, Queue, read_layouts
from ondatra_dagster.delivery.target import SentRow, Shape, Standing, to_send, weight_of
from ondatra_dagster.store.database import Row, Store

DEAD = """
select id from unit
where state = 'dead' and died_at >= :since order by died_at, id limit :limit offset :offset
"""
LETTERS = f"""
select id, {IDENTIFIER}, attempts, refused_at, message, died_at, digest, {", ".join(UNIT_COLUMNS)}
from unit not indexed
where state = 'dead' and id in (select value from json_each(:ids)) order by died_at, id
"""
READ_AT_ONCE = 500  # letters: between two reads other processes may write
REVIVE = """
update unit set state = 'pending', attempts = 0, outages = 0, key_renewals = key_renewals + 1,
    message = null, died_at = null, rows = ?, since = ?
where id = ?
"""
DROP = "delete from unit where id = ?"
HASTEN = "update unit set state = 'pending', due_at = null where state = 'waiting'"
ALL = -1  # SQLite's word for no limit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One key that the API refused, or that was tried often enough."""

    unit: int
    key: str
    version: int
    attempts: int  # the last among them; of one that was refused at least so many, where nobody knows
    was_refused: bool  # or else it was tried often enough
    error: str
    died_at: datetime
    sends: tuple[tuple[ChangeType, dict[str, Json]], ...]  # what a replay would send now, or the first of it
    rows: int  # that it would send
    change_type: ChangeType | None  # of the last of these
    weight: int  # rows of a batch that it takes; 0: it is as it should be


def dead_letters(
    store: Store,
    shape: Shape,
    *,
    limit: int | None = None,
    since: datetime | None = None,
    offset: int = 0,
    most_rows: int | None = None,
) -> Iterator[DeadLetter]:
    """Yield the dead letters, the oldest first, some at a time; a read-only store will do.

    Each has at most `most_rows` of its rows: a whole table may be one letter. What is retried meanwhile is
    left out.
    """
    wanted = {
        "since": since.timestamp() if since else 0.0,
        "limit": ALL if limit is None else limit,
        "offset": offset,
    }
    found = array("q", (unit for (unit,) in store.each(DEAD, wanted)))
    for start in range(0, len(found), READ_AT_ONCE):
        ids = json.dumps(found[start : start + READ_AT_ONCE].tolist())
        rows = store.rows(LETTERS, {"ids": ids})
        layouts = read_layouts(store)
        yield from (_letter(store, row, shape, layouts, most_rows) for row in rows)


def _letter(
    store: Store, row: Row, shape: Shape, layouts: dict[int, Layout], most_rows: int | None
) -> DeadLetter:
    unit, key, attempts, refused_at, message, died_at, digest, *values = row
    check_unit(store, unit, values, digest)
    _, _, _, version, base, tried, target, *_ = values  # the UNIT_COLUMNS
    sent = to_send(Standing.load(base, target, tried), shape, layouts)
    return DeadLetter(
        unit=int(unit),
        key=str(key),
        version=int(version),
        attempts=int(attempts or refused_at or 1),
        was_refused=not attempts,
        error=str(message or ""),
        died_at=datetime.fromtimestamp(float(died_at), UTC),
        sends=tuple(_named(each, layouts) for each in sent[:most_rows]),
        rows=len(sent),
        change_type=sent[-1].change_type if sent else None,
        weight=weight_of(sent, shape),
    )


def _named(sent: SentRow, layouts: dict[int, Layout]) -> tuple[ChangeType, dict[str, Json]]:
    change_type, row = sent
    return change_type, layouts[row.layout].row(row.payload)


def replay(queue: Queue, *, now: float, limit: int | None = None, since: datetime | None = None) -> int:
    """Let dead letters go again, from what the API has to what the table has now; how many there were."""
    with queue.store.immediate():
        found = dead_letters(queue.store, queue.shape, limit=limit, since=since, most_rows=0)
        letters = [(letter.unit, letter.weight) for letter in found]
        queue.store.run_many(REVIVE, ((weight, now, unit) for unit, weight in letters if weight))
        queue.store.run_many(DROP, ((unit,) for unit, weight in letters if not weight))
    return len(letters)


def hasten(queue: Queue) -> int:
    """Let the waiting rows go now; how many there were."""
    return queue.store.run(HASTEN)
