"""The tracking store, in a real folder, in a bucket of a real S3 API, and through fsspec."""

import dataclasses
import errno
import hashlib
import io
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.files import sample_records
from support.files.tracking_locations import TrackingLocation

from ondatra_dagster.delivery.queue.snapshot_and_restore import QueueSnapshot, SnapshotUnit
from ondatra_dagster.errors import SettingsError, StateError
from ondatra_dagster.project.settings.storage_access import StorageAddress, read_s3_access
from ondatra_dagster.records import parquet_files
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.records.metadata_and_heartbeat_format import Endpoint, RunMetadata
from ondatra_dagster.records.record_schema import DeliveredRecord, SyncRecord
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.records.source_and_destination_tables import SyncEndpoints, build_fact_tables
from ondatra_dagster.row_changes import Column

STARTED = datetime(2026, 11, 18, 12, 1, 2, 345678, tzinfo=UTC)
ENDED = datetime(2026, 11, 18, 12, 1, 3, tzinfo=UTC)
FIRST, SECOND, THIRD = "20261118T120102Z-aaaaaa", "20261118T120202Z-aaaaaa", "20261118T120302Z-aaaaaa"
FOLDER = "sync_tracking_datasets/1/sync.hubspot"
SNAPSHOT = f"queue_snapshots/1/sync.hubspot/{FIRST}.parquet"
MOMENT = pa.timestamp("us", tz="UTC")
COLUMNS = [
    ("identifier", pa.string()),
    ("record_payload", pa.string()),
    ("operation", pa.string()),
    ("status", pa.string()),
    ("status_message", pa.string()),
    ("batch_started_at", MOMENT),
    ("batch_ended_at", MOMENT),
    ("sync_configuration_id", pa.string()),
    ("sync_run_id", pa.string()),
    ("__ondatra_rowid", pa.int64()),
    ("__ondatra_change_type", pa.string()),
    ("table_version", pa.int64()),
    ("table_id", pa.string()),
]


def a_record(identifier: str = "7", **fields: object) -> SyncRecord:
    own = {"batch_started_at": STARTED, "batch_ended_at": ENDED, "rowid": int(identifier)}
    return sample_records.build_record(identifier, payload=f'{{"id":{identifier}}}', **own)._replace(**fields)


def a_snapshot(run_id: str = FIRST, **fields: object) -> QueueSnapshot:
    return QueueSnapshot(
        **{
            "sync_id": "sync.hubspot",
            "run_id": run_id,
            "table_id": "t-1",
            "watermark": 3,
            "invalid_watermark": -1,
            "base_url": "https://api.example.com",
            "written_at": STARTED,
            "units": (),
            "layouts": {},
        }
        | fields
    )


def some_metadata(**fields: object) -> RunMetadata:
    return RunMetadata(
        **{
            "source": Endpoint("DataWarehouse::Query", "sync.hubspot"),
            "destination": Endpoint("HubSpot::Connection", "HubSpot"),
            "destination_object": Endpoint("HubSpot::ObjectTypes::Contact", "HubSpot/Contact"),
            "started_at": STARTED,
            "columns": (Column("id", "bigint"), Column("email", "string")),
            "dagster_run_id": None,
            "version_from": 1,
            "version_to": 3,
            "counts": {"succeeded": {"insert": 2}},
        }
        | fields
    )


def publish(store: RecordStore, run_id: str, *records: SyncRecord, number: int = 0) -> str:
    return store.publish_records("sync.hubspot", run_id, records[0].batch_type, number, records)


