"""Which shape the delivery keys of a kind have, and how they are named: what its queue is opened with."""

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import orjson

from ondatra_dagster.changes import Column, spelling
from ondatra_dagster.delivery.push.push_config import WHOLE
from ondatra_dagster.delivery.queue.tables import Queue, open_queue
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.project.kinds import KINDS, Kind


def shape_of(kind: Kind, *, batch_size: int) -> Shape:
    """What a unit of the queue is."""
    if batch_size == WHOLE:
        return Shape.MIRROR
    if kind.keeps_versions:
        return Shape.VERSION
    return Shape.GROUP if kind.delivers_groups else Shape.ROW


def is_by_key(kind: Kind, shape: Shape) -> bool:
    """Whether a unit is named by the key's value; else by the rowid, or it is the whole table."""
    return kind.delivers_by_key or (shape is Shape.MIRROR and kind.needs_key)


def is_whole(kind: Kind, shape: Shape) -> bool:
    """Whether there is one unit, the content of the table."""
    return shape is Shape.MIRROR and not kind.needs_key


def replaces_rows(kind: Kind, shape: Shape) -> bool:
    """Whether new rows take the place of old ones, whose deletes go first."""
    return kind.replaces_rows and shape is not Shape.MIRROR


class Form(NamedTuple):
    """What decides how the units of a queue are named and shaped."""

    kind: str
    key: tuple[str, ...]
    batch_size: int
    spelled: tuple[str, ...] = ()  # how values of the key's columns are written; none: nobody has looked

    @classmethod
    def load(cls, text: str) -> Self:
        kind, key, batch_size, *spelled = orjson.loads(text)
        return cls(kind, tuple(key), batch_size, *map(tuple, spelled))

    def over(self, columns: Iterable[Column]) -> Self:
        """The same of a table with these columns."""
        types = {column.name.casefold(): column.type for column in columns}
        return self._replace(spelled=tuple(spelling(types.get(name, "")) for name in self._folded_key))

    def dump(self) -> str:
        return orjson.dumps(tuple(self)).decode()

    @property
    def shape(self) -> Shape:
        return shape_of(KINDS[self.kind], batch_size=self.batch_size)

    @property
    def replaces_rows(self) -> bool:
        """Whether its deletes go before the inserts that take their rows' places."""
        return replaces_rows(KINDS[self.kind], self.shape)

    @property
    def is_whole_table(self) -> bool:
        return is_whole(KINDS[self.kind], self.shape)

    @property
    def has_many_rows(self) -> bool:
        """Whether a unit is all rows of a key: whoever sees a few of them doesn't see the unit."""
        return self.shape in (Shape.GROUP, Shape.MIRROR) and not self.is_whole_table

    def names_as(self, other: Self) -> bool:
        """Whether both have the same name for what a unit is of."""
        return self._names == other._names and not (self._names and self._spells_otherwise(other))

    def has_units_of(self, other: Self) -> bool:
        """Whether a unit of either is one of both."""
        (_, key) = self._units
        return self._units == other._units and not (key and self._spells_otherwise(other))

    def told_beside(self, other: Self) -> str:
        """What of it makes other units of it than the other's are."""
        told = {
            f"kind {self.kind}": self.kind != other.kind,
            f"the key {', '.join(self.key)}": self._has_another_key(other),
            f"a key written as {' and '.join(self.spelled)}": self._spells_otherwise(other),
            f"batch_size {self.batch_size}": (self.batch_size == WHOLE) != (other.batch_size == WHOLE),
        }
        return " and ".join(text for text, is_another in told.items() if is_another)

    def _has_another_key(self, other: Self) -> bool:
        (_, key), (_, other_key) = self._units, other._units
        return bool(key and other_key) and key != other_key

    def _spells_otherwise(self, other: Self) -> bool:
        is_known = self.spelled and other.spelled and self._folded_key == other._folded_key
        return bool(is_known) and self.spelled != other.spelled

    @property
    def _names(self) -> Sequence[str]:
        """The columns whose values name a unit; none where it is the rowid, or there is one unit."""
        return self._folded_key if is_by_key(KINDS[self.kind], self.shape) else ()

    @property
    def _folded_key(self) -> tuple[str, ...]:
        return tuple(column.casefold() for column in self.key)

    @property
    def _units(self) -> tuple[Shape, Sequence[str]]:
        # a version is named by its rowid, and goes out with those of its key
        return self.shape, self._folded_key if self.shape is Shape.VERSION else self._names


def open_queue_of(
    kind: Kind, path: Path, *, batch_size: int, lock: Path | None = None
) -> contextlib.AbstractContextManager[Queue]:
    """The queue at `path`, to be written; BusyError when another process does."""
    shape = shape_of(kind, batch_size=batch_size)
    return open_queue(
        path,
        shape=shape,
        replaces_rows=replaces_rows(kind, shape),
        is_whole_table=is_whole(kind, shape),
        lock=lock,
    )
