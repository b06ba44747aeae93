"""A frontier as one Parquet file: its units are the rows, all else is in the file's key-value pairs."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, BinaryIO, TypeAlias

import orjson
import pyarrow as pa

from ondatra_dagster.delivery.frontier import Frontier, FrontierUnit
from ondatra_dagster.errors import StateError
from ondatra_dagster.tracking import parquet_files

FORMAT = 1
_NOTE = "ondatra.frontier"
_SCALARS = (
    "sync_id",
    "run_id",
    "table_id",
    "watermark",
    "invalid_watermark",
    "base_url",
    "known_since",
    "state_id",
)
_SCHEMA = pa.schema(
    {
        "key": pa.string(),
        "version": pa.int64(),
        "state": pa.string(),
        "base": pa.string(),
        "tried": pa.string(),
        "target": pa.string(),
        "attempts": pa.int64(),
        "due_at": pa.float64(),
        "message": pa.string(),
        "job_ref": pa.string(),
        "belongs_to": pa.string(),
        "is_context": pa.int64(),
        "key_renewals": pa.int64(),
        "set_at": pa.float64(),
    }
)
_REPETITIVE = frozenset({"version", "state", "attempts", "message", "job_ref", "is_context", "key_renewals"})

Opener: TypeAlias = Callable[[], AbstractContextManager[BinaryIO]]


@dataclasses.dataclass(frozen=True, slots=True)
class StoredUnits:
    """The units of a frontier that lie in its file: read anew by each loop over them, a part at a time."""

    opened: Opener

    def __iter__(self) -> Iterator[FrontierUnit]:
        with self.opened() as file:
            for row in parquet_files.read(file, _SCHEMA.names):
                yield FrontierUnit._make(row)


def write_frontier(file: BinaryIO, frontier: Frontier) -> None:
    """Put the whole frontier into an empty file, its units a part at a time."""
    batches = (
        pa.RecordBatch.from_arrays(parquet_files.arrays(part, _SCHEMA), schema=_SCHEMA)
        for part in parquet_files.in_parts(frontier.units, weigh=_length)
    )
    note = orjson.dumps(
        {
            "format": FORMAT,
            **{name: getattr(frontier, name) for name in _SCALARS},
            "written_at": frontier.written_at,
            "layouts": {str(layout_id): layout for layout_id, layout in frontier.layouts.items()},
            "notes": dict(frontier.notes),
        }
    )
    parquet_files.write(file, _SCHEMA, batches, repetitive=_REPETITIVE, notes={_NOTE: note.decode()})


def read_frontier(opened: Opener, address: str) -> Frontier:
    """The frontier in the file that `opened` opens; its units stay in there until one loops over them."""
    with opened() as file:
        note: dict[str, Any] = orjson.loads(parquet_files.notes_of(file).get(_NOTE, "{}"))
    if note.get("format") != FORMAT:
        raise StateError(f"{address} isn't a frontier that this ondatra knows; use the one that wrote it")
    return Frontier(
        **{name: note[name] for name in _SCALARS},
        written_at=datetime.fromisoformat(note["written_at"]),
        layouts={int(layout_id): layout for layout_id, layout in note["layouts"].items()},
        notes=note.get("notes", {}),
        units=StoredUnits(opened),
    )


def _length(unit: FrontierUnit) -> int:
    return len(unit.target) + len(unit.base or "") + len(unit.tried or "")
