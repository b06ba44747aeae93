"""The fact tables, which name the sources and destinations of syncs, for joins with records."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import BinaryIO, NamedTuple, TypeAlias

import orjson
import pyarrow as pa

from ondatra_dagster.records import parquet_files
from ondatra_dagster.records.run_metadata_and_heartbeat import Endpoint


class SyncEndpoints(NamedTuple):
    """The endpoints of one sync: its model, and its object at the destination."""

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


class SourceObjectRow(NamedTuple):
    id: str
    type: str
    name: str
    model_id: str
    # the other things that the published format can send from, which aren't here
    business_object_id: None = None
    filter_segment_id: None = None
    cohort_id: None = None


class DestinationRow(NamedTuple):
    id: str
    type: str
    name: str


class DestinationObjectRow(NamedTuple):
    id: str
    type: str
    name: str


# the tables by the names of their files, which are the fields of Facts
FACT_TABLES = {
    "source_objects": SourceObjectRow._fields,
    "destinations": DestinationRow._fields,
    "destination_objects": DestinationObjectRow._fields,
}
FactRow: TypeAlias = tuple[str | None, ...]  # its id comes first
WORKSPACES_NOTE = "ondatra.workspaces"  # a note in each file: which workspace has which of its rows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FactTables:
    """The rows of all fact tables, each sorted and without duplicates."""

    source_objects: tuple[SourceObjectRow, ...]
    destinations: tuple[DestinationRow, ...]
    destination_objects: tuple[DestinationObjectRow, ...]


def build_fact_tables(syncs: Iterable[SyncEndpoints]) -> FactTables:
    """One row for each model, destination and object that the syncs use."""
    ends = list(syncs)
    return FactTables(
        source_objects=tuple(sorted({_source_object(sync) for sync in ends})),
        destinations=tuple(sorted({_destination(sync) for sync in ends})),
        destination_objects=tuple(sorted({_destination_object(sync) for sync in ends})),
    )


def write_fact_table(file: BinaryIO, table: str, by_workspace: Mapping[str, Iterable[FactRow]]) -> None:
    """Put one of FACT_TABLES into an empty file: all workspaces' rows, each once; its columns are text."""
    schema = pa.schema(dict.fromkeys(FACT_TABLES[table], pa.string()))
    rows = {row[0]: row for rows in by_workspace.values() for row in rows}
    batches = (
        pa.RecordBatch.from_arrays(parquet_files.to_arrays(part, schema), schema=schema)
        for part in parquet_files.chunk_rows(sorted(rows.values(), key=lambda row: row[0] or ""), weigh=len)
    )
    ids = {workspace: [row[0] for row in rows] for workspace, rows in sorted(by_workspace.items())}
    parquet_files.write_file(file, schema, batches, notes={WORKSPACES_NOTE: orjson.dumps(ids).decode()})


def read_fact_table(file: BinaryIO, table: str) -> dict[str, tuple[FactRow, ...]]:
    """The rows of each workspace, as write_fact_table() left them."""
    ids = orjson.loads(parquet_files.read_notes(file).get(WORKSPACES_NOTE, "{}"))
    file.seek(0)
    rows = {row[0]: row for row in parquet_files.read_rows(file, FACT_TABLES[table])}
    return {workspace: tuple(rows[id_] for id_ in of if id_ in rows) for workspace, of in ids.items()}


def _source_object(sync: SyncEndpoints) -> SourceObjectRow:
    source = sync.source_endpoint
    return SourceObjectRow(id=source.id, type=source.type, name=sync.model, model_id=sync.model)


def _destination(sync: SyncEndpoints) -> DestinationRow:
    destination = sync.destination_endpoint
    return DestinationRow(id=destination.id, type=destination.type, name=sync.destination)


def _destination_object(sync: SyncEndpoints) -> DestinationObjectRow:
    found = sync.object_endpoint
    return DestinationObjectRow(id=found.id, type=found.type, name=sync.object)
