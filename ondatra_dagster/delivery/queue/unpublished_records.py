"""The settled rows that are not in a record file yet, each with the attempt in which it ended."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.change_and_outcome_counts import delete_counts
from ondatra_dagster.delivery.queue.damage_checksums import DAMAGED_DIGEST, SETTLED_COLUMNS, check_row_digest
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.row_changes import ChangeType
from ondatra_dagster.storage.sqlite_database import SqliteStore

ADD_PACK = """
insert into settled (run_id, type, count, started_at, ended_at, rows, digest)
values (?1, ?2, ?3, ?4, ?5, ?6, row_digest(?1, ?2, ?3, ?4, ?5, ?6, null))
"""
PACK_COLUMNS = f"id, digest, {', '.join(SETTLED_COLUMNS)}"  # which read_pack() reads
RECORDS_UPDATED = "records_updated"
RECORDS_DELETED = "records_deleted"
RECORDS_INVALID = "records_invalid"
PACK_ROWS = 10_000  # rows that are stored together; a record file consists of whole packs
STATUS_SUCCEEDED = "succeeded"
STATUS_REJECTED = "rejected"


class SettledRow(NamedTuple):
    """A settled row, as the queue stores it until it is published."""

    key: str
    rowid: int
    change_type: str
    version: int
    status: str
    message: str | None
    layout: int
    payload: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushAttempt:
    """The facts about one push of a batch, apart from its outcomes."""

    run_id: str
    started_at: float
    ended_at: float
    max_attempts: int


def store_settled_rows(queue: Queue, kind: str, rows: list[SettledRow], attempt: PushAttempt) -> None:
    """Store settled rows until they are published, in the caller's transaction."""
    for start in range(0, len(rows), PACK_ROWS):
        chunk = rows[start : start + PACK_ROWS]
        text = orjson.dumps([tuple(row) for row in chunk])  # orjson refuses named tuples
        values = (attempt.run_id, kind, len(chunk), attempt.started_at, attempt.ended_at, text)
        queue.store.execute(ADD_PACK, values)


def read_pack(store: SqliteStore, row: Sequence[Any]) -> Iterator[SettledRow]:
    """Yield the rows of a pack, whose PACK_COLUMNS are in `row`; raise StateError if the pack is damaged."""
    number, digest, *values = row
    check_row_digest(store, "settled", number, values, digest)
    *_, text, _ = values
    yield from parse_settled_rows(text)


def parse_settled_rows(text: bytes) -> Iterator[SettledRow]:
    for fields in orjson.loads(text):
        yield SettledRow(*fields)


FILE_ROWS = 50_000  # a file gets no more packs once it has this many rows
RECORD_TYPES = orjson.dumps([RECORDS_DELETED, RECORDS_INVALID, RECORDS_UPDATED]).decode()
SNAPSHOT_RUN = "writes_snapshot"  # in the meta: the run that writes, or wrote, the newest snapshot
READ_RUNS = "select run_id, about from run order by run_id"
ADD_RUN = "insert into run (run_id, about) values (?, ?)"
READ_FILES = "select files from run where run_id = ?"
WRITE_FILES = "update run set files = ? where run_id = ?"
DELETE_RUN = "delete from run where run_id = ?"


# finds damaged packs: a pack must belong to an open run, and have one of three types
COUNT_STRAY_PACKS = """
select count(*) from settled
where run_id not in (select run_id from run) or type not in (select value from json_each(?))
"""
COUNT_UNASSIGNED_ROWS = (
    "select type, sum(count), min(ended_at) from settled where run_id = ? and file is null group by type"
)
READ_UNASSIGNED_PACKS = "select id, count from settled where run_id = ? and type = ? and file is null order by id"
_PACK_DIGEST = "row_digest(run_id, type, count, started_at, ended_at, rows, {file})"
ASSIGN_TO_FILE = f"""
update settled
set file = ?1,
    digest = iif(digest = {_PACK_DIGEST.format(file="file")}, {_PACK_DIGEST.format(file="?1")}, {DAMAGED_DIGEST})
where run_id = ?2 and type = ?3 and file is null and id <= ?4
"""
READ_ASSIGNED_FILES = (
    "select distinct type, file from settled where run_id = ? and file is not null order by type, file"
)
READ_FILE_PACKS = f"""
select started_at, ended_at, {PACK_COLUMNS} from settled where run_id = ? and type = ? and file = ? order by id
"""
DELETE_FILE_PACKS = "delete from settled where run_id = ? and type = ? and file = ?"


class RecordFile(NamedTuple):
    """A file of records: [type].[number].parquet in the folder of its run."""

    run_id: str
    type: str
    number: int


class UnassignedRows(NamedTuple):
    """The number of settled rows of one type that are in no file yet, and when the oldest ended."""

    type: str
    row_count: int
    oldest_ended_at: float


def begin_run(queue: Queue, run_id: str, about: str) -> None:
    """Record that this run may leave records. `about` is what the run's metadata needs if the run never ends."""
    queue.store.execute(ADD_RUN, (run_id, about))


def open_runs(queue: Queue) -> dict[str, str]:
    """Return the `about` text of each run that hasn't ended, by run id, oldest first."""
    return {str(run_id): str(about) for run_id, about in queue.store.fetch_rows(READ_RUNS)}


def end_run(queue: Queue, run_id: str) -> None:
    """Delete the run and its counts, because all its records are published."""
    with queue.store.write_transaction():
        queue.store.execute(DELETE_RUN, (run_id,))
        delete_counts(queue, run_id)


