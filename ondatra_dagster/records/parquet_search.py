"""The search for records in Parquet files. It finds matching row groups, and reads as little else as possible."""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ondatra_dagster.records.file_paths import RecordFileId, RecordFileType
from ondatra_dagster.records.record_query import QUEUE_SCHEMA, RESULT_SCHEMA, RecordQuery, RecordStage
from ondatra_dagster.records.record_schema import DICTIONARY_COLUMNS, PAYLOAD_COLUMN, RECORD_SCHEMA
from ondatra_dagster.records.search_result_chunks_and_reason_counts import RecordChunk, merge_newest_first

_REPETITIVE_TEXTS = [
    field.name for field in RECORD_SCHEMA if field.name in DICTIONARY_COLUMNS and field.type == pa.string()
]
MAX_EAGER_BYTES = 100_000  # bytes of a file's matching records that are read during the search, not later
Conditions: TypeAlias = Sequence["_Condition"]


class MatchingRowGroup(NamedTuple):
    """A row group of a record file with records that match a search."""

    number: int
    conditions: Conditions  # these select the row group's matching rows
    with_payload: bool
    metadata: Any  # the Parquet file's metadata, so that it isn't read twice
    chunk: RecordChunk | None  # the matching records, if they are few; None: not read yet


def find_row_groups(file: BinaryIO, search: RecordQuery) -> list[MatchingRowGroup]:
    """Return the file's row groups with matching records, newest first.

    Stop when the returned row groups have as many matching records as the search wants from all files.
    """
    parquet = _open_parquet(file)
    eager_bytes = MAX_EAGER_BYTES
    missing_records = math.inf if search.limit is None else search.offset + search.limit
    groups: list[MatchingRowGroup] = []
    for number, conditions, count in _count_matches(parquet, search):
        missing_records -= count
        group = MatchingRowGroup(number, conditions, search.with_payload, parquet.metadata, None)
        statistics = parquet.metadata.row_group(number)
        size = statistics.total_byte_size * count // statistics.num_rows
        if size <= eager_bytes:
            eager_bytes -= size
            group = group._replace(chunk=_read_rows_of_group(parquet, group))
        groups.append(group)
        if missing_records <= 0:
            break
    return groups


def count_matching_rows(file: BinaryIO, search: RecordQuery) -> int:
    """Return how many records of the file match the search, without regard to its limit."""
    return sum(count for _, _, count in _count_matches(_open_parquet(file), search))


def _count_matches(parquet: Any, search: RecordQuery) -> Iterator[tuple[int, Conditions, int]]:
    """Yield the number of each row group with matching rows, its conditions and its count; newest first."""
    for number in reversed(range(parquet.num_row_groups)):
        conditions = _choose_conditions(parquet, number, search)
        if conditions is not None and (count := _count_rows_of_group(parquet, number, conditions)):
            yield number, conditions, count


def read_matching_rows(file: BinaryIO, group: MatchingRowGroup) -> RecordChunk:
    """Return the row group's matching records, newest first."""
    return _read_rows_of_group(_open_parquet(file, group.metadata), group)


def _open_parquet(file: BinaryIO, metadata: Any = None) -> Any:
    # repetitive texts are read as dictionaries, and only wanted rows become plain texts
    return pq.ParquetFile(file, metadata=metadata, pre_buffer=True, read_dictionary=_REPETITIVE_TEXTS)


def _read_rows_of_group(parquet: Any, group: MatchingRowGroup) -> RecordChunk:
    columns = [name for name in RECORD_SCHEMA.names if group.with_payload or name != PAYLOAD_COLUMN]
    table = parquet.read_row_group(group.number, columns=columns, use_threads=False)
    indices = pa.array(range(table.num_rows - 1, -1, -1))
    if group.conditions:
        indices = pc.indices_nonzero(_match_rows(table, group.conditions))[::-1]
    records = _add_empty_payload(table.take(indices)).cast(RECORD_SCHEMA)
    queue_columns = [pa.nulls(records.num_rows, field.type) for field in QUEUE_SCHEMA]
    return pa.Table.from_arrays([*records.columns, *queue_columns], schema=RESULT_SCHEMA)


def _add_empty_payload(table: Any) -> Any:
    """Add empty payloads to a table that was read without payloads."""
    if PAYLOAD_COLUMN in table.column_names:
        return table
    empty = pa.repeat(pa.scalar(""), table.num_rows)
    return table.add_column(RECORD_SCHEMA.names.index(PAYLOAD_COLUMN), PAYLOAD_COLUMN, empty)


