"""From the change feed into the queue: rows become visible and the watermark moves in one transaction.

The rows come in before that, in small transactions, under a version above the watermark, which nobody claims.
So a million rows don't stand in one transaction, and a crash in between leaves nothing that counts.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeAlias

import orjson

from ondatra_dagster.changes import Segment
from ondatra_dagster.delivery.queue.digests import (
    UNIT_COLUMNS,
    check_row,
    check_unit,
    row_digest,
    unit_digest,
)
from ondatra_dagster.delivery.queue.fold import Folded, fold
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.rare_collections import rare_collections
from ondatra_dagster.delivery.target import Shape, Standing, weight
from ondatra_dagster.store.database import Value

CHUNK_KEYS = 5_000
ONE_ROW = frozenset({Shape.ROW, Shape.VERSION})
# key, belongs_to, version, base, tried, target, rows, phase, since
NewUnit: TypeAlias = tuple[str, str, int, str, str | None, str, int, int, float]

# what a crash in the middle of an enqueue left behind
FORGET_STAGED = "delete from staged"
FORGET_UNSEEN = "delete from unit where version > :watermark and state = 'pending'"
UNSEEN = (
    f"select id, digest, {', '.join(UNIT_COLUMNS)} from unit where version > :watermark and state = 'pending'"
)
KNOWN_KEYS = "select key from unit where key in (select value from json_each(?))"
ANY_UNIT = "select 1 from unit limit 1"
ADD_UNIT = """
insert into unit (key, belongs_to, version, base, tried, target, rows, phase, state, since, digest)
values (?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?)
"""
STAGE = """
insert into staged values (?, ?, ?, ?)
on conflict (key) do update
set version = excluded.version, target = excluded.target, digest = excluded.digest
"""
STAGED = f"""
select staged.key, staged.version, staged.target, staged.digest, unit.id, unit.state, unit.digest,
    {", ".join(f"unit.{name}" for name in UNIT_COLUMNS)}
from staged join unit on unit.key = staged.key order by staged.key limit ?
"""
UNSTAGE = "delete from staged where key <= ?"
# a newer change takes the key over, whatever was to become of it; a frozen batch is left to end by itself
RETARGET = """
update unit set version = ?, target = ?, rows = ?, phase = ?, attempts = 0, outages = 0, due_at = null,
    message = null, died_at = null, since = iif(state = 'dead', ?, since),
    state = iif(state = 'claimed', 'claimed', 'pending')
where id = ?
"""
DROP = "delete from unit where id = ?"
# A delete stays owed until the API takes it: what waits or died goes once more before newer rows come.
OWE_AGAIN = """
update unit set state = 'pending', attempts = 0, outages = 0, due_at = null, message = null, died_at = null
where phase = 0 and state in ('waiting', 'dead')
"""
# Beside inserts that take their place, deletes only tell push what is no more.
IS_CONTEXT = """
update unit set is_context = 1 where phase = 0 and version > :watermark and belongs_to in (
    select belongs_to from unit where phase = 1 and version > :watermark
)
"""
# A new version of a key takes along what is left of those before it.
GO_ALONG = """
update unit set state = 'pending', attempts = 0, outages = 0, due_at = null, message = null, died_at = null
where state in ('waiting', 'dead')
    and belongs_to in (select belongs_to from unit where version > :watermark)