def test_a_record_file_has_the_published_columns_in_order(
    store: RecordStore, tracking_location: TrackingLocation
) -> None:
    """Readers by position or by type have to find the same columns in each file."""
    path = publish(store, FIRST, a_record("7", status="rejected", status_message="no such plan"))

    table = tracking_location.read_parquet(path)
    expected_row = {
        "identifier": "7",
        "record_payload": '{"id":7}',
        "operation": "upsert",
        "status": "rejected",
        "status_message": "no such plan",
        "batch_started_at": STARTED,
        "batch_ended_at": ENDED,
        "sync_configuration_id": "sync.hubspot",
        "sync_run_id": FIRST,
        "__ondatra_rowid": 7,
        "__ondatra_change_type": "insert",
        "table_version": 3,
        "table_id": "t-1",
    }
    assert f"{tracking_location.address}/{FOLDER}/{FIRST}/records_updated.0.parquet" == path
    assert COLUMNS == list(zip(table.schema.names, table.schema.types, strict=True))
    assert [expected_row] == table.to_pylist()


def test_an_empty_file_has_the_same_columns(store: RecordStore, tracking_location: TrackingLocation) -> None:
    """A query over a run's folder must not fail for a run without updates."""
    path = store.publish_records("sync.hubspot", FIRST, RecordFileType.UPDATED, 0, ())

    table = tracking_location.read_parquet(path)
    assert COLUMNS == list(zip(table.schema.names, table.schema.types, strict=True))
    assert 0 == table.num_rows


def test_publishing_the_same_file_again_writes_the_same_bytes(
    store: RecordStore, tracking_location: TrackingLocation
) -> None:
    """After a crash a file is published again. A bucket's versions and checksums must see no difference."""
    records = [a_record(str(number)) for number in range(25_000)]

    first = hashlib.sha256(tracking_location.read_file(publish(store, FIRST, *records))).hexdigest()
    second = hashlib.sha256(tracking_location.read_file(publish(store, FIRST, *records))).hexdigest()

    assert first == second


@pytest.mark.parametrize(
    ("fields", "batch_type"),
    [
        ({}, RecordFileType.UPDATED),
        ({"status": "rejected"}, RecordFileType.UPDATED),
        ({"operation": "append"}, RecordFileType.UPDATED),
        ({"operation": "delete", "status": "rejected"}, RecordFileType.DELETED),
        ({"status": "NULL"}, RecordFileType.INVALID),
        ({"status": "DUPLICATE"}, RecordFileType.INVALID),
    ],
)
def test_the_file_type_of_a_record_follows_from_its_values(fields: dict[str, str], batch_type: RecordFileType) -> None:
    """Deletes and invalid records have separate files. All others are in records_updated."""
    assert batch_type == a_record(**fields).batch_type


def test_readers_never_see_an_unfinished_file(store: RecordStore, tracking_location: TrackingLocation) -> None:
    """A run publishes records before it ends, and a user may query the folder at the same time."""
    seen_midway = []

    def records() -> Iterator[SyncRecord]:
        for number in range(30_000):
            if number == 25_000:  # by now some row groups are on disk
                seen_midway.extend(name for name in tracking_location.list_files() if name.endswith(".parquet"))
            yield a_record(str(number))

    store.publish_records("sync.hubspot", FIRST, RecordFileType.UPDATED, 0, records())

    assert [] == seen_midway
    assert ["records_updated.0.parquet"] == tracking_location.list_files(f"{FOLDER}/{FIRST}")


def test_a_concurrent_reader_reads_only_complete_files(store: RecordStore, tracking_location: TrackingLocation) -> None:
    """A second thread polls the folder while files are written and replaced."""
    folder = f"{FOLDER}/{FIRST}"
    records = [a_record(str(number)) for number in range(2_000)]
    has_ended = threading.Event()
    row_counts: list[int] = []

    def poll() -> None:
        while not has_ended.is_set():
            names = [name for name in tracking_location.list_files(folder) if name.endswith(".parquet")]
            row_counts.extend(tracking_location.read_parquet(f"{folder}/{name}").num_rows for name in names)

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        for round_number in range(60):
            publish(store, FIRST, *records, number=round_number % 6)
    finally:
        has_ended.set()
        reader.join()

    assert {2_000} == set(row_counts)


