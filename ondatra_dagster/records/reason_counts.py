"""The counts of records by their status message: why records ended as they did."""

import collections
import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from ondatra_dagster.records.record_chunks import RecordChunk

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