"""


@rare_collections()
def enqueue(
    queue: Queue, segment: Segment, *, now: float, is_held: Callable[[Folded], bool] | None = None
) -> int:
    """Make a segment's changes visible and move the watermark to its end; the number of keys it touched.

    Enqueueing the same versions again changes nothing. What `is_held` says so of is with the API already, in
    some form: its rows go out as updates.
    """
    if segment.upto <= queue.watermark:
        return 0
    _forget_leftovers(queue)
    keys = 0
    for chunk in chunks(folded(queue, segment), CHUNK_KEYS):
        with queue.store.immediate():
            _stage(queue, chunk, now, is_held)
        keys += len(chunk)
    with queue.store.immediate():
        _apply_staged(queue, now)
        if keys:
            _gather(queue)
        queue.set_meta("watermark", segment.upto)
    return keys


def _gather(queue: Queue) -> None:
    """What older versions left goes along with the new rows where their order asks for it."""
    if queue.replaces_rows:
        queue.store.run(OWE_AGAIN)
        queue.store.run(IS_CONTEXT, {"watermark": queue.watermark})
    elif queue.shape is Shape.VERSION:
        queue.store.run(GO_ALONG, {"watermark": queue.watermark})


def _forget_leftovers(queue: Queue) -> None:
    with queue.store.immediate():
        queue.store.run(FORGET_STAGED)
        for unit, digest, *values in queue.store.each(UNSEEN, {"watermark": queue.watermark}):
            check_unit(queue.store, unit, values, digest)  # a damaged version may hide a unit
        queue.store.run(FORGET_UNSEEN, {"watermark": queue.watermark})


def folded(queue: Queue, segment: Segment) -> Iterator[Folded]:
    """Each key of a segment, with what became of it."""
    pages = iter(segment.pages)
    for first in pages:  # a segment has one layout, which its first page tells
        rest = (change for page in pages for change in page.changes)
        yield from fold(itertools.chain(first.changes, rest), queue.layout_id(first.layout))


def chunks(keys: Iterator[Folded], size: int) -> Iterator[list[Folded]]:
    while chunk := list(itertools.islice(keys, size)):
        yield chunk


def _stage(queue: Queue, chunk: list[Folded], now: float, is_held: Callable[[Folded], bool] | None) -> None:
    known = known_keys(queue, [each.key for each in chunk])
    new = (each for each in chunk if each.key not in known)
    add_units(queue, _new_units(queue, new, now, is_held))
    again = [
        (each.key, each.version, each.target, row_digest(each.key, each.version, each.target))
        for each in chunk
        if each.key in known
    ]
    if again:
        queue.store.run_many(STAGE, again)


def add_units(queue: Queue, units: Iterable[NewUnit]) -> None:
    """Put new units into the queue; the caller has the transaction."""
    queue.store.run_many(ADD_UNIT, _with_digests(units))


def _with_digests(units: Iterable[NewUnit]) -> Iterator[tuple[Value, ...]]:
    for unit in units:
        key, belongs_to, version, base, tried, target, rows, place, _ = unit
        yield *unit, unit_digest((key, belongs_to, 0, version, base, tried, target, rows, place, 0))


def known_keys(queue: Queue, keys: Collection[str]) -> set[str]:
    """Those that have a unit."""
    if not queue.store.rows(ANY_UNIT):
        return set()
    wanted = orjson.dumps(list(keys)).decode()
    return {str(key) for (key,) in queue.store.rows(KNOWN_KEYS, (wanted,))}


def _new_units(
    queue: Queue, folded: Iterable[Folded], now: float, is_held: Callable[[Folded], bool] | None
) -> Iterator[NewUnit]:
    is_mirror, is_row = queue.shape is Shape.MIRROR, queue.shape in ONE_ROW
    for each in folded:
        key, version, base, target, belongs_to = each
        if is_held and is_held(each):
            yield held_unit(queue, each, now)
            continue
        if is_mirror:
            base = ""  # what the API has of it doesn't matter
        elif not (base or target):
            continue
        rows = 1 if is_row and not base else weight_of(queue, base, None, target)
        if rows:
            yield key, belongs_to, version, base, None, target, rows, phase(queue, target), now


def held_unit(queue: Queue, each: Folded, now: float) -> NewUnit:
    """A row that the API has in some form: which, nobody knows, so it goes out again whole.

    A kind that replaces rows has no updates: there it is deleted and inserted.
    """
    key, version, _, target, belongs_to = each
    base = "" if queue.shape is Shape.MIRROR else target
    tried = "" if queue.replaces_rows else base
    rows = weight_of(queue, base, tried, target)
    return key, belongs_to, version, base, tried, target, rows, phase(queue, target), now


def weight_of(queue: Queue, base: str, tried: str | None, target: str) -> int:
    """How many rows of a batch these images come to; 0: nothing has to go out."""
    return weight(Standing.load(base, target, tried), queue.shape, queue.layouts)


def phase(queue: Queue, target: str) -> int:
    """1 for what must wait until the rows that it stands for are gone."""
    return 1 if queue.replaces_rows and target else 0


def _apply_staged(queue: Queue, now: float) -> None:
    while staged := queue.store.rows(STAGED, (CHUNK_KEYS,)):
        for key, version, target, staged_digest, unit, state, digest, *values in staged:
            check_row(queue.store, "staged", key, (key, version, target), staged_digest)
            check_unit(queue.store, unit, values, digest)
            _, _, _, _, base, tried, *_ = values
            rows = weight_of(queue, base, tried, target)
            if rows == 0 and state != "claimed":
                queue.store.run(DROP, (unit,))
            else:
                queue.store.run(RETARGET, (version, target, rows, phase(queue, str(target)), now, unit))
        queue.store.run(UNSTAGE, (staged[-1][0],))
