"""Between a batch and the user's functions: what is handed over, and what came of it. Who does it: pusher."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, Self

import orjson

from ondatra_dagster.changes import ChangeType, Column, Layout
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.outcome import Outcome, ResultKey
from ondatra_dagster.delivery.queue.claim import Batch, BatchUnit, by_key
from ondatra_dagster.delivery.target import ImageRow


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A batch, or a part of one, as it crosses to push."""

    number: int  # of the batch in its run
    layout: Layout  # of the columns
    text: str  # the rows as columnar JSON
    keys: Sequence[ResultKey]  # the name of each row's status
    units: Sequence[BatchUnit]
    layouts: Mapping[int, Layout]

    @classmethod
    def of(cls, batch: Batch, layouts: Mapping[int, Layout]) -> Self:
        """The whole batch. Rows of an older layout are laid out anew: a column that they lack is null."""
        newest = max([row.row.layout for unit in batch.units for row in unit.sent], default=max(layouts))
        return cls._of(batch.units, batch.number, layouts[newest], layouts)

    @property
    def is_one_key(self) -> bool:
        """Whether it can't be halved."""
        return len(by_key(self.units)) <= 1

    def halves(self) -> tuple[Self, Self]:
        """Its keys in two parts, in their order."""
        keys = by_key(self.units)
        parts = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        first, second = ([unit for units in part for unit in units] for part in parts)
        return (
            self._of(first, self.number, self.layout, self.layouts),
            self._of(second, self.number, self.layout, self.layouts),
        )

    @classmethod
    def _of(
        cls, units: Sequence[BatchUnit], number: int, layout: Layout, layouts: Mapping[int, Layout]
    ) -> Self:
        keys, rows = [], []
        for unit in units:
            for change_type, row in unit.sent:
                rowid, number_of_layout, payload = row
                keys.append(f"{rowid}:{change_type}")
                if layouts[number_of_layout] is not layout:
                    payload = _relaid(row, layouts, layout)
                rows.append(_row(payload, rowid, change_type))
        names = orjson.dumps([*layout.names, "__ondatra_rowid", "__ondatra_change_type"]).decode()
        text = f'{{"columns":{names},"rows":[{",".join(rows)}]}}'
        return cls(number=number, layout=layout, text=text, keys=keys, units=units, layouts=layouts)


def _row(payload: str, rowid: int, change_type: ChangeType) -> str:
    return f'{payload[:-1]},{rowid},"{change_type}"]'


def _relaid(row: ImageRow, layouts: Mapping[int, Layout], layout: Layout) -> str:
    content = layouts[row.layout].row(row.payload)
    return orjson.dumps([content.get(name) for name in layout.names]).decode()


class Pushed(NamedTuple):
    """What came of handing a batch over."""

    outcomes: Mapping[ResultKey, Outcome]
    calls: int = 0
    unanswered: int = 0  # calls of which at some try nobody answered
    is_outage: bool = False  # every call ended without an answer, or with 408, 429 or 5xx
    job: str | None = None  # what push() made of the batch in place of outcomes: a reference, as JSON
    masked_job: str | None = None  # the reference without secrets; None: there are none in it
    is_open: bool = False  # there is a job, which hasn't ended
    warnings: tuple[str, ...] = ()  # about what the function returned
    has_raised: bool = False  # the function ended without an answer
    is_answered: bool = True  # a try of a call was answered, if only by a failure


class Push(Protocol):
    """Hands batches to the user's functions. Several threads may do so at once, each with its own journal."""

    def __call__(self, parcel: Parcel, journal: Journal) -> Pushed:
        """The outcome of each of the parcel's rows, whatever happens.

        What was answered before a crash is answered from the journal.
        """

    def poll(self, parcel: Parcel, job: str) -> Pushed:
        """How the job stands that was made of the parcel."""

    def finalize(self, succeeded: int, failed: int, *, columns: Sequence[Column], journal: Journal) -> None:
        """Tell the end of all that was owed; PushContractError when it wasn't taken."""