def test_a_failed_publication_leaves_nothing(store: RecordStore, tracking_location: TrackingLocation) -> None:
    """An unfinished file would remain forever, or a reader would take it for a complete one."""

    def records() -> Iterator[SyncRecord]:
        yield a_record()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.publish_records("sync.hubspot", FIRST, RecordFileType.UPDATED, 0, records())

    assert [] == tracking_location.list_files()


def test_metadata_has_all_fields_of_the_contract(store: RecordStore, tracking_location: TrackingLocation) -> None:
    """Other programs read the structure of a run's payloads there."""
    store.write_metadata("sync.hubspot", FIRST, some_metadata(dagster_run_id="d-1"))

    assert {
        "organization_id": "1",
        "workspace_id": "1",
        "sync_configuration_id": "sync.hubspot",
        "sync_run_id": FIRST,
        "source": {"type": "DataWarehouse::Query", "id": "sync.hubspot"},
        "destination": {"type": "HubSpot::Connection", "id": "HubSpot"},
        "destination_object": {"type": "HubSpot::ObjectTypes::Contact", "id": "HubSpot/Contact"},
        "started_at": "2026-11-18T12:01:02.345678Z",
        "record_payload_schema": {"id": "number", "email": "string"},
        "dagster_run_id": "d-1",
        "state_id": "",
        "versions": {"from": 1, "to": 3},
        "counts": {"succeeded": {"insert": 2}},
    } == tracking_location.read_json(f"{FOLDER}/{FIRST}/metadata.json")


def test_a_finished_run_always_has_an_update_file(store: RecordStore, tracking_location: TrackingLocation) -> None:
    """The same query reads a run that only deleted."""
    publish(store, FIRST, a_record(operation="delete", change_type="delete"))
    store.finish_run("sync.hubspot", FIRST, some_metadata())

    assert ["metadata.json", "records_deleted.0.parquet", "records_updated.0.parquet"] == tracking_location.list_files(
        f"{FOLDER}/{FIRST}"
    )


def test_finishing_a_run_keeps_its_records(store: RecordStore, tracking_location: TrackingLocation) -> None:
    """The empty file is only for runs without updates."""
    path = publish(store, FIRST, a_record())
    store.finish_run("sync.hubspot", FIRST, some_metadata())

    assert 1 == tracking_location.read_parquet(path).num_rows


def test_delivered_since_returns_the_sent_records_of_later_runs(store: RecordStore) -> None:
    """The cross-check doesn't send these records again."""
    publish(store, FIRST, a_record("1"))
    publish(store, SECOND, a_record("2"), number=0)
    publish(store, SECOND, a_record("3", status="rejected", status_message="no"), number=10)
    publish(store, SECOND, a_record("4", operation="delete", change_type="delete"))
    publish(store, SECOND, a_record("5", status="NULL", status_message="the key is null"))
    publish(store, THIRD, a_record("2", table_version=4, rowid=None))

    assert [
        DeliveredRecord("4", "delete", "succeeded", None, 4, "delete", 3, "t-1", SECOND),
        DeliveredRecord("2", "upsert", "succeeded", None, 2, "insert", 3, "t-1", SECOND),
        DeliveredRecord("3", "upsert", "rejected", "no", 3, "insert", 3, "t-1", SECOND),
        DeliveredRecord("2", "upsert", "succeeded", None, None, "insert", 4, "t-1", THIRD),
    ] == list(store.read_delivered_since("sync.hubspot", FIRST))


def test_delivered_since_no_run_returns_all_records(store: RecordStore) -> None:
    """Without a queue snapshot all existing records have to be checked."""
    publish(store, FIRST, a_record("1"))
    publish(store, SECOND, a_record("2"))

    assert ["1", "2"] == [record.identifier for record in store.read_delivered_since("sync.hubspot", None)]


