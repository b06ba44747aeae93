"""Found records in parts: tables with the columns of FOUND, each small enough to hold in memory."""

import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ondatra_dagster.tracking.found import FOUND, FoundRecord
from ondatra_dagster.tracking.parquet_files import arrays, in_parts

Part: TypeAlias = Any  # a pyarrow.Table: that library tells no types

IN_MEMORY = 32_000_000  # bytes that are kept aside in memory; more go to a file
ENDED = "batch_ended_at"


def parts_of(records: Iterable[FoundRecord]) -> Iterator[Part]:
    """The records as parts, in their order."""
    for rows in in_parts(records, weigh=lambda record: len(record[1])):
        yield pa.Table.from_arrays(arrays(rows, FOUND), schema=FOUND)


def records_of(parts: Iterable[Part]) -> Iterator[FoundRecord]:
    """The records one by one."""
    for part in parts:
        yield from map(FoundRecord._make, zip(*(column.to_pylist() for column in part.columns), strict=True))


def window(parts: Iterable[Part], *, offset: int = 0, limit: int | None = None) -> Iterator[Part]:
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


def newest_first(streams: Sequence[Iterator[Part]]) -> Iterator[Part]:
    """Streams that each have their newest records first, as one: by the times at which batches ended."""
    coming = dict(enumerate(streams))
    heads: dict[int, Part] = {}
    while coming:
        for number in [number for number in coming if number not in heads]:
            head = next((part for part in coming[number] if part.num_rows), None)
            if head is None:
                del coming[number]
            else:
                heads[number] = _sorted(head)
        if heads:
            yield _take_newest(heads)


def _take_newest(heads: dict[int, Part]) -> Part:
    """The records that are as new as any still to come; one head at least is used up."""
    bound = max(head[ENDED][-1].as_py() for head in heads.values())
    taken = []
    for number, head in list(heads.items()):
        count = pc.sum(pc.greater_equal(head[ENDED], pa.scalar(bound, head[ENDED].type))).as_py()
        taken.append(head.slice(0, count))
        if count == head.num_rows:
            del heads[number]
        else:
            heads[number] = head.slice(count)
    return taken[0] if len(taken) == 1 else _sorted(pa.concat_tables(taken))


def _sorted(part: Part) -> Part:
    """By the time of the end; what ended together stays as it stood."""
    return part.take(pc.sort_indices(part, sort_keys=[(ENDED, "descending")]))


class Aside:
    """Parts that were put aside whole, so that where they come from can be let go of."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with what is put aside
        weakref.finalize(self, self._file.close)  # a search may come to its limit before it is read
        with pa.ipc.new_stream(self._file, FOUND) as writer:
            for part in parts:
                writer.write_table(part)

    def __iter__(self) -> Iterator[Part]:
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])
