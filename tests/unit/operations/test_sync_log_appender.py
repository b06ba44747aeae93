"""The sync log: it has every published record exactly once, even after crashes."""

import dataclasses
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from support.files import sample_records
from support.files.tracking_locations import TrackingLocation
from support.random_histories.random_seeds import new_random
from support.spark.plain_sync_log_table import PlainSyncLogTable

from ondatra_dagster.errors import StateError, WarehouseError
from ondatra_dagster.operations.sync_log_appender import SyncLogAppender
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings, read_settings
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.records.metadata_and_heartbeat_format import RunMetadata
from ondatra_dagster.records.record_schema import SyncRecord
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.records.source_and_destination_tables import SyncEndpoints
from ondatra_dagster.records.sync_log_feed import SYNC_LOG_SCHEMA

CRM, ERP = SyncEndpoints("sync.crm", "HubSpot", "Contact"), SyncEndpoints("sync.erp", "erp_push", "erp_push")
FIRST, SECOND, THIRD = "20261118T120102Z-aaaaaa", "20261118T120202Z-aaaaaa", "20261118T120302Z-aaaaaa"
BEGAN, ENDED = (datetime(2026, 11, 18, 12, 1, second, tzinfo=UTC) for second in (2, 3))


class DiedError(Exception):
    """A crash: the process ends here."""


def a_record(identifier: str = "7", **fields: object) -> SyncRecord:
    own = {"batch_started_at": BEGAN, "batch_ended_at": ENDED, "rowid": 1}
    return sample_records.build_record(identifier, payload=f'{{"id":{identifier}}}', **own)._replace(**fields)


def begin(store: RecordStore, ends: SyncEndpoints, run_id: str) -> None:
    metadata = RunMetadata(
        source=ends.source_endpoint,
        destination=ends.destination_endpoint,
        destination_object=ends.object_endpoint,
        started_at=BEGAN,
        columns=(),
        dagster_run_id=None,
        version_from=None,
        version_to=3,
        counts={},
    )
    store.write_metadata(ends.model, run_id, metadata)


def publish(store: RecordStore, run_id: str, *identifiers: str, ends: SyncEndpoints = CRM, number: int = 0) -> None:
    begin(store, ends, run_id)
    records = [a_record(identifier) for identifier in identifiers]
    store.publish_records(ends.model, run_id, RecordFileType.UPDATED, number, records)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings(tmp_path, {})


@pytest.fixture
def table(settings: Settings) -> PlainSyncLogTable:
    return PlainSyncLogTable(settings)


@pytest.fixture
def log(settings: Settings, tracking_location: TrackingLocation) -> SyncLogAppender:
    return SyncLogAppender(settings, tracking_location.open_store())


def identifiers(table: PlainSyncLogTable) -> list[str]:
    return [row["record_identifier"] for row in table.read_rows()]


def test_a_record_in_the_log_names_its_source_and_its_destination(
    log: SyncLogAppender, table: PlainSyncLogTable, tracking_location: TrackingLocation
) -> None:
    """Its ids are the same as in the fact tables."""
    begin(tracking_location.open_store(), CRM, FIRST)
    refused = a_record(status="rejected", status_message="no such plan")
    tracking_location.open_store().publish_records("sync.crm", FIRST, RecordFileType.UPDATED, 0, [refused])
    assert 1 == log.append(table)
    expected = {
        "log_id": f"sync.crm/{FIRST}/records_updated.0/0",
        "sync_id": "sync.crm",
        "sync_run_id": FIRST,
        "record_identifier": "7",
        "record_payload": '{"id":7}',
        "operation": "upsert",
        "status": "rejected",
        "status_message": "no such plan",
        "batch_started_at": BEGAN,
        "batch_completed_at": ENDED,
        "source_object_id": "sync.crm",
        "destination_id": "HubSpot",
        "destination_object_id": "HubSpot/Contact",
    }
    assert list(expected) == SYNC_LOG_SCHEMA.names
    assert [expected] == table.read_rows()


