"""The number of units that a queue would remove from the destination, which @max_deletes limits.

The count is net: keys or groups that end, and the rows by which a table or a partition shrinks. Deletes that
were allowed once aren't counted again, however often they are retried.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ondatra_dagster.delivery.queue.queue_database import (
    NOTHING_ENQUEUED,
    ROW_COUNT,
    ROWS_ON_API,
    UNIT_IDENTIFIER,
    Queue,
)
from ondatra_dagster.storage.sqlite_database import SqliteStore

REMOVALS_ALLOWED_UPTO = "removals_upto"  # in the queue's meta: the version up to which removals are allowed
TABLE_SIZE = "size"  # how many keys or rows the table had, and at which version

READ_REMOVAL_META = "select name, value from meta where name in ('watermark', 'removals_upto', 'size')"
READ_CONTENT_SIZES = "select key, rows from content"
READ_CONTENT_SIZE = "select rows from content where key = ?"
WRITE_CONTENT_SIZE = "insert into content values (?, ?) on conflict (key) do update set rows = excluded.rows"
DELETE_CONTENT_SIZES = "delete from content"
_IS_CHANGED = "state <> 'dead' and version > :after and version <= :watermark"
_DESIRED_ROWS = ROW_COUNT.format("desired")
# a key with desired rows is replaced, not removed
COUNT_DELETED_KEYS = f"select count(*) from unit where desired = '' and {_IS_CHANGED}"
# the rows by which each partition, or the whole table, shrinks
COUNT_SHRUNK_ROWS = f"""
select coalesce(sum(max(fewer, 0)), 0) from (
    select sum({ROW_COUNT.format(ROWS_ON_API)} - {_DESIRED_ROWS}) as fewer from unit where {_IS_CHANGED}
    group by belongs_to
)
"""
READ_SAMPLE_KEYS = f"""
select {UNIT_IDENTIFIER} from unit where {_IS_CHANGED} and desired = '' and not is_context order by id limit :limit
"""
READ_CHANGED_CONTENTS = f"select key, {_DESIRED_ROWS} from unit where {_IS_CHANGED} order by id"
# how many keys or rows only the API has, and how many only the table has
DIFFERENCE = """
select coalesce(sum(iif(desired = '', {acknowledged}, 0)), 0),
    coalesce(sum(iif(acknowledged = '' and maybe_sent is null, {desired}, 0)), 0)
from unit where version <= :watermark
"""
KEY_DIFFERENCE = DIFFERENCE.format(acknowledged="iif(acknowledged = '', 0, 1)", desired="iif(desired = '', 0, 1)")
ROW_DIFFERENCE = DIFFERENCE.format(acknowledged=ROW_COUNT.format("acknowledged"), desired=_DESIRED_ROWS)


class RemovalUnit(NamedTuple):
    """The unit in which removals are counted for one kind of table."""

    noun: str  # key, group, row
    counts_shrinkage: bool = False  # new rows replace old ones: only rows without a replacement are removed
    is_mirror: bool = False  # the queue stores no rows that the API has


class RemovalCount(NamedTuple):
    """The number of units that would be removed, with some of their keys."""

    noun: str
    removed_count: int
    total_count: int | None  # units that the API has, as far as is known; None if unknown
    sample_keys: Sequence[str] = ()  # the first keys
    is_allowed: bool = False  # the operator has allowed the removals


def count_removals(
    store: SqliteStore, measure: RemovalUnit, *, size: Callable[[], int | None], samples: int = 20
) -> RemovalCount:
    """Count the removals that aren't allowed yet. If needed, call `size` for the number of the table's keys or rows."""
    meta = _read_removal_meta(store)
    parameters = {
        "after": int(meta.get(REMOVALS_ALLOWED_UPTO, NOTHING_ENQUEUED)),
        "watermark": int(meta.get("watermark", NOTHING_ENQUEUED)),
    }
    if measure.is_mirror:
        return _count_mirror_removals(store, measure, parameters, read_content_sizes(store), samples)
    removal_count = int(
        store.fetch_rows(COUNT_SHRUNK_ROWS if measure.counts_shrinkage else COUNT_DELETED_KEYS, parameters)[0][0]
    )
    if not removal_count:
        return RemovalCount(measure.noun, 0, None)
    keys = [str(key) for (key,) in store.fetch_rows(READ_SAMPLE_KEYS, {**parameters, "limit": samples})]
    return RemovalCount(measure.noun, removal_count, _count_on_api(store, measure, parameters["watermark"], size), keys)


def allow_removals(queue: Queue) -> None:
    """Allow the removals that are in the queue now, in this attempt and in all later ones."""
    queue.write_meta(REMOVALS_ALLOWED_UPTO, queue.watermark)


def write_content_sizes(queue: Queue, contents: Iterable[tuple[str, int]]) -> None:
    """Store how many rows the API has of each of these mirrors. The next change is compared with these numbers."""
    queue.store.execute_many(WRITE_CONTENT_SIZE, contents)


def delete_content_sizes(queue: Queue) -> None:
    """Delete the stored sizes of all mirrors, because it is unknown how many rows the API has."""
    queue.store.execute(DELETE_CONTENT_SIZES)


def read_content_sizes(store: SqliteStore) -> dict[str, int]:
    """Return the size of each mirror that write_content_sizes() stored."""
    return {str(key): int(rows) for key, rows in store.fetch_rows(READ_CONTENT_SIZES)}


def read_content_size(store: SqliteStore, key: str) -> int:
    """Return how many rows the API has of one mirror; 0 if write_content_sizes() stored no number."""
    rows = store.fetch_rows(READ_CONTENT_SIZE, (key,))
    return int(rows[0][0]) if rows else 0


def read_table_size(store: SqliteStore) -> int | None:
    """Return the table size that write_table_size() stored; None if the watermark has moved after that."""
    meta = _read_removal_meta(store)
    version, _, size = meta.get(TABLE_SIZE, "").partition(":")
    return int(size) if size and version == meta.get("watermark") else None


def write_table_size(queue: Queue, size: int) -> None:
    """Store how many keys or rows the table has at the watermark, because counting them may scan the table."""
    queue.write_meta(TABLE_SIZE, f"{queue.watermark}:{size}")


def _read_removal_meta(store: SqliteStore) -> Mapping[str, str]:
    return {str(name): str(value) for name, value in store.fetch_rows(READ_REMOVAL_META) if value is not None}


def _count_mirror_removals(
    store: SqliteStore, measure: RemovalUnit, span: Mapping[str, int], contents: Mapping[str, int], samples: int
) -> RemovalCount:
    differences = {
        str(key): contents.get(str(key), 0) - int(rows) for key, rows in store.fetch_rows(READ_CHANGED_CONTENTS, span)
    }
    removals = {key: rows for key, rows in differences.items() if rows > 0}
    return RemovalCount(measure.noun, sum(removals.values()), sum(contents.values()), list(removals)[:samples])


def _count_on_api(
    store: SqliteStore, measure: RemovalUnit, watermark: int, size: Callable[[], int | None]
) -> int | None:
    """Return how many keys or rows the API has: the table's size, plus unsent deletes, minus unsent inserts."""
    table_size = size()
    if table_size is None:
        return None
    statement = ROW_DIFFERENCE if measure.counts_shrinkage else KEY_DIFFERENCE
    deletes, inserts = store.fetch_rows(statement, {"watermark": watermark})[0]
    return max(table_size + int(deletes) - int(inserts), 0)
