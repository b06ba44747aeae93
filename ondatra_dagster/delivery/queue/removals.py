"""How much of what the API has a queue would take away: what @max_deletes is about.

It is counted net: a key or a group that ends, and the rows by which a table or a partition shrinks. What was
let through once isn't counted a second time, however often its deletes have to be tried.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ondatra_dagster.delivery.frontier import NOTHING_ENQUEUED
from ondatra_dagster.delivery.queue.tables import HELD, IDENTIFIER, IMAGE_ROWS, Queue
from ondatra_dagster.store.database import Store

LET_THROUGH = "removals_upto"  # in the queue's meta: the version up to which removals may go
KNOWN_SIZE = "size"  # how many keys or rows the table had, and at which version

META = "select name, value from meta where name in ('watermark', 'removals_upto', 'size')"
CONTENTS = "select key, rows from content"
CONTENT = "select rows from content where key = ?"
KEEP_CONTENT = "insert into content values (?, ?) on conflict (key) do update set rows = excluded.rows"
FORGET_CONTENTS = "delete from content"
_CHANGED = "state <> 'dead' and version > :after and version <= :watermark"
_TARGET_ROWS = IMAGE_ROWS.format("target")
# what is to come takes the place of what goes
ENDED = f"select count(*) from unit where target = '' and {_CHANGED}"
# of a part of the table, or of the whole of it
SHRUNK = f"""
select coalesce(sum(max(fewer, 0)), 0) from (
    select sum({IMAGE_ROWS.format(HELD)} - {_TARGET_ROWS}) as fewer from unit where {_CHANGED}
    group by belongs_to
)
"""
SOME = f"""
select {IDENTIFIER} from unit where {_CHANGED} and target = '' and not is_context order by id limit :limit
"""
CONTENTS_CHANGED = f"select key, {_TARGET_ROWS} from unit where {_CHANGED} order by id"
# what the API has and the table hasn't, and the other way round
DIFFERENCE = """
select coalesce(sum(iif(target = '', {base}, 0)), 0),
    coalesce(sum(iif(base = '' and tried is null, {target}, 0)), 0)
from unit where version <= :watermark
"""
BY_KEY = DIFFERENCE.format(base="iif(base = '', 0, 1)", target="iif(target = '', 0, 1)")
BY_ROW = DIFFERENCE.format(base=IMAGE_ROWS.format("base"), target=_TARGET_ROWS)


class Measure(NamedTuple):
    """What is counted for one kind of table."""

    noun: str  # key, group, row
    is_shrinking: bool = False  # new rows stand for old ones: only what isn't replaced is removed
    is_mirror: bool = False  # and nothing is kept of what the API has


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
    meta = _meta(store)
    span = {
        "after": int(meta.get(LET_THROUGH, NOTHING_ENQUEUED)),
        "watermark": int(meta.get("watermark", NOTHING_ENQUEUED)),
    }
    if measure.is_mirror:
        return _of_mirrors(store, measure, span, contents_of(store), samples)
    removed = int(store.rows(SHRUNK if measure.is_shrinking else ENDED, span)[0][0])
    if not removed:
        return Removals(measure.noun, 0, None)
    keys = [str(key) for (key,) in store.rows(SOME, {**span, "limit": samples})]
    return Removals(measure.noun, removed, _held(store, measure, span["watermark"], size), keys)


def let_through(queue: Queue) -> None:
    """What is in the queue now may go, at this try and at all that follow."""
    queue.set_meta(LET_THROUGH, queue.watermark)


def remember_contents(queue: Queue, contents: Iterable[tuple[str, int]]) -> None:
    """The API has so many rows of each of these mirrors: the next change is compared with that."""
    queue.store.run_many(KEEP_CONTENT, contents)


def forget_contents(queue: Queue) -> None:
    """Nobody knows any more how much the API has of any mirror."""
    queue.store.run(FORGET_CONTENTS)


def contents_of(store: Store) -> dict[str, int]:
    """Return what remember_contents() kept."""
    return {str(key): int(rows) for key, rows in store.rows(CONTENTS)}


def content_of(store: Store, key: str) -> int:
    """How many rows the API has of one mirror, as far as remember_contents() knows."""
    found = store.rows(CONTENT, (key,))
    return int(found[0][0]) if found else 0


def known_size(store: Store) -> int | None:
    """What remember_size() kept, if the queue has seen nothing since."""
    meta = _meta(store)
    version, _, size = meta.get(KNOWN_SIZE, "").partition(":")
    return int(size) if size and version == meta.get("watermark") else None


def remember_size(queue: Queue, size: int) -> None:
    """How many keys or rows the table has at the watermark: to count them may take a look at all of it."""
    queue.set_meta(KNOWN_SIZE, f"{queue.watermark}:{size}")


def _meta(store: Store) -> Mapping[str, str]:
    return {str(name): str(value) for name, value in store.rows(META) if value is not None}


def _of_mirrors(
    store: Store, measure: Measure, span: Mapping[str, int], contents: Mapping[str, int], samples: int
) -> Removals:
    fewer = {
        str(key): contents.get(str(key), 0) - int(rows) for key, rows in store.rows(CONTENTS_CHANGED, span)
    }
    shrunk = {key: rows for key, rows in fewer.items() if rows > 0}
    return Removals(measure.noun, sum(shrunk.values()), sum(contents.values()), list(shrunk)[:samples])


def _held(store: Store, measure: Measure, watermark: int, size: Callable[[], int | None]) -> int | None:
    """How many the API has: what the table has, with what is still to go, without what is to come."""
    now = size()
    if now is None:
        return None
    statement = BY_ROW if measure.is_shrinking else BY_KEY
    gone, unsent = store.rows(statement, {"watermark": watermark})[0]
    return max(now + int(gone) - int(unsent), 0)
