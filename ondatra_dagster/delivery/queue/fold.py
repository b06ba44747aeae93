"""Many changes of one key become one: what the table had before the first and has after the last."""

import itertools
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from ondatra_dagster.changes import Change, ChangeType

_TAKES_AWAY = frozenset({ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE})


class Folded(NamedTuple):
    """One key's way through some versions; base and target are images as text."""

    key: str
    version: int  # of its newest change
    base: str
    target: str
    belongs_to: str


def fold(changes: Iterable[Change], layout: int) -> Iterator[Folded]:
    """One Folded for each key, in the order of the changes; a key's changes stand together, oldest first."""
    for key, group in itertools.groupby(changes, attrgetter("key")):
        rows = list(group)
        if len(rows) == 1:  # nearly all rows of a first sync, so worth a way of its own
            yield _fold_one(rows[0], layout)
        else:
            yield _fold_many(key, rows, layout)


def _fold_one(change: Change, layout: int) -> Folded:
    image = f"{change.rowid} {layout} {change.payload}"
    if change.change_type in _TAKES_AWAY:
        return Folded(change.key, change.version, image, "", change.belongs_to)
    return Folded(change.key, change.version, "", image, change.belongs_to)


def _fold_many(key: str, rows: list[Change], layout: int) -> Folded:
    first: dict[int, Change] = {}
    last: dict[int, Change] = {}
    for change in rows:
        first.setdefault(change.rowid, change)
        last[change.rowid] = change
    base = [change for change in first.values() if change.change_type in _TAKES_AWAY]
    target = [change for change in last.values() if change.change_type not in _TAKES_AWAY]
    return Folded(
        key,
        max(change.version for change in rows),
        _image(base, layout),
        _image(target, layout),
        rows[0].belongs_to,
    )


def _image(changes: list[Change], layout: int) -> str:
    return "\n".join([f"{change.rowid} {layout} {change.payload}" for change in changes])
