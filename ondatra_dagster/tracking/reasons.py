"""Why records ended as they did: counts by what was said of them. Of which records, a search decides."""

import collections
import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from ondatra_dagster.tracking.parts import Part

MOST = 1000  # different ones that are told apart: a message with a key in it is another one each time
_SAID = ["status", "status_message"]


class Reason(NamedTuple):
    """What was said of so many records."""

    status: str
    message: str | None
    records: int
    example: str  # the identifier of one of them, the newest


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """The most frequent first."""

    listed: tuple[Reason, ...]
    others: int = 0  # records with still other reasons

    @property
    def records(self) -> int:
        return self.others + sum(reason.records for reason in self.listed)


def reasons_of(parts: Iterable[Part], *, most: int = MOST) -> Reasons:
    """Of found records, the newest first."""
    counts: collections.Counter[tuple[str, str | None]] = collections.Counter()
    examples: dict[tuple[str, str | None], str] = {}
    others = 0
    for part in parts:
        for status, message, count, example in _grouped(part):
            said = (status, message)
            if said in examples or len(examples) < most:
                counts[said] += count
                examples.setdefault(said, example)
            else:
                others += count
    listed = (Reason(*said, count, examples[said]) for said, count in counts.most_common())
    return Reasons(listed=tuple(listed), others=others)


def _grouped(part: Part) -> Iterable[tuple[str, str | None, int, str]]:
    # one thread keeps the order, and with it what is first
    groups = part.group_by(_SAID, use_threads=False).aggregate(
        [("identifier", "count"), ("identifier", "first")]
    )
    columns = (*_SAID, "identifier_count", "identifier_first")
    return zip(*(groups[name].to_pylist() for name in columns), strict=True)