def test_syncs_and_organizations_are_separate(tracking_location: TrackingLocation) -> None:
    """Two organizations may share one bucket."""
    publish(tracking_location.open_store(organization="a"), FIRST, a_record())

    assert (FIRST,) == tracking_location.open_store(organization="a").list_runs("sync.hubspot")
    assert () == tracking_location.open_store(organization="b").list_runs("sync.hubspot")
    assert () == tracking_location.open_store(organization="a").list_runs("sync.hub")


def test_other_files_in_the_folder_are_ignored(store: RecordStore, tracking_location: TrackingLocation) -> None:
    """Desktops and users put files in any folder."""
    publish(store, FIRST, a_record())
    for name in (".DS_Store", "notes.txt", f"{FIRST}/records_other.0.parquet", f"{FIRST}/copy of x.parquet"):
        tracking_location.write_file(f"{FOLDER}/{name}", b"")

    assert ["7"] == [record.identifier for record in store.read_delivered_since("sync.hubspot", None)]


@pytest.mark.parametrize("sync_id", [".", "..", "", "a/b", "../x", "a b", "x" * 101, "é", "a\n"])
def test_a_sync_id_that_points_outside_its_folder_is_refused(store: RecordStore, sync_id: str) -> None:
    """`..` consists of allowed characters, and would overwrite another organization's files."""
    with pytest.raises(StateError, match="can't name a folder"):
        store.publish_records(sync_id, FIRST, RecordFileType.UPDATED, 0, ())


@pytest.mark.parametrize("sync_id", ["...", "-", "_x", ".hidden", "A.b-c_9", "x" * 100])
def test_any_other_sync_id_has_its_own_folder(store: RecordStore, sync_id: str) -> None:
    """The store must accept every id that the header accepts."""
    store.publish_records(sync_id, FIRST, RecordFileType.UPDATED, 0, [a_record()])
    store.write_snapshot(a_snapshot(sync_id=sync_id))

    assert (FIRST,) == store.list_runs(sync_id)
    assert FIRST == store.read_newest_snapshot(sync_id).run_id


def test_an_address_with_an_unknown_scheme_is_refused() -> None:
    """Otherwise a folder with that name would silently receive the records."""
    with pytest.raises(SettingsError, match=r"tracking = 'nope://bucket/x' can't be opened: .*nope"):
        RecordStore("nope://bucket/x")


def test_a_missing_bucket_is_reported_in_a_sentence(s3_variables: Mapping[str, str]) -> None:
    """The sentence also says that the records are kept in the queue."""
    store = RecordStore(StorageAddress("s3://nobodys/x", read_s3_access(s3_variables, {})))
    with pytest.raises(StateError, match=r"s3://nobodys/x can't be reached: .* stay in the queue"):
        publish(store, FIRST, a_record())


