"""The format of the units of a sync's queue: what a delivery key names for each kind of model."""

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import orjson

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.push.push_config import WHOLE_TABLE_SIZE
from ondatra_dagster.delivery.queue.queue_database import Queue, open_queue
from ondatra_dagster.delivery.queue.removal_count import TABLE_SIZE, delete_content_sizes
from ondatra_dagster.project.model_kinds import KINDS, Kind
from ondatra_dagster.row_changes import Column, normalize_key_type


def is_named_by_key(kind: Kind, shape: UnitKind) -> bool:
    """Return whether a key's value names the unit. Otherwise a rowid does, or the unit is the whole table."""
    return kind.delivers_by_key or (shape is UnitKind.MIRROR and kind.needs_key)


class UnitFormat(NamedTuple):
    """The settings that decide how the units of a queue are named and shaped."""

    kind: str
    key: tuple[str, ...]
    batch_size: int
    key_types: tuple[str, ...] = ()  # how values of the key's columns are written; empty: unknown

    @classmethod
    def load(cls, text: str) -> Self:
        kind, key, batch_size, *optional_fields = orjson.loads(text)
        return cls(kind, tuple(key), batch_size, *map(tuple, optional_fields))

    def with_key_types(self, columns: Iterable[Column]) -> Self:
        """Return a unit format that also has the types of its key columns, which are among `columns`."""
        types = {column.name.casefold(): column.type for column in columns}
        return self._replace(key_types=tuple(normalize_key_type(types.get(name, "")) for name in self._folded_key))

    def dump(self) -> str:
        return orjson.dumps(tuple(self)).decode()

    @property
    def unit_kind(self) -> UnitKind:
        """Return the kind of the queue's units."""
        kind = KINDS[self.kind]
        if self.batch_size == WHOLE_TABLE_SIZE:
            return UnitKind.MIRROR
        if kind.keeps_versions:
            return UnitKind.VERSION
        return UnitKind.GROUP if kind.delivers_groups else UnitKind.ROW

    @property
    def replaces_rows(self) -> bool:
        """Return whether new rows replace old ones, whose deletes are sent first."""
        return KINDS[self.kind].replaces_rows and self.unit_kind is not UnitKind.MIRROR

    @property
    def is_whole_table(self) -> bool:
        """Return whether the only unit is the content of the whole table."""
        return self.unit_kind is UnitKind.MIRROR and not KINDS[self.kind].needs_key

    @property
    def has_many_rows(self) -> bool:
        """Return whether a unit has all rows of a key, so that a few of its rows don't show the whole unit."""
        return self.unit_kind in (UnitKind.GROUP, UnitKind.MIRROR) and not self.is_whole_table

    def has_same_names(self, other: Self) -> bool:
        """Return whether both formats name a unit in the same way."""
        return self._name_columns == other._name_columns and not (
            self._name_columns and self._has_different_key_types(other)
        )

    def has_same_units(self, other: Self) -> bool:
        """Return whether both formats make the same units of a table."""
        (_, key) = self._unit_identity
        return self._unit_identity == other._unit_identity and not (key and self._has_different_key_types(other))

    def describe_difference(self, other: Self) -> str:
        """Return, as text, the settings that make this format's units differ from those of the other format."""
        differences = {
            f"kind {self.kind}": self.kind != other.kind,
            f"the key {', '.join(self.key)}": self._has_different_key(other),
            f"a key written as {' and '.join(self.key_types)}": self._has_different_key_types(other),
            f"batch_size {self.batch_size}": (self.batch_size == WHOLE_TABLE_SIZE)
            != (other.batch_size == WHOLE_TABLE_SIZE),
        }
        return " and ".join(text for text, is_different in differences.items() if is_different)

    def _has_different_key(self, other: Self) -> bool:
        (_, key), (_, other_key) = self._unit_identity, other._unit_identity
        return bool(key and other_key) and key != other_key

    def _has_different_key_types(self, other: Self) -> bool:
        is_known = self.key_types and other.key_types and self._folded_key == other._folded_key
        return bool(is_known) and self.key_types != other.key_types

    @property
    def _name_columns(self) -> Sequence[str]:
        """Return the columns whose values name a unit; none if a rowid names it, or if there is only one unit."""
        return self._folded_key if is_named_by_key(KINDS[self.kind], self.unit_kind) else ()

    @property
    def _folded_key(self) -> tuple[str, ...]:
        return tuple(column.casefold() for column in self.key)

    @property
    def _unit_identity(self) -> tuple[UnitKind, Sequence[str]]:
        # a version is named by its rowid, and sent with the other versions of its key
        return self.unit_kind, self._folded_key if self.unit_kind is UnitKind.VERSION else self._name_columns


def open_queue_for(
    form: UnitFormat, path: Path, *, lock: Path | None = None
) -> contextlib.AbstractContextManager[Queue]:
    """Open the queue at `path` for writing; raise BusyError when another process writes to it."""
    return open_queue(
        path, shape=form.unit_kind, replaces_rows=form.replaces_rows, is_whole_table=form.is_whole_table, lock=lock
    )


UNIT_FORMAT = "form"
KEY_NAMES_SINCE = "named_since"  # the run after which the records name keys as the units do now


def read_unit_format(queue: Queue) -> UnitFormat | None:
    """Return the format of the queue's units; None if no format was ever stored."""
    text = queue.read_meta(UNIT_FORMAT)
    return UnitFormat.load(text) if text else None


def write_unit_format(queue: Queue, form: UnitFormat, *, last_run_with_other_keys: str) -> None:
    """Store the format that all units have from now on, in the caller's transaction.

    The queue must not have a unit of another format any more.
    """
    stored_format = read_unit_format(queue)
    if stored_format and not stored_format.has_same_units(form):
        delete_content_sizes(queue)  # the stored sizes count units of the old format
        queue.delete_meta(TABLE_SIZE)
    queue.write_meta(UNIT_FORMAT, form.dump())
    queue.write_meta("shape", form.unit_kind.value)
    queue.write_meta(KEY_NAMES_SINCE, last_run_with_other_keys)
