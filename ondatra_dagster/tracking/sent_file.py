"""What is kept of runs whose records are kept no more: the newest acknowledged record of each key, in a file.

Which record that is, sync says.
"""

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from ondatra_dagster.errors import StateError
from ondatra_dagster.tracking import parquet_files
from ondatra_dagster.tracking.record import DELIVERED_COLUMNS, PAYLOAD_COLUMN, REPETITIVE, SCHEMA, Delivered

FORMAT = 1
_NOTE = "ondatra.sent"
_COLUMNS = (*DELIVERED_COLUMNS, PAYLOAD_COLUMN)
_SCHEMA = pa.schema([SCHEMA.field(name) for name in _COLUMNS])


def write_sent(file: BinaryIO, ends: Iterable[Delivered], *, through: str) -> None:
    """Put records with their payloads into an empty file; `through` is the newest run that it is about."""
    batches = (
        pa.RecordBatch.from_arrays(parquet_files.arrays(part, _SCHEMA), schema=_SCHEMA)
        for part in parquet_files.in_parts(ends, weigh=lambda end: len(end.payload))
    )
    note = orjson.dumps({"format": FORMAT, "through": through}).decode()
    repetitive = REPETITIVE.intersection(_COLUMNS)
    parquet_files.write(file, _SCHEMA, batches, repetitive=repetitive, notes={_NOTE: note})


def sent_through(file: BinaryIO) -> str:
    """The newest run that such a file speaks for."""
    note: dict[str, Any] = orjson.loads(parquet_files.notes_of(file).get(_NOTE, "{}"))
    if note.get("format") != FORMAT:
        raise StateError(
            "what is kept of older runs isn't in a form that this ondatra knows; use the one that wrote it"
        )
    return str(note["through"])


def read_sent(file: BinaryIO, *, with_payload: bool) -> Iterator[Delivered]:
    columns = _COLUMNS if with_payload else DELIVERED_COLUMNS
    for row in parquet_files.read(file, columns):
        yield Delivered(*row)