def _count_rows_of_group(parquet: Any, number: int, conditions: Conditions) -> int:
    """Return how many rows of the row group match; read only the columns that the conditions need."""
    if not conditions:
        return int(parquet.metadata.row_group(number).num_rows)
    columns = [condition.column for condition in conditions]
    table = parquet.read_row_group(number, columns=columns, use_threads=False)
    return pc.sum(_match_rows(table, conditions)).as_py() or 0


def _match_rows(table: Any, conditions: Conditions) -> Any:
    """Return a boolean column: whether each row of the table matches all conditions."""
    return functools.reduce(pc.and_, [condition.match_rows(table[condition.column]) for condition in conditions])


def _choose_conditions(parquet: Any, number: int, search: RecordQuery) -> Conditions | None:
    """Return the conditions to check on each row of the row group; None if no row can match."""
    conditions = []
    for condition in _list_conditions(search):
        bounds = _read_bounds(parquet, number, condition.column)
        if bounds is not None and not condition.may_match(*bounds):
            return None
        if bounds is None or not condition.always_matches(*bounds):
            conditions.append(condition)
    return conditions


def _list_conditions(search: RecordQuery) -> Iterator["_Condition"]:
    if search.prefix:
        yield _Condition("identifier", search.prefix, is_prefix=True)
    if search.stage in (RecordStage.SUCCEEDED, RecordStage.REJECTED):  # invalid rows have files of their own
        yield _Condition("status", search.stage)
    if search.status is not None:
        yield _Condition("status", search.status)
    if search.change_type is not None:
        yield _Condition("__ondatra_change_type", search.change_type)
    if search.message is not None:
        yield _Condition("status_message", search.message)


class _Condition(NamedTuple):
    """A condition on a text column. A condition with an empty value also matches null."""

    column: str
    value: str
    is_prefix: bool = False

    def may_match(self, lowest: str, highest: str) -> bool:
        return (lowest[: len(self.value)] if self.is_prefix else lowest) <= self.value <= highest

    def always_matches(self, lowest: str, highest: str) -> bool:
        return not self.is_prefix and lowest == self.value == highest

    def match_rows(self, column: Any) -> Any:
        if self.is_prefix:
            return pc.starts_with(column, self.value)
        matches = pc.equal(column, self.value)
        return matches if self.value else pc.or_kleene(pc.is_null(column), matches)


def _read_bounds(parquet: Any, number: int, column: str) -> tuple[str, str] | None:
    """Return the lowest and highest value of a text column in a row group; None if they are unknown."""
    column_index = parquet.schema_arrow.get_field_index(column)
    statistics = parquet.metadata.row_group(number).column(column_index).statistics
    return (
        (statistics.min, statistics.max)
        if statistics and statistics.has_min_max and not statistics.null_count
        else None
    )


MAX_FILES_AT_ONCE = 8
MAX_GROUPS_AT_ONCE = 3  # per record type of a run: read row groups stay in memory until their turn comes
Item = TypeVar("Item")
ItemResult = TypeVar("ItemResult")


class RecordFileReader(Protocol):
    """The access to record files that a search needs. Several threads use this object at the same time."""

    def list_record_files(self, sync_id: str, run_id: str) -> list[RecordFileId]: ...

    def open_records(self, sync_id: str, run_id: str, file: RecordFileId) -> AbstractContextManager[BinaryIO]: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunRecords:
    """The places of one run's records: its files, and chunks that aren't published yet."""

    run_id: str
    files: Sequence[RecordFileId] | None = None  # None: the files that exist when the run's turn comes
    # newer than the files
    unpublished_chunks: Mapping[RecordFileType, Iterable[RecordChunk]] = dataclasses.field(default_factory=dict)


class _FileMatches(NamedTuple):
    """The matching row groups in one file of a run."""

    run: RunRecords
    file: RecordFileId | None  # None: the run has no files
    groups: Sequence[MatchingRowGroup] = ()


def search_runs(
    files: RecordFileReader, sync_id: str, search: RecordQuery, runs: Iterable[RunRecords]
) -> Iterator[RecordChunk]:
    """Yield the matching records of the given runs, in the order of `runs`; within a run, newest first."""
    pool = ThreadPoolExecutor(MAX_FILES_AT_ONCE)
    try:
        yield from _FileSearch(files, sync_id, search, pool).find_matches(runs)
    finally:
        pool.shutdown(cancel_futures=True)