def test_a_new_store_is_private_and_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    """Records contain personal data, but a team decides about the permissions of a folder that it shares."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    for root in (tmp_path / "a" / "new", shared):
        publish(RecordStore(str(root)), FIRST, a_record())

    assert 0o700 == (tmp_path / "a" / "new").stat().st_mode & 0o777
    assert 0o755 == shared.stat().st_mode & 0o777


def test_the_newest_queue_snapshot_is_read_back_unchanged(store: RecordStore) -> None:
    """It is the only remaining copy when the queue file is lost."""
    waiting = SnapshotUnit("7", 3, "waiting", '7 1 ["é"]', None, "", 2, 1795003262.25, "500", None)
    in_a_job = SnapshotUnit('["a",1]', 2, "job", "", "1 1 []", "1 2 []\n2 2 []", 0, None, None, '{"id":1}')
    layouts = {1: '[["id","bigint"]]', 2: "[]"}
    expected = a_snapshot(SECOND, units=(waiting, in_a_job), layouts=layouts, queue_metadata={"contents": '{"é":3}'})
    store.write_snapshot(a_snapshot(FIRST, watermark=2))
    store.write_snapshot(expected)

    snapshot = store.read_newest_snapshot("sync.hubspot")

    assert (waiting, in_a_job) == tuple(snapshot.units)
    assert (waiting, in_a_job) == tuple(snapshot.units), "the units can be read twice"
    assert dataclasses.replace(expected, units=snapshot.units) == snapshot


def test_a_sync_that_never_ran_has_no_queue_snapshot(store: RecordStore) -> None:
    assert store.read_newest_snapshot("sync.hubspot") is None


def test_a_run_replaces_its_own_queue_snapshot(store: RecordStore) -> None:
    """A run writes it at its start and at its end."""
    store.write_snapshot(a_snapshot(watermark=-1))
    store.write_snapshot(a_snapshot(watermark=5))

    assert 5 == store.read_newest_snapshot("sync.hubspot").watermark


def test_a_queue_snapshot_is_written_and_read_in_chunks(
    store: RecordStore, tracking_location: TrackingLocation
) -> None:
    """An API that was down for a day leaves a million units, and they need not fit in memory."""
    store.write_snapshot(
        a_snapshot(
            units=(
                SnapshotUnit(str(n), 1, "pending", "", None, f"{n} 1 [{n}]", 0, None, None, None) for n in range(35_000)
            )
        )
    )

    file = pq.ParquetFile(io.BytesIO(tracking_location.read_file(SNAPSHOT)))
    assert 4 == file.num_row_groups
    keys = [unit.key for unit in store.read_newest_snapshot("sync.hubspot").units]
    assert [str(n) for n in range(35_000)] == keys


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"])
def test_a_damaged_queue_snapshot_says_what_to_do(
    store: RecordStore, tracking_location: TrackingLocation, content: bytes
) -> None:
    """An older snapshot would silently send changes again."""
    store.write_snapshot(a_snapshot())
    tracking_location.write_file(SNAPSHOT, content)

    with pytest.raises(StateError, match=r"can't be read \(.*delete it to continue from the run before"):
        store.read_newest_snapshot("sync.hubspot")


def test_a_queue_snapshot_of_a_later_format_is_refused(store: RecordStore, tracking_location: TrackingLocation) -> None:
    """A part of the unsettled units would be worse than none."""
    store.write_snapshot(a_snapshot())
    file = io.BytesIO()
    table = pa.table({"key": ["1"]})
    parquet_files.write_file(file, table.schema, table.to_batches())
    tracking_location.write_file(SNAPSHOT, file.getvalue())

    with pytest.raises(StateError, match="has a form that this version of ondatra doesn't know"):
        store.read_newest_snapshot("sync.hubspot")


@pytest.mark.parametrize("where", ["snapshot", "records"])
def test_a_file_that_is_damaged_in_the_middle_is_named(
    store: RecordStore, where: str, tracking_location: TrackingLocation
) -> None:
    """Its end may be complete although an earlier part is damaged."""
    unit = SnapshotUnit("7", 3, "dead", "", None, "7 1 [7]", 1, None, "no", None)
    store.write_snapshot(a_snapshot(units=[unit]))
    publish(store, FIRST, a_record())
    (name,) = (
        name for name in tracking_location.list_files() if name.startswith("queue_snapshots") == (where == "snapshot")
    )
    read = {
        "snapshot": lambda: store.read_newest_snapshot("sync.hubspot").units,
        "records": lambda: store.read_delivered_since("sync.hubspot", None),
    }[where]
    content = tracking_location.read_file(name)
    tracking_location.write_file(name, content[:4] + bytes(60) + content[64:])

    with pytest.raises(StateError, match=f"{name} can't be read"):
        list(read())


def test_a_run_and_its_queue_snapshot_can_be_removed(store: RecordStore, tracking_location: TrackingLocation) -> None:
    """The caller gets the number of freed bytes. A second removal frees none."""
    for run_id in (FIRST, SECOND):
        publish(store, run_id, a_record())
        store.finish_run("sync.hubspot", run_id, some_metadata())
        store.write_snapshot(a_snapshot(run_id))
    size = sum(
        len(tracking_location.read_file(f"{FOLDER}/{FIRST}/{name}"))
        for name in tracking_location.list_files(f"{FOLDER}/{FIRST}")
    )

    assert [size, 0] == [store.remove_run("sync.hubspot", FIRST) for _ in range(2)]
    assert store.remove_snapshot("sync.hubspot", FIRST) > 0
    assert ((SECOND,), (SECOND,)) == (store.list_runs("sync.hubspot"), store.list_snapshot_runs("sync.hubspot"))
    assert SECOND == store.read_newest_snapshot("sync.hubspot").run_id


def test_compacted_records_of_older_runs_come_before_those_of_later_runs(store: RecordStore) -> None:
    """It doesn't matter whether the older runs still exist."""
    for run_id, identifier in ((FIRST, "1"), (SECOND, "2"), (THIRD, "3")):
        publish(store, run_id, a_record(identifier))
    ends = [*store.read_delivered_since("sync.hubspot", None, upto=SECOND, with_payload=True)]
    store.write_delivered("sync.hubspot", ends[1:], last_run=SECOND)
    store.remove_run("sync.hubspot", SECOND)

    def list_delivered(since: str | None) -> list[tuple[str, str]]:
        delivered = store.read_delivered_since("sync.hubspot", since, with_payload=True)
        return [(end.identifier, end.payload) for end in delivered]

    assert [("2", '{"id":2}'), ("3", '{"id":3}')] == list_delivered(None) == list_delivered(FIRST)
    assert [("3", '{"id":3}')] == list_delivered(SECOND)


