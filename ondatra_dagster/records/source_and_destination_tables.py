"""The fact tables, which list the sources and destinations of syncs, for joins with records."""

from collections.abc import Iterable, Mapping
from typing import BinaryIO, NamedTuple, TypeAlias

import orjson
import pyarrow as pa

from ondatra_dagster.records import parquet_files
from ondatra_dagster.records.metadata_and_heartbeat_format import Endpoint


class SyncEndpoints(NamedTuple):
    """The endpoints of one sync: its model, its destination, and its object at the destination."""

    model: str
    destination: str  # the API dict's "destination"
    object: str  # the API dict's "object"

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


# the columns of each fact table, by the table's file name
FACT_TABLES = {
    "source_objects": (
        *("id", "type", "name", "model_id"),
        # sources that the published format knows and ondatra doesn't have
        *("business_object_id", "filter_segment_id", "cohort_id"),
    ),
    "destinations": ("id", "type", "name"),
    "destination_objects": ("id", "type", "name"),
}
FactRow: TypeAlias = tuple[str | None, ...]  # the first value is the id
WORKSPACES_NOTE = "ondatra.workspaces"  # the note in each file with the ids of each workspace's rows


def build_fact_tables(syncs: Iterable[SyncEndpoints]) -> dict[str, tuple[FactRow, ...]]:
    """Return sorted rows for the models, destinations and objects of the syncs, by the names of FACT_TABLES."""
    rows: dict[str, set[FactRow]] = {table: set() for table in FACT_TABLES}
    for sync in syncs:
        source, destination, object_ = sync.source_endpoint, sync.destination_endpoint, sync.object_endpoint
        rows["source_objects"].add((source.id, source.type, sync.model, sync.model, None, None, None))
        rows["destinations"].add((destination.id, destination.type, sync.destination))
        rows["destination_objects"].add((object_.id, object_.type, sync.object))
    return {
        table: tuple(sorted(table_rows, key=lambda row: [str(value) for value in row]))
        for table, table_rows in rows.items()
    }


def write_fact_table(file: BinaryIO, table: str, by_workspace: Mapping[str, Iterable[FactRow]]) -> None:
    """Write one of FACT_TABLES to an empty file, with the rows of all workspaces; all columns are text.

    A row that several workspaces have is written once.
    """
    schema = pa.schema(dict.fromkeys(FACT_TABLES[table], pa.string()))
    rows = {row[0]: row for rows in by_workspace.values() for row in rows}
    batches = parquet_files.build_batches(sorted(rows.values(), key=lambda row: row[0] or ""), schema, len)
    ids = {workspace: [row[0] for row in rows] for workspace, rows in sorted(by_workspace.items())}
    parquet_files.write_file(file, schema, batches, notes={WORKSPACES_NOTE: orjson.dumps(ids).decode()})


def read_fact_table(file: BinaryIO, table: str) -> dict[str, tuple[FactRow, ...]]:
    """Return the rows of each workspace from a file that write_fact_table() wrote."""
    ids = orjson.loads(parquet_files.read_notes(file).get(WORKSPACES_NOTE, "{}"))
    file.seek(0)
    rows = {row[0]: row for row in parquet_files.read_rows(file, FACT_TABLES[table])}
    return {workspace: tuple(rows[id_] for id_ in row_ids if id_ in rows) for workspace, row_ids in ids.items()}
