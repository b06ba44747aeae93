"""Which shape the delivery keys of a kind have: what its queue is opened with."""

import contextlib
from pathlib import Path

from ondatra_dagster.delivery.push.push_config import WHOLE
from ondatra_dagster.delivery.queue.tables import Queue, open_queue
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.project.kinds import Kind


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


def open_queue_of(kind: Kind, path: Path, *, batch_size: int) -> contextlib.AbstractContextManager[Queue]:
    """The queue at `path`, to be written; BusyError when another process does."""
    shape = shape_of(kind, batch_size=batch_size)
    return open_queue(
        path,
        shape=shape,
        replaces_rows=kind.replaces_rows and shape is not Shape.MIRROR,
        is_whole_table=is_whole(kind, shape),
    )