def count_started_files(queue: Queue, run_id: str) -> dict[str, int]:
    """Return how many files of each type have got rows of the run."""
    file_counts: dict[str, int] = orjson.loads(str(queue.store.fetch_rows(READ_FILES, (run_id,))[0][0]))
    return file_counts


def count_unassigned_rows(queue: Queue, run_id: str) -> list[UnassignedRows]:
    _check_no_stray_packs(queue)
    groups = queue.store.fetch_rows(COUNT_UNASSIGNED_ROWS, (run_id,))
    return [UnassignedRows(str(kind), int(rows), float(oldest_time)) for kind, rows, oldest_time in groups]


def _check_no_stray_packs(queue: Queue) -> None:
    ((stray_count,),) = queue.store.fetch_rows(COUNT_STRAY_PACKS, (RECORD_TYPES,))
    if stray_count:
        raise queue.store.damage_error(f"{stray_count} packs of settled rows belong to no run or no type")


def assign_rows_to_file(queue: Queue, run_id: str, kind: str, *, max_rows: int = FILE_ROWS) -> RecordFile | None:
    """Assign the oldest unassigned rows of a type to a new file and return the file; None if there are no rows."""
    with queue.store.write_transaction():
        last_blob = None
        rows = 0
        for blob, count in queue.store.fetch_rows(READ_UNASSIGNED_PACKS, (run_id, kind)):
            last_blob = blob
            rows += int(count)
            if rows >= max_rows:
                break
        if last_blob is None:
            return None
        files = count_started_files(queue, run_id)
        number = files.get(kind, 0)
        files[kind] = number + 1
        queue.store.execute(WRITE_FILES, (orjson.dumps(files).decode(), run_id))
        queue.store.execute(ASSIGN_TO_FILE, (number, run_id, kind, last_blob))
        return RecordFile(run_id, kind, number)


def read_assigned_files(queue: Queue, run_id: str) -> list[RecordFile]:
    """Return the run's files with rows that are still in the queue, because they may not be written yet."""
    _check_no_stray_packs(queue)
    return [
        RecordFile(run_id, str(kind), int(number))
        for kind, number in queue.store.fetch_rows(READ_ASSIGNED_FILES, (run_id,))
    ]


def read_file_rows(queue: Queue, file: RecordFile) -> Iterator[tuple[float, float, SettledRow]]:
    """Yield a file's rows, each with the times at which its batch's push began and ended."""
    for started_at, ended_at, *pack in queue.store.iterate_rows(READ_FILE_PACKS, file):
        for row in read_pack(queue.store, pack):
            yield float(started_at), float(ended_at), row


def delete_published_rows(queue: Queue, file: RecordFile) -> None:
    """Delete the rows of a file that is published."""
    queue.store.execute(DELETE_FILE_PACKS, file)


READ_RUNS_NEWEST_FIRST = "select run_id, files from run order by run_id desc"
READ_UNPUBLISHED_PACKS = f"""
select started_at, ended_at, {PACK_COLUMNS} from settled
where run_id = :run_id and type = :type
    and (file is null or file not in (select value from json_each(:published)))
order by id desc
"""
COUNT_UNPUBLISHED_ROWS = """
select coalesce(sum(count), 0) from settled
where run_id = :run_id and type = :type
    and (file is null or file not in (select value from json_each(:published)))
"""


def read_started_files(store: SqliteStore) -> dict[str, Mapping[str, int]]:
    """Return, by run that hasn't ended, newest first, how many files of each type have got their rows.

    A file with that number or a higher one gets its rows after this read.
    """
    return {str(run_id): orjson.loads(str(files)) for run_id, files in store.fetch_rows(READ_RUNS_NEWEST_FIRST)}


def read_unpublished_rows(
    store: SqliteStore, run_id: str, kind: str, published_files: Collection[int]
) -> Iterator[tuple[float, float, SettledRow]]:
    """Yield the rows of a type that aren't in `published_files`, newest first, each with the times of its batch."""
    for started_at, ended_at, *pack in store.iterate_rows(
        READ_UNPUBLISHED_PACKS, _query_values(run_id, kind, published_files)
    ):
        for row in reversed(list(read_pack(store, pack))):
            yield float(started_at), float(ended_at), row


def count_unpublished_rows(store: SqliteStore, run_id: str, kind: str, published_files: Collection[int]) -> int:
    """Return how many rows read_unpublished_rows() would yield."""
    return int(store.fetch_rows(COUNT_UNPUBLISHED_ROWS, _query_values(run_id, kind, published_files))[0][0])


def _query_values(run_id: str, kind: str, published_files: Collection[int]) -> dict[str, str]:
    return {"run_id": run_id, "type": kind, "published": orjson.dumps(sorted(published_files)).decode()}


_PREIMAGES = frozenset({ChangeType.UPDATE_PREIMAGE})
_PREIMAGES_AND_DELETES = frozenset({ChangeType.UPDATE_PREIMAGE, ChangeType.DELETE})


def unrecorded_change_types(
    shape: UnitKind, *, replaces_rows: bool, is_context: bool, has_desired_rows: Callable[[], bool]
) -> frozenset[ChangeType]:
    """Return the change types of a unit that get no record, because their rows are only context.

    These are preimages, and deletes if inserts replace their rows.
    """
    # the unit's desired rows are parsed only if they are needed, which is rare
    if is_context or ((replaces_rows or shape is UnitKind.GROUP) and has_desired_rows()):
        return _PREIMAGES_AND_DELETES
    return _PREIMAGES