def test_fact_tables_have_their_columns_and_rows(store: RecordStore, tracking_location: TrackingLocation) -> None:
    """Records are joined with them by id."""
    store.write_fact_tables(
        build_fact_tables(
            [
                SyncEndpoints("sync.hubspot", "HubSpot", "Contact"),
                SyncEndpoints("sync.deals", "HubSpot", "Deal"),
                SyncEndpoints("sync.invoices", "erp_push", "erp_push"),
            ]
        )
    )

    def read(table: str) -> list[dict[str, str | None]]:
        return tracking_location.read_parquet(f"metadata/1/{table}.parquet").to_pylist()

    def a_source(model: str) -> dict[str, str | None]:
        unused = dict.fromkeys(("business_object_id", "filter_segment_id", "cohort_id"))
        return {"id": model, "type": "DataWarehouse::Query", "name": model, "model_id": model, **unused}

    assert [a_source("sync.deals"), a_source("sync.hubspot"), a_source("sync.invoices")] == read("source_objects")
    assert [
        {"id": "HubSpot", "type": "HubSpot::Connection", "name": "HubSpot"},
        {"id": "erp_push", "type": "erp_push::Connection", "name": "erp_push"},
    ] == read("destinations")
    assert [
        {"id": "HubSpot/Contact", "type": "HubSpot::ObjectTypes::Contact", "name": "Contact"},
        {"id": "HubSpot/Deal", "type": "HubSpot::ObjectTypes::Deal", "name": "Deal"},
        {"id": "erp_push/erp_push", "type": "erp_push::ObjectTypes::erp_push", "name": "erp_push"},
    ] == read("destination_objects")