def count_runs_matches(files: RecordFileReader, sync_id: str, search: RecordQuery, runs: Iterable[RunRecords]) -> int:
    """Return how many records of the given runs match, without regard to the search's limit."""
    with ThreadPoolExecutor(MAX_FILES_AT_ONCE) as pool:
        return _FileSearch(files, sync_id, search, pool).count_matches(runs)


class _FileSearch:
    """A search over the files of several runs."""

    def __init__(self, files: RecordFileReader, sync_id: str, search: RecordQuery, pool: ThreadPoolExecutor) -> None:
        self._files = files
        self._sync_id = sync_id
        self._query = search
        self._pool = pool

    def find_matches(self, runs: Iterable[RunRecords]) -> Iterator[RecordChunk]:
        file_lists = self._map_ahead(self._list_files, runs, MAX_FILES_AT_ONCE)
        file_matches = self._map_ahead(self._search_file, itertools.chain.from_iterable(file_lists), MAX_FILES_AT_ONCE)
        for _, run_matches in itertools.groupby(file_matches, key=lambda match: match.run.run_id):
            matches_of_run = list(run_matches)
            yield from merge_newest_first(
                [self._read_matches(matches_of_run, batch_type) for batch_type in RecordFileType]
            )

    def count_matches(self, runs: Iterable[RunRecords]) -> int:
        run_list = list(runs)
        unpublished_count: int = sum(
            chunk.num_rows for run in run_list for chunks in run.unpublished_chunks.values() for chunk in chunks
        )
        files = itertools.chain.from_iterable(self._map_ahead(self._list_files, run_list, MAX_FILES_AT_ONCE))
        return unpublished_count + sum(self._map_ahead(self._count_in_file, files, MAX_FILES_AT_ONCE))

    def _count_in_file(self, file_matches: _FileMatches) -> int:
        if file_matches.file:
            with contextlib.suppress(FileNotFoundError), self._open_file(file_matches.run, file_matches.file) as file:
                return count_matching_rows(file, self._query)
        return 0

    def _list_files(self, run: RunRecords) -> list[_FileMatches]:
        """Return the run's files that may have matching records; within each record type, newest first."""
        files = run.files
        if files is None:
            files = self._files.list_record_files(self._sync_id, run.run_id)
        matching_files = [file for file in files if self._may_match(file[0])]
        return [_FileMatches(run, file) for file in sorted(matching_files, reverse=True)] or [_FileMatches(run, None)]

    def _may_match(self, batch_type: RecordFileType) -> bool:
        wants_invalid = self._query.stage is RecordStage.INVALID
        return self._query.stage is None or wants_invalid == (batch_type is RecordFileType.INVALID)

    def _search_file(self, file_matches: _FileMatches) -> _FileMatches:
        if file_matches.file is None:
            return file_matches
        with contextlib.suppress(FileNotFoundError), self._open_file(file_matches.run, file_matches.file) as file:
            return file_matches._replace(groups=find_row_groups(file, self._query))
        return file_matches

    def _read_matches(self, looks: Sequence[_FileMatches], batch_type: RecordFileType) -> Iterator[RecordChunk]:
        """Yield a run's matching records of one type."""
        yield from looks[0].run.unpublished_chunks.get(batch_type, ())
        groups = [
            (file_matches.run, file_matches.file, group)
            for file_matches in looks
            if file_matches.file and file_matches.file[0] is batch_type
            for group in file_matches.groups
        ]
        for chunk in self._map_ahead(self._read_match, groups, MAX_GROUPS_AT_ONCE):
            if chunk is not None:
                yield chunk

    def _read_match(self, match: tuple[RunRecords, RecordFileId, MatchingRowGroup]) -> RecordChunk | None:
        run, name, group = match
        if group.chunk is not None:
            return group.chunk
        with contextlib.suppress(FileNotFoundError), self._open_file(run, name) as file:
            return read_matching_rows(file, group)
        return None

    def _open_file(self, run: RunRecords, file: RecordFileId) -> AbstractContextManager[BinaryIO]:
        """Open a record file.

        Retention may delete a file during a search, so the callers skip a file that no longer exists.
        """
        return self._files.open_records(self._sync_id, run.run_id, file)

    def _map_ahead(
        self, compute: Callable[[Item], ItemResult], items: Iterable[Item], max_ahead: int
    ) -> Iterator[ItemResult]:
        """Yield the results in the order of the items; compute at most `max_ahead` results ahead of their turn."""
        futures: deque[Future[ItemResult]] = deque()
        for item in items:
            futures.append(self._pool.submit(compute, item))
            if len(futures) > max_ahead:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
