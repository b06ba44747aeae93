"""The results of a search: found records in chunks that fit in memory, and counts of these records by reason."""

import collections
import dataclasses
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ondatra_dagster.records.parquet_files import build_batches
from ondatra_dagster.records.record_query import RESULT_SCHEMA, ResultRecord

RecordChunk: TypeAlias = Any  # a pyarrow.Table; Any, because pyarrow has no types

MAX_MEMORY_BYTES = 32_000_000  # bytes that stay in memory; further bytes go to a file
END_TIME_COLUMN = "batch_ended_at"


def chunk_records(records: Iterable[ResultRecord]) -> Iterator[RecordChunk]:
    """Yield the records in chunks; their order is kept."""
    for batch in build_batches(records, RESULT_SCHEMA, lambda record: len(record.payload)):
        yield pa.Table.from_batches([batch])


def iterate_records(parts: Iterable[RecordChunk]) -> Iterator[ResultRecord]:
    """Yield the records of the chunks one by one."""
    for chunk in parts:
        yield from map(ResultRecord._make, zip(*(column.to_pylist() for column in chunk.columns), strict=True))


def slice_chunks(parts: Iterable[RecordChunk], *, offset: int = 0, limit: int | None = None) -> Iterator[RecordChunk]:
    """Skip the first `offset` records and yield at most `limit` of the following records, in chunks."""
    chunks = iter(parts)
    remaining = limit
    while remaining != 0 and (chunk := next(chunks, None)) is not None:
        skipped_count = min(offset, chunk.num_rows)
        offset -= skipped_count
        selection = chunk.slice(skipped_count, remaining)
        if selection.num_rows:
            yield selection
        if remaining is not None:
            remaining -= selection.num_rows


def merge_newest_first(streams: Sequence[Iterator[RecordChunk]]) -> Iterator[RecordChunk]:
    """Merge streams that are each sorted newest first; records are compared by the end of their batch."""
    open_streams = dict(enumerate(streams))
    heads: dict[int, RecordChunk] = {}
    while open_streams:
        for number in [number for number in open_streams if number not in heads]:
            head = next((chunk for chunk in open_streams[number] if chunk.num_rows), None)
            if head is None:
                del open_streams[number]
            else:
                heads[number] = _sort_newest_first(head)
        if heads:
            yield _take_newest(heads)


def _take_newest(heads: dict[int, RecordChunk]) -> RecordChunk:
    """Return the records of `heads` that are at least as new as all records still to come; use up at least one head."""
    time_bound = max(head[END_TIME_COLUMN][-1].as_py() for head in heads.values())
    slices = []
    for number, head in list(heads.items()):
        count = pc.sum(
            pc.greater_equal(head[END_TIME_COLUMN], pa.scalar(time_bound, head[END_TIME_COLUMN].type))
        ).as_py()
        slices.append(head.slice(0, count))
        if count == head.num_rows:
            del heads[number]
        else:
            heads[number] = head.slice(count)
    return slices[0] if len(slices) == 1 else _sort_newest_first(pa.concat_tables(slices))


def _sort_newest_first(part: RecordChunk) -> RecordChunk:
    """Sort the chunk by the end of the batch, newest first; records with equal times keep their order."""
    return part.take(pc.sort_indices(part, sort_keys=[(END_TIME_COLUMN, "descending")]))


class SpooledChunks:
    """A copy of chunks in a temporary file, so that the source of the chunks can be closed."""

    def __init__(self, parts: Iterable[RecordChunk]) -> None:
        self._file = tempfile.SpooledTemporaryFile(MAX_MEMORY_BYTES)  # noqa: SIM115 - closed with this object
        weakref.finalize(self, self._file.close)  # a search may reach its limit before it has read all chunks
        with pa.ipc.new_stream(self._file, RESULT_SCHEMA) as writer:
            for chunk in parts:
                writer.write_table(chunk)

    def __iter__(self) -> Iterator[RecordChunk]:
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])


MAX_REASONS = 1000  # different reasons that are counted: messages that contain a key all differ
_REASON_COLUMNS = ["status", "status_message"]


class ReasonCount(NamedTuple):
    """A status with a message, and the number of records with both."""

    status: str
    message: str | None
    records: int
    example: str  # the identifier of the newest of these records


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCounts:
    """The counts of records by reason, most frequent reason first."""

    most_frequent: tuple[ReasonCount, ...]
    other_records: int = 0  # records with further reasons, which aren't listed

    @property
    def records(self) -> int:
        return self.other_records + sum(reason.records for reason in self.most_frequent)


def count_reasons(parts: Iterable[RecordChunk], *, max_reasons: int = MAX_REASONS) -> ReasonCounts:
    """Return the counts of records by reason; the records must be sorted newest first."""
    counts: collections.Counter[tuple[str, str | None]] = collections.Counter()
    examples: dict[tuple[str, str | None], str] = {}
    other_count = 0
    for chunk in parts:
        for status, message, count, example in _group_chunk(chunk):
            reason = (status, message)
            if reason in examples or len(examples) < max_reasons:
                counts[reason] += count
                examples.setdefault(reason, example)
            else:
                other_count += count
    most_frequent = (ReasonCount(*reason, count, examples[reason]) for reason, count in counts.most_common())
    return ReasonCounts(most_frequent=tuple(most_frequent), other_records=other_count)


def _group_chunk(part: RecordChunk) -> Iterable[tuple[str, str | None, int, str]]:
    # one thread keeps the order, so the first identifier is the newest
    groups = part.group_by(_REASON_COLUMNS, use_threads=False).aggregate(
        [("identifier", "count"), ("identifier", "first")]
    )
    columns = (*_REASON_COLUMNS, "identifier_count", "identifier_first")
    return zip(*(groups[name].to_pylist() for name in columns), strict=True)