def test_one_commit_adds_the_records_of_all_syncs_and_earlier_runs(
    log: SyncLogAppender, table: PlainSyncLogTable, tracking_location: TrackingLocation
) -> None:
    """Runs without Spark leave their records to a run with Spark, and a commit takes a second."""
    publish(tracking_location.open_store(), FIRST, "1", "2")
    publish(tracking_location.open_store(), SECOND, "3")
    publish(tracking_location.open_store(), SECOND, "4", number=1)
    publish(tracking_location.open_store(), FIRST, "5", ends=ERP)
    assert 5 == log.append(table)
    assert (1, ["1", "2", "3", "4", "5"]) == (table.commit_count, identifiers(table))


def test_the_table_is_not_opened_when_no_record_is_missing(
    log: SyncLogAppender, table: PlainSyncLogTable, tracking_location: TrackingLocation
) -> None:
    """Otherwise a run with nothing to do would start Spark. A run without records has nothing to add either."""

    def opened() -> PlainSyncLogTable:
        raise AssertionError("nobody should ask for it")

    assert {"records": 0} == log.append_missing(opened).counts
    tracking_location.open_store().publish_records("sync.crm", FIRST, RecordFileType.UPDATED, 0, ())
    assert {"records": 0} == log.append_missing(opened).counts
    publish(tracking_location.open_store(), SECOND, "1")
    assert {"records": 1} == log.append_missing(lambda: table).counts
    assert {"records": 0} == log.append_missing(opened).counts


def test_records_that_a_run_publishes_later_are_added_later(
    log: SyncLogAppender, table: PlainSyncLogTable, tracking_location: TrackingLocation
) -> None:
    """Two commands may run at once, or the next run may publish the records of a run that died."""
    publish(tracking_location.open_store(), FIRST, "1")
    log.append(table)
    publish(tracking_location.open_store(), FIRST, "2", number=1)
    tracking_location.open_store().publish_records(
        "sync.crm", FIRST, RecordFileType.DELETED, 0, [a_record("3", operation="delete")]
    )
    assert 2 == log.append(table)
    publish(tracking_location.open_store(), SECOND, "4")
    assert 1 == log.append(table)
    assert ["1", "3", "2", "4"] == identifiers(table)


def test_records_of_another_project_in_the_same_place_are_not_added(
    log: SyncLogAppender, table: PlainSyncLogTable, tracking_location: TrackingLocation
) -> None:
    """Projects may share a bucket, but each has its own warehouse."""
    publish(tracking_location.open_store(workspace="theirs"), FIRST, "1", ends=ERP)
    publish(tracking_location.open_store(), FIRST, "2")
    assert 1 == log.append(table)
    assert ["2"] == identifiers(table)


def test_more_records_than_fit_in_memory_are_added_in_several_commits(
    settings: Settings, table: PlainSyncLogTable, tracking_location: TrackingLocation
) -> None:
    """A month without Spark may leave more records than memory holds."""
    publish(tracking_location.open_store(), FIRST, *map(str, range(25_000)))
    publish(tracking_location.open_store(), SECOND, "x")
    assert 25_001 == SyncLogAppender(settings, tracking_location.open_store(), commit_bytes=1).append(table)
    assert (4, [*map(str, range(25_000)), "x"]) == (table.commit_count, identifiers(table))


@pytest.mark.parametrize("tracking_location", ["folder"], indirect=True)
@pytest.mark.parametrize("number", range(20))
def test_each_record_is_in_the_log_once_after_any_crash(
    settings: Settings, tracking_location: TrackingLocation, number: int
) -> None:
    """The process is killed before and after the commit, the next run continues a run that died, and files arrive
    late."""
    chance = new_random(number)

    def may_die(_: str) -> None:
        if chance.random() < 0.3:
            raise DiedError

    table = PlainSyncLogTable(settings, on_commit=may_die)
    log = SyncLogAppender(settings, tracking_location.open_store(), commit_bytes=chance.choice([1, 2_000, 10**9]))
    expected = []
    for published in _published(tracking_location.open_store(), chance):
        expected.append(published)
        if chance.random() < 0.4:
            for _ in range(chance.randint(1, 3)):
                try:
                    log.append(table)
                except DiedError:
                    continue
    log.append(dataclasses.replace(table, on_commit=lambda _: None))
    log_names = [row["log_id"].rpartition("/")[0] for row in table.read_rows()]
    assert sorted(name for name, rows in expected for _ in range(rows)) == sorted(log_names)
    assert len(log_names) == len({row["log_id"] for row in table.read_rows()})


