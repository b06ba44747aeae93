"""Rows that only tell push what was there before: once they are delivered, no record is kept of them.

An update's image before has none in any case: the record is that of the image after.
"""

from collections.abc import Callable

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.delivery.target import Shape

_UPDATED = frozenset({ChangeType.UPDATE_PREIMAGE})
_REPLACED = frozenset({ChangeType.UPDATE_PREIMAGE, ChangeType.DELETE})


def context_of(shape: Shape, *, has_target: bool) -> frozenset[ChangeType]:
    """The changes of a unit that are its context."""
    return _REPLACED if shape is Shape.GROUP and has_target else _UPDATED


def untold(
    shape: Shape, *, replaces_rows: bool, is_context: bool, has_target: Callable[[], bool]
) -> frozenset[ChangeType]:
    """The same, and the deletes that stand beside the inserts that take their rows' places."""
    if is_context or (replaces_rows and has_target()):
        return _REPLACED
    # a unit's target is put together for who needs it, and nearly none does
    return _UPDATED if shape is not Shape.GROUP else context_of(shape, has_target=has_target())
