"""The fact tables: what syncs send from and to, for queries that join them with records."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import BinaryIO, NamedTuple, TypeAlias

import orjson
import pyarrow as pa

from ondatra_dagster.tracking import parquet_files
from ondatra_dagster.tracking.metadata import Endpoint


class SyncEnds(NamedTuple):
    """What one sync of the project connects."""

    model: str
    destination: str  # the API dict's "destination"
    object: str  # and its "object"

    @property
    def source_endpoint(self) -> Endpoint:
        return Endpoint(type="DataWarehouse::Query", id=self.model)

    @property
    def destination_endpoint(self) -> Endpoint:
        return Endpoint(type=f"{self.destination}::Connection", id=self.destination)

    @property
    def object_endpoint(self) -> Endpoint:
        type_ = f"{self.destination}::ObjectTypes::{self.object}"
        return Endpoint(type=type_, id=f"{self.destination}/{self.object}")


class SourceObject(NamedTuple):
    id: str
    type: str
    name: str
    model_id: str
    # the other things that the published format can send from, which aren't here
    business_object_id: None = None
    filter_segment_id: None = None
    cohort_id: None = None


class Destination(NamedTuple):
    id: str
    type: str
    name: str


class DestinationObject(NamedTuple):
    id: str
    type: str
    name: str


# the tables by the names of their files, which are the fields of Facts
FACT_TABLES = {
    "source_objects": SourceObject._fields,
    "destinations": Destination._fields,
    "destination_objects": DestinationObject._fields,
}


FactRow: TypeAlias = tuple[str | None, ...]  # its id comes first
WORKSPACES = "ondatra.workspaces"  # a note in each file: which workspace has which of its rows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The rows of all fact tables, each sorted and without doubles."""

    source_objects: tuple[SourceObject, ...]
    destinations: tuple[Destination, ...]
    destination_objects: tuple[DestinationObject, ...]


def facts_of(syncs: Iterable[SyncEnds]) -> Facts:
    """One row for each model, destination and object that the syncs use."""
    ends = list(syncs)
    return Facts(
        source_objects=tuple(sorted({_source_object(sync) for sync in ends})),
        destinations=tuple(sorted({_destination(sync) for sync in ends})),
        destination_objects=tuple(sorted({_destination_object(sync) for sync in ends})),
    )


def write_fact_table(file: BinaryIO, table: str, by_workspace: Mapping[str, Iterable[FactRow]]) -> None:
    """Put one of FACT_TABLES into an empty file: all workspaces' rows, each once; its columns are text."""
    schema = pa.schema(dict.fromkeys(FACT_TABLES[table], pa.string()))
    rows = {row[0]: row for rows in by_workspace.values() for row in rows}
    batches = (
        pa.RecordBatch.from_arrays(parquet_files.arrays(part, schema), schema=schema)
        for part in parquet_files.in_parts(sorted(rows.values(), key=_id), weigh=len)
    )
    ids = {workspace: [row[0] for row in rows] for workspace, rows in sorted(by_workspace.items())}
    parquet_files.write(file, schema, batches, notes={WORKSPACES: orjson.dumps(ids).decode()})


def read_fact_table(file: BinaryIO, table: str) -> dict[str, tuple[FactRow, ...]]:
    """The rows of each workspace, as write_fact_table() left them."""
    ids = orjson.loads(parquet_files.notes_of(file).get(WORKSPACES, "{}"))
    file.seek(0)
    rows = {row[0]: row for row in parquet_files.read(file, FACT_TABLES[table])}
    return {workspace: tuple(rows[id_] for id_ in of if id_ in rows) for workspace, of in ids.items()}


def _id(row: FactRow) -> str:
    return row[0] or ""


def _source_object(sync: SyncEnds) -> SourceObject:
    source = sync.source_endpoint
    return SourceObject(id=source.id, type=source.type, name=sync.model, model_id=sync.model)


def _destination(sync: SyncEnds) -> Destination:
    destination = sync.destination_endpoint
    return Destination(id=destination.id, type=destination.type, name=sync.destination)


def _destination_object(sync: SyncEnds) -> DestinationObject:
    found = sync.object_endpoint
    return DestinationObject(id=found.id, type=found.type, name=sync.object)
