"""The results of a search: found records in chunks that are small enough for memory, and their counts by reason."""

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

RecordChunk: TypeAlias = Any  # a pyarrow.Table: that library tells no types

MAX_MEMORY_BYTES = 32_000_000  # bytes that are kept aside in memory; more go to a file
END_TIME_COLUMN = "batch_ended_at"


def chunk_records(records: Iterable[ResultRecord]) -> Iterator[RecordChunk]:
    """The records as parts, in their order."""
    for batch in build_batches(records, RESULT_SCHEMA, lambda record: len(record.payload)):
        yield pa.Table.from_batches([batch])


def iterate_records(parts: Iterable[RecordChunk]) -> Iterator[ResultRecord]:
    """The records one by one."""
    for part in parts:
        yield from map(ResultRecord._make, zip(*(column.to_pylist() for column in part.columns), strict=True))


def slice_chunks(parts: Iterable[RecordChunk], *, offset: int = 0, limit: int | None = None) -> Iterator[RecordChunk]:
    """The records after the first `offset`, and of these at most `limit`."""
    coming = iter(parts)
    left = limit
    while left != 0 and (part := next(coming, None)) is not None:
        skipped = min(offset, part.num_rows)
        offset -= skipped
        wanted = part.slice(skipped, left)
        if wanted.num_rows:
            yield wanted
        if left is not None:
            left -= wanted.num_rows


def merge_newest_first(streams: Sequence[Iterator[RecordChunk]]) -> Iterator[RecordChunk]:
    """Streams that each have their newest records first, as one: by the times at which batches ended."""
    coming = dict(enumerate(streams))
    heads: dict[int, RecordChunk] = {}
    while coming:
        for number in [number for number in coming if number not in heads]:
            head = next((part for part in coming[number] if part.num_rows), None)
            if head is None:
                del coming[number]
            else:
                heads[number] = _sort_newest_first(head)
        if heads:
            yield _take_newest(heads)


def _take_newest(heads: dict[int, RecordChunk]) -> RecordChunk:
    """The records that are as new as any still to come; one head at least is used up."""
    bound = max(head[END_TIME_COLUMN][-1].as_py() for head in heads.values())
    taken = []
    for number, head in list(heads.items()):
        count = pc.sum(pc.greater_equal(head[END_TIME_COLUMN], pa.scalar(bound, head[END_TIME_COLUMN].type))).as_py()
        taken.append(head.slice(0, count))
        if count == head.num_rows:
            del heads[number]
        else:
            heads[number] = head.slice(count)
    return taken[0] if len(taken) == 1 else _sort_newest_first(pa.concat_tables(taken))


def _sort_newest_first(part: RecordChunk) -> RecordChunk:
    """By the time of the end; what ended together stays as it stood."""
    return part.take(pc.sort_indices(part, sort_keys=[(END_TIME_COLUMN, "descending")]))


class SpooledChunks:
    """Chunks that were copied to a file, so that their source can be closed."""

    def __init__(self, parts: Iterable[RecordChunk]) -> None:
        self._file = tempfile.SpooledTemporaryFile(MAX_MEMORY_BYTES)  # noqa: SIM115 - closed with what is put aside
        weakref.finalize(self, self._file.close)  # a search may come to its limit before it is read
        with pa.ipc.new_stream(self._file, RESULT_SCHEMA) as writer:
            for part in parts:
                writer.write_table(part)

    def __iter__(self) -> Iterator[RecordChunk]:
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])


MAX_REASONS = 1000  # different ones that are told apart: a message with a key in it is another one each time
_REASON_COLUMNS = ["status", "status_message"]


class ReasonCount(NamedTuple):
    """A status message and how many records have it."""

    status: str
    message: str | None
    records: int
    example: str  # the identifier of one of them, the newest


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCounts:
    """The counts, the most frequent first."""

    most_frequent: tuple[ReasonCount, ...]
    other_records: int = 0  # records with still other reasons

    @property
    def records(self) -> int:
        return self.other_records + sum(reason.records for reason in self.most_frequent)


def count_reasons(parts: Iterable[RecordChunk], *, most: int = MAX_REASONS) -> ReasonCounts:
    """Of found records, the newest first."""
    counts: collections.Counter[tuple[str, str | None]] = collections.Counter()
    examples: dict[tuple[str, str | None], str] = {}
    others = 0
    for part in parts:
        for status, message, count, example in _group_chunk(part):
            said = (status, message)
            if said in examples or len(examples) < most:
                counts[said] += count
                examples.setdefault(said, example)
            else:
                others += count
    listed = (ReasonCount(*said, count, examples[said]) for said, count in counts.most_common())
    return ReasonCounts(most_frequent=tuple(listed), other_records=others)


def _group_chunk(part: RecordChunk) -> Iterable[tuple[str, str | None, int, str]]:
    # one thread keeps the order, and with it what is first
    groups = part.group_by(_REASON_COLUMNS, use_threads=False).aggregate(
        [("identifier", "count"), ("identifier", "first")]
    )
    columns = (*_REASON_COLUMNS, "identifier_count", "identifier_first")
    return zip(*(groups[name].to_pylist() for name in columns), strict=True)