def test_projects_of_one_organization_keep_each_others_facts(tracking_location: TrackingLocation) -> None:
    """They share one bucket, and each has its own workspace. A removed sync's facts are deleted."""
    ours, theirs = tracking_location.open_store(workspace="1"), tracking_location.open_store(workspace="2")
    ours.write_fact_tables(build_fact_tables([SyncEndpoints("sync.hubspot", "HubSpot", "Contact")]))
    theirs.write_fact_tables(build_fact_tables([SyncEndpoints("sync.tickets", "Zendesk", "Ticket")]))
    ours.write_fact_tables(build_fact_tables([SyncEndpoints("sync.deals", "HubSpot", "Deal")]))
    theirs.write_fact_tables(build_fact_tables([SyncEndpoints("sync.tickets", "Zendesk", "Ticket")]))
    assert [["sync.deals", "sync.tickets"], ["HubSpot", "Zendesk"], ["HubSpot/Deal", "Zendesk/Ticket"]] == [
        tracking_location.read_parquet(f"metadata/1/{table}.parquet")["id"].to_pylist()
        for table in ("source_objects", "destinations", "destination_objects")
    ]


def test_a_file_in_the_way_is_not_reported_as_a_full_disk(tmp_path: Path) -> None:
    """A user who frees disk space would still have no records."""
    store = RecordStore(str(tmp_path))
    (tmp_path / "queue_snapshots").write_text("in the way")
    with pytest.raises(StateError, match=r"\(File exists\); check what is there and who may write, and run"):
        store.write_snapshot(a_snapshot())


def test_a_full_disk_is_reported_with_what_to_do(tmp_path: Path) -> None:

    def records() -> Iterator[SyncRecord]:
        yield sample_records.build_record()
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StateError, match=r"\(No space left on device\); make room there, and run again"):
        RecordStore(str(tmp_path)).publish_records("sync.crm", FIRST, RecordFileType.UPDATED, 0, records())


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no Parquet at all"])
def test_a_broken_fact_table_is_written_again(
    store: RecordStore, tracking_location: TrackingLocation, content: bytes
) -> None:
    """All its content is known from the project, so the user doesn't have to delete it first."""
    facts = build_fact_tables([SyncEndpoints("sync.hubspot", "HubSpot", "Contact")])
    store.write_fact_tables(facts)
    tracking_location.write_file("metadata/1/destinations.parquet", content)
    store.write_fact_tables(facts)
    assert ["HubSpot"] == tracking_location.read_parquet("metadata/1/destinations.parquet")["id"].to_pylist()


def test_a_fact_table_of_another_program_is_overwritten(
    store: RecordStore, tracking_location: TrackingLocation
) -> None:
    """Its columns are different, so it can't be joined with records."""
    facts = build_fact_tables([SyncEndpoints("sync.hubspot", "HubSpot", "Contact")])
    store.write_fact_tables(facts)
    theirs = io.BytesIO()
    pq.write_table(pa.table({"x": [1]}), theirs)
    tracking_location.write_file("metadata/1/destinations.parquet", theirs.getvalue())
    store.write_fact_tables(facts)
    assert ["HubSpot"] == tracking_location.read_parquet("metadata/1/destinations.parquet")["id"].to_pylist()


def test_fact_tables_without_syncs_still_have_their_columns(
    store: RecordStore, tracking_location: TrackingLocation
) -> None:
    """A query that joins them must not fail on the first day."""
    store.write_fact_tables(build_fact_tables([]))

    assert {
        "source_objects": ["id", "type", "name", "model_id", "business_object_id", "filter_segment_id", "cohort_id"],
        "destinations": ["id", "type", "name"],
        "destination_objects": ["id", "type", "name"],
    } == {
        name.removesuffix(".parquet"): tracking_location.read_parquet(f"metadata/1/{name}").column_names
        for name in tracking_location.list_files("metadata/1")
    }


def test_a_dry_run_store_reads_but_writes_nothing(tmp_path: Path) -> None:
    """A dry run executes the code of a run, which writes to the store."""
    store = RecordStore(str(tmp_path))
    store.write_snapshot(a_snapshot(FIRST))
    alone = store.for_dry_run()
    alone.write_snapshot(a_snapshot(SECOND))
    alone.remove_snapshots("sync.hubspot")
    for reader in (alone, store):
        snapshot = reader.read_newest_snapshot("sync.hubspot")
        assert snapshot is not None
        assert FIRST == snapshot.run_id
