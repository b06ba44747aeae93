"""How much of what the API has a queue would take away: what @max_deletes is about.

It is counted net: a key or a group that ends, and the rows by which a table or a partition shrinks. What was
let through once isn't counted a second time, however often its deletes have to be tried.
"""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from ondatra_dagster.changes import Layout
from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED
from ondatra_dagster.delivery.queue.tables import Queue, read_layouts
from ondatra_dagster.delivery.target import Image, ImageRow, load_image
from ondatra_dagster.store.database import Row, Store

LET_THROUGH = "removals_upto"  # in the queue's meta: the version up to which removals may go
KNOWN_SIZE = "size"  # how many keys or rows the table had, and at which version

_META = "select name, value from meta where name in ('watermark', 'removals_upto', 'size')"
_ENDED = "target = '' and state <> 'dead' and version > :after and version <= :watermark"
COUNT_ENDED = f"select count(*) from unit where {_ENDED}"
SOME_ENDED = f"select key from unit where {_ENDED} order by id limit :limit"
CHANGED = """
select base, tried, target from unit
where state <> 'dead' and version > :after and version <= :watermark
"""
# what the API has and the table hasn't, and the other way round
DIFFERENCE = """
select coalesce(sum(iif(target = '', {base}, 0)), 0),
    coalesce(sum(iif(base = '' and tried is null, {target}, 0)), 0)
from unit where version <= :watermark
"""
_LINES = "iif({0} = '', 0, 1 + length({0}) - length(replace({0}, char(10), '')))"
BY_KEY = DIFFERENCE.format(base="iif(base = '', 0, 1)", target="iif(target = '', 0, 1)")
BY_ROW = DIFFERENCE.format(base=_LINES.format("base"), target=_LINES.format("target"))


class Measure(NamedTuple):
    """What is counted for one kind of table."""

    noun: str  # key, group, row
    is_shrinking: bool = False  # new rows stand for old ones: only what isn't replaced is removed
    parts: Sequence[str] = ()  # the columns by which the table shrinks part by part


class Removals(NamedTuple):
    """What would be taken away."""

    noun: str
    removed: int
    of: int | None  # how many the API has, as far as we know; None: nobody has counted
    samples: Sequence[str] = ()  # the first keys
    is_allowed: bool = False  # somebody has let it go


def removals(
    store: Store, measure: Measure, *, size: Callable[[], int | None], samples: int = 20
) -> Removals:
    """What may not go without being looked at; `size` counts the table's keys or rows, if need be."""
    meta: Mapping[str, str] = {name: value for name, value in store.rows(_META) if value is not None}
    span = {
        "after": int(meta.get(LET_THROUGH, NOTHING_ENQUEUED)),
        "watermark": int(meta.get("watermark", NOTHING_ENQUEUED)),
    }
    count = _shrunk(store, measure, span) if measure.is_shrinking else store.rows(COUNT_ENDED, span)[0][0]
    if not count:
        return Removals(measure.noun, 0, None)
    keys = [str(key) for (key,) in store.rows(SOME_ENDED, {**span, "limit": samples})]
    return Removals(measure.noun, int(count), _held(store, measure, span["watermark"], size), keys)


def let_through(queue: Queue) -> None:
    """What is in the queue now may go, at this try and at all that follow."""
    queue.set_meta(LET_THROUGH, queue.watermark)


def known_size(store: Store) -> int | None:
    """What remember_size() kept, if the queue has seen nothing since."""
    meta = {name: str(value) for name, value in store.rows(_META) if value is not None}
    version, _, size = meta.get(KNOWN_SIZE, "").partition(":")
    return int(size) if size and version == meta.get("watermark") else None


def remember_size(queue: Queue, size: int) -> None:
    """How many keys or rows the table has at the watermark: to count them may take a look at all of it."""
    queue.set_meta(KNOWN_SIZE, f"{queue.watermark}:{size}")


def _held(store: Store, measure: Measure, watermark: int, size: Callable[[], int | None]) -> int | None:
    """How many the API has: what the table has, with what is still to go, without what is to come."""
    now = size()
    if now is None:
        return None
    statement = BY_ROW if measure.is_shrinking else BY_KEY
    gone, unsent = store.rows(statement, {"watermark": watermark})[0]
    return max(now + int(gone) - int(unsent), 0)


def _shrunk(store: Store, measure: Measure, span: Mapping[str, int]) -> int:
    """By how many rows the table, or each of its parts, becomes smaller."""
    shrinks: collections.Counter[tuple[object, ...]] = collections.Counter()
    part_of = _part_reader(read_layouts(store), measure.parts)
    for base, target in _images(store.each(CHANGED, span)):
        for rows, sign in ((base, 1), (target, -1)):
            for part, count in collections.Counter(map(part_of, rows)).items():
                shrinks[part] += sign * count
    return sum(rows for rows in shrinks.values() if rows > 0)


def _images(units: Iterator[Row]) -> Iterator[tuple[Image, Image]]:
    for base, tried, target in units:
        yield load_image(str(base or tried or "")), load_image(str(target))


def _part_reader(
    layouts: Mapping[int, Layout], parts: Sequence[str]
) -> Callable[[ImageRow], tuple[object, ...]]:
    """What tells in which part of its table a row is."""
    if not parts:
        return lambda _: ()
    wanted = [part.casefold() for part in parts]
    places = {
        number: [[name.casefold() for name in layout.names].index(part) for part in wanted]
        for number, layout in layouts.items()
        if set(wanted) <= {name.casefold() for name in layout.names}
    }

    def part_of(row: ImageRow) -> tuple[object, ...]:
        values = orjson.loads(row.payload)
        return tuple(str(values[place]) for place in places.get(row.layout, ()))

    return part_of
