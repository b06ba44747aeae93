"""The documents' queries, run on our files: they work unchanged, except for the path."""

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from support.files.tracking_locations import TrackingLocation

from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.records.parquet_search import RunRecords, search_runs
from ondatra_dagster.records.record_export import write_export
from ondatra_dagster.records.record_query import RecordQuery
from ondatra_dagster.records.record_schema import SyncRecord
from ondatra_dagster.records.record_store import RecordStore

RUN_ID = "20261118T120102Z-kqzwtm"
LATER = "20261118T120202Z-aaaaaa"
BUCKET = "s3://your_bucket/sync_tracking_datasets/1/2/3"
FAILED_BY_MESSAGE = """
SELECT status_message, ARRAY_AGG(identifier) AS rejected_records
FROM read_parquet('s3://your_bucket/sync_tracking_datasets/1/2/3/*.parquet', union_by_name=True)
WHERE status = 'rejected'
GROUP BY 1
"""


def a_record(identifier: str, status: str, message: str | None = None) -> SyncRecord:
    return SyncRecord(
        identifier=identifier,
        payload=f'{{"id":"{identifier}"}}',
        operation="upsert",
        status=status,
        status_message=message,
        batch_started_at=datetime(2026, 11, 18, 12, 1, 2, tzinfo=UTC),
        batch_ended_at=datetime(2026, 11, 18, 12, 1, 3, tzinfo=UTC),
        rowid=1,
        change_type="insert",
        table_version=1,
        table_id="t-1",
    )


def rejected_by_message(address: str) -> dict[str, set[str]]:
    rows = duckdb.sql(FAILED_BY_MESSAGE.replace(BUCKET, address)).fetchall()
    return {message: set(identifiers) for message, identifiers in rows}


def test_the_query_for_failed_records_runs_on_a_run_folder(tmp_path: Path) -> None:
    """Users copy this query first; it needs all files of a run to fit together."""
    store = RecordStore(str(tmp_path / "a folder"))
    for number, records in enumerate(
        (
            [a_record("1", "succeeded"), a_record("2", "rejected", "no such plan")],
            [a_record("3", "rejected", "no such plan"), a_record("4", "rejected", "bad e-mail")],
        )
    ):
        store.publish_records("sync.hubspot", RUN_ID, RecordFileType.UPDATED, number, records)
    gone = a_record("5", "rejected", "still in use")._replace(operation="delete", change_type="delete")
    store.publish_records("sync.hubspot", RUN_ID, RecordFileType.DELETED, 0, [gone])
    store.publish_records("sync.hubspot", RUN_ID, RecordFileType.INVALID, 0, [a_record("6", "NULL", "the key is null")])

    assert {"no such plan": {"2", "3"}, "bad e-mail": {"4"}, "still in use": {"5"}} == rejected_by_message(
        store.run_address("sync.hubspot", RUN_ID)
    )


def test_the_query_for_failed_records_runs_when_nothing_was_sent(tmp_path: Path) -> None:
    """A run without records has a file without rows."""
    store = RecordStore(str(tmp_path))
    store.publish_records("sync.hubspot", RUN_ID, RecordFileType.UPDATED, 0, ())

    assert {} == rejected_by_message(store.run_address("sync.hubspot", RUN_ID))


@pytest.mark.parametrize("tracking_location", ["folder", "S3"], indirect=True)
def test_the_query_runs_over_all_runs_of_all_syncs(tracking_location: TrackingLocation) -> None:
    """With */* in place of the run, it reads files of all runs: they have the same columns and types, also if empty."""
    store = tracking_location.open_store()
    refused = a_record("2", "rejected", "no such plan")
    store.publish_records("sync.hubspot", RUN_ID, RecordFileType.UPDATED, 0, [a_record("1", "succeeded"), refused])
    store.publish_records("sync.hubspot", RUN_ID, RecordFileType.INVALID, 0, [a_record("6", "NULL")])
    store.publish_records("sync.hubspot", LATER, RecordFileType.UPDATED, 0, ())
    gone = a_record("3", "rejected", "still in use")._replace(operation="delete", change_type="delete")
    store.publish_records("sync.erp", LATER, RecordFileType.DELETED, 0, [gone])

    with duckdb.connect() as database:
        address = duckdb_address(tracking_location, database)
        query = FAILED_BY_MESSAGE.replace(BUCKET, f"{address}/sync_tracking_datasets/1/*/*")
        assert {"no such plan": ["2"], "still in use": ["3"]} == dict(database.sql(query).fetchall())
        files = database.sql(f"select * from parquet_schema('{address}/sync_tracking_datasets/1/*/*/*.parquet')")
        by_file = {}
        for file, *of_column in files.fetchall():
            by_file.setdefault(file, []).append(of_column[:6])
        assert 4 == len(by_file)
        assert 1 == len({str(columns) for columns in by_file.values()})


def duckdb_address(tracking_location: TrackingLocation, database: duckdb.DuckDBPyConnection) -> str:
    """Return an address that DuckDB opens without an extension, which it would have to fetch."""
    if tracking_location.address == tracking_location.root:
        return tracking_location.address
    files = ArrowFSWrapper(tracking_location.filesystem)
    database.register_filesystem(files)
    return f"{files.protocol}://{tracking_location.root.lstrip('/')}"


def test_the_columns_are_those_of_the_document(tmp_path: Path) -> None:
    """The document's columns come first, in its order, and times have a timestamp type."""
    store = RecordStore(str(tmp_path))
    path = store.publish_records("sync.hubspot", RUN_ID, RecordFileType.UPDATED, 0, ())

    columns = duckdb.read_parquet(path)
    assert [
        ("identifier", "VARCHAR"),
        ("record_payload", "VARCHAR"),
        ("operation", "VARCHAR"),
        ("status", "VARCHAR"),
        ("status_message", "VARCHAR"),
        ("batch_started_at", "TIMESTAMP WITH TIME ZONE"),
        ("batch_ended_at", "TIMESTAMP WITH TIME ZONE"),
        ("sync_configuration_id", "VARCHAR"),
        ("sync_run_id", "VARCHAR"),
    ] == list(zip(columns.columns, map(str, columns.types), strict=True))[:9]


def test_the_query_of_the_records_page_runs(tmp_path: Path) -> None:
    """It reads the files of all runs, and a download."""
    page = (Path(__file__).parents[1] / "docs" / "records.md").read_text(encoding="utf-8")
    query = page.partition("```sql\n")[2].partition("```")[0]
    named = ".ondatra/tracking/sync_tracking_datasets/1/sync.crm/*/*.parquet"
    assert named in query
    store = RecordStore(str(tmp_path))
    records = [a_record("1", "succeeded"), a_record("2", "rejected", "no"), a_record("3", "rejected", "no")]
    store.publish_records("sync.crm", RUN_ID, RecordFileType.UPDATED, 0, records)
    run = RunRecords(run_id=RUN_ID)
    write_export(search_runs(store, "sync.crm", RecordQuery(), [run]), tmp_path / "all.parquet")

    every = tmp_path / "sync_tracking_datasets" / "1" / "sync.crm" / "*" / "*.parquet"
    for address in map(str, (every, tmp_path / "all.parquet")):
        assert [("no", 2, "2")] == duckdb.sql(query.replace(named, address)).fetchall()