def _published(store: RecordStore, chance: random.Random) -> Iterator[tuple[str, int]]:
    """Publish files as runs do; yield each file's name in the log and its number of records."""
    for minute in range(12):
        ends = chance.choice([CRM, ERP])
        run_id = f"20261118T12{minute:02}00Z-aaaaaa"
        begin(store, ends, run_id)
        numbers = dict.fromkeys(RecordFileType, 0)
        for _ in range(chance.randint(0, 4)):
            kind = chance.choice(list(RecordFileType))
            rows = chance.randint(0, 3)
            records = [a_record(str(number)) for number in range(rows)]
            store.publish_records(ends.model, run_id, kind, numbers[kind], records)
            yield f"{ends.model}/{run_id}/{kind}.{numbers[kind]}", rows
            numbers[kind] += 1


@pytest.mark.parametrize("tracking_location", ["folder"], indirect=True)
def test_commits_of_other_programs_do_not_matter(
    log: SyncLogAppender, table: PlainSyncLogTable, tracking_location: TrackingLocation
) -> None:
    """OPTIMIZE writes no commit metadata, and a user's DELETE writes other metadata."""
    publish(tracking_location.open_store(), FIRST, "1")
    log.append(table)
    table.commit_actions({"commitInfo": {"operation": "OPTIMIZE"}})
    table.commit_actions({"commitInfo": {"operation": "DELETE", "userMetadata": "gdpr"}})
    publish(tracking_location.open_store(), SECOND, "2")
    assert 1 == log.append(table)
    assert ["1", "2"] == identifiers(table)


@pytest.mark.parametrize("file", ["metadata.json", "records_updated.0.parquet"])
def test_the_message_about_a_damaged_file_names_it(
    log: SyncLogAppender, table: PlainSyncLogTable, tracking_location: TrackingLocation, file: str
) -> None:
    """No record of its run is added, so that the user can restore the file. Without metadata the ids are unknown."""
    publish(tracking_location.open_store(), FIRST, "1")
    folder = f"sync_tracking_datasets/1/sync.crm/{FIRST}"
    tracking_location.write_file(f"{folder}/{file}", b"{")
    with pytest.raises(StateError, match=rf"{file} can't be read .*; bring it back"):
        log.append(table)
    tracking_location.filesystem.delete_file(f"{tracking_location.root}/{folder}/{file}")
    log.append(table)
    assert [None] * (file == "metadata.json") == [row["destination_id"] for row in table.read_rows()]


@pytest.mark.parametrize("tracking_location", ["folder"], indirect=True)
def test_nothing_is_added_to_a_table_that_no_longer_says_what_is_in_it(
    log: SyncLogAppender, table: PlainSyncLogTable, tracking_location: TrackingLocation
) -> None:
    """A guess could add records twice."""
    publish(tracking_location.open_store(), FIRST, "1")
    log.append(table)
    for file in (table.path / "_delta_log").iterdir():
        file.write_bytes(file.read_bytes().replace(b"ondatra_sync_log", b"other"))
    with pytest.raises(WarehouseError, match=r"no longer say what it contains.*; move .* away"):
        log.append(table)


def test_the_log_has_a_type_for_each_column() -> None:
    """Readers of the log rely on the types."""
    assert {pa.string(), pa.timestamp("us", "UTC")} == set(SYNC_LOG_SCHEMA.types)
