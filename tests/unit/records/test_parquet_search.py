"""The search in record files: its results, their order, and how little it reads."""

import contextlib
import dataclasses
import random
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

import pytest
from support.apis.moto_s3_server import BUCKET, running_moto_s3
from support.files.sample_records import (
    FIRST_RUN_AT,
    RECORDS_SYNC,
    build_found_record,
    build_record,
    build_run_id,
    publish_records,
    random_records,
    search_in_memory,
)
from support.random_histories.random_seeds import new_random, new_seeds

from ondatra_dagster.errors import StateError
from ondatra_dagster.project.settings.storage_access import read_s3_access
from ondatra_dagster.records import file_paths, parquet_files
from ondatra_dagster.records.file_paths import RecordFileId, RecordFileType
from ondatra_dagster.records.parquet_search import (
    RecordFileReader,
    RunRecords,
    count_runs_matches,
    find_row_groups,
    search_runs,
)
from ondatra_dagster.records.record_query import RecordQuery, RecordStage, ResultRecord
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.records.search_result_chunks_and_reason_counts import chunk_records, iterate_records, slice_chunks
from ondatra_dagster.storage.s3_filesystem_and_listing import open_s3_filesystem

HISTORIES = 6


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(str(tmp_path / "tracking"))


def runs(store: RecordStore) -> list[RunRecords]:
    """Return all runs, the newest first."""
    return [RunRecords(run_id=run_id) for run_id in reversed(store.list_runs(RECORDS_SYNC))]


def find(store: RecordStore, search: RecordQuery, files: RecordFileReader | None = None) -> list[ResultRecord]:
    parts = search_runs(files or store, RECORDS_SYNC, search, runs(store))
    return list(iterate_records(slice_chunks(parts, offset=search.offset, limit=search.limit)))


class ReadCountingStore:
    """A store that remembers which files were opened."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.opened: list[tuple[str, RecordFileId]] = []

    def list_record_files(self, sync_id: str, run_id: str) -> list[RecordFileId]:
        return self._store.list_record_files(sync_id, run_id)

    @contextlib.contextmanager
    def open_records(self, sync_id: str, run_id: str, file: RecordFileId) -> Iterator[BinaryIO]:
        with self._lock:
            self.opened.append((run_id, file))
        with self._store.open_records(sync_id, run_id, file) as opened:
            yield opened


def test_a_search_returns_the_same_as_a_plain_filter(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It covers runs, types, files and row groups. Bounds exclude some row groups, and the newest records are first."""
    monkeypatch.setattr(parquet_files, "ROWS_IN_MEMORY", 7)  # small row groups
    for seed in new_seeds(HISTORIES):
        chance = random.Random(seed)
        store = RecordStore(str(Path(store.run_address(RECORDS_SYNC, "x")).parents[3] / seed))
        published_runs = []
        for run in range(chance.randrange(4)):
            records = list(random_records(chance, run=run, count=chance.randrange(60)))
            middle = chance.randrange(len(records) + 1)
            publish_records(store, build_run_id(run), records[:middle], number=0)
            publish_records(store, build_run_id(run), records[middle:], number=10)
            published_runs.append((build_run_id(run), records))
        for prefix in ("", "a", "b=", "😀", "zz"):
            for stage in (None, *[stage for stage in RecordStage if stage.has_ended]):
                search = RecordQuery(prefix=prefix, stage=stage)
                answer = find(store, search)
                assert search_in_memory(search, published_runs) == set(answer), f"seed {seed}: {search}"
                assert len(answer) == count_runs_matches(store, RECORDS_SYNC, search, runs(store))
                assert len(answer) == len(set(answer))
                order = [(record.run_id, record.batch_ended_at) for record in answer]
                assert sorted(order, reverse=True) == order, f"seed {seed}: {search}"
                first, last = sorted(chance.choices(range(len(answer) + 2), k=2))
                page = RecordQuery(prefix=prefix, stage=stage, offset=first, limit=last - first)
                assert answer[first:last] == find(store, page)
                for change_type in ("insert", "delete", "nothing"):
                    narrower = dataclasses.replace(search, change_type=change_type)
                    expected = [record for record in answer if record.change_type == change_type]
                    assert set(expected) == set(find(store, narrower))
                    assert len(expected) == count_runs_matches(store, RECORDS_SYNC, narrower, runs(store))


@pytest.mark.parametrize("search", [RecordQuery(), RecordQuery(prefix="k"), RecordQuery(stage=RecordStage.SUCCEEDED)])
def test_the_last_record_of_a_type_comes_first(store: RecordStore, search: RecordQuery) -> None:
    """Rows of one batch have the same time: then their order decides."""
    records = [build_record(f"k{number}") for number in range(5)]
    publish_records(store, build_run_id(1), records)
    assert [build_found_record(build_run_id(1), record) for record in reversed(records)] == find(store, search)


def test_large_row_groups_are_read_only_when_they_are_needed(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search opens several files in advance. It keeps only a few rows of each in memory."""
    monkeypatch.setattr(parquet_files, "ROWS_IN_MEMORY", 1)
    letters = random.Random(1)
    records = [build_record(f"k{number}", payload=letters.randbytes(20_000).hex()) for number in range(4)]
    publish_records(store, build_run_id(1), records)
    with store.open_records(RECORDS_SYNC, build_run_id(1), (RecordFileType.UPDATED, 0)) as file:
        groups = find_row_groups(file, RecordQuery(prefix="k"))
    assert [True, True, False, False] == [group.chunk is not None for group in groups]
    assert ["k3", "k2", "k1", "k0"] == [record.identifier for record in find(store, RecordQuery(prefix="k"))]


def test_record_types_of_a_run_are_merged_into_one_order(store: RecordStore) -> None:
    """Deletes, updates and invalid rows are separate files, but the reader of the records sees one order."""
    records = [
        build_record(
            str(number),
            operation="delete" if number % 3 == 0 else "upsert",
            status="NULL" if number % 3 == 1 else "succeeded",
            batch_ended_at=FIRST_RUN_AT + timedelta(seconds=number),
        )
        for number in range(30_000)
    ]
    publish_records(store, build_run_id(1), records)
    assert [str(number) for number in reversed(range(30_000))] == [
        record.identifier for record in find(store, RecordQuery())
    ]


def test_a_search_stops_at_its_limit(store: RecordStore) -> None:
    """A reader doesn't wait for runs whose records aren't shown."""
    for run in range(60):
        publish_records(store, build_run_id(run), [build_record(str(run))])
    files = ReadCountingStore(store)
    assert ["59", "58"] == [record.identifier for record in find(store, RecordQuery(limit=2), files)]
    assert len({run_id for run_id, _ in files.opened}) < 30


def test_files_of_other_types_are_not_opened(store: RecordStore) -> None:
    """The name of a file shows its record type."""
    publish_records(store, build_run_id(1), [build_record("a"), build_record("b", status="NULL")])
    files = ReadCountingStore(store)
    assert ["b"] == [record.identifier for record in find(store, RecordQuery(stage=RecordStage.INVALID), files)]
    assert [(build_run_id(1), (RecordFileType.INVALID, 0))] == files.opened


def test_a_run_may_have_unpublished_records_and_a_list_of_files(store: RecordStore) -> None:
    """Settled records that aren't published yet are the newest. The caller lists the files to read."""
    publish_records(store, build_run_id(1), [build_record("old")])
    publish_records(store, build_run_id(1), [build_record("too late")], number=1)
    beside = build_found_record(
        build_run_id(1), build_record("new", batch_ended_at=FIRST_RUN_AT + timedelta(seconds=1))
    )
    run = RunRecords(
        run_id=build_run_id(1),
        files=[(RecordFileType.UPDATED, 0)],
        unpublished_chunks={RecordFileType.UPDATED: chunk_records([beside])},
    )
    parts = search_runs(store, RECORDS_SYNC, RecordQuery(), [run])
    assert ["new", "old"] == [record.identifier for record in iterate_records(parts)]


def test_a_file_that_is_pruned_during_a_search_has_no_records(store: RecordStore) -> None:
    """Pruning a store doesn't wait for readers."""
    for run in (1, 2):
        publish_records(store, build_run_id(run), [build_record(str(run))])

    class Pruned(ReadCountingStore):
        def list_record_files(self, sync_id: str, run_id: str) -> list[RecordFileId]:
            return [*super().list_record_files(sync_id, run_id), (RecordFileType.DELETED, 4)]

    assert ["2", "1"] == [record.identifier for record in find(store, RecordQuery(), Pruned(store))]


def test_a_damaged_file_is_named(store: RecordStore) -> None:
    """An answer without the file's records would be wrong."""
    publish_records(store, build_run_id(1), [build_record()])
    path = Path(store.run_address(RECORDS_SYNC, build_run_id(1))) / "records_updated.0.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(StateError, match=r"records_updated\.0\.parquet can't be read .* backup"):
        find(store, RecordQuery())


def test_files_in_a_bucket_are_searched_in_place(store: RecordStore) -> None:
    """The store opens them, and the search reads parts of each file."""
    chance = new_random("bucket")
    published_runs = [(build_run_id(run), list(random_records(chance, run=run, count=40))) for run in range(3)]
    for run_id, records in published_runs:
        publish_records(store, run_id, records)
    with running_moto_s3() as variables:
        bucket = open_s3_filesystem(read_s3_access(variables, {}))

        class Bucket(ReadCountingStore):
            @contextlib.contextmanager
            def open_records(self, sync_id: str, run_id: str, file: RecordFileId) -> Iterator[BinaryIO]:
                name = f"{file_paths.run_folder('1', sync_id, run_id)}/{file_paths.records_file(*file)}"
                with bucket.open_input_file(f"{BUCKET}/{name}") as opened:
                    yield opened

        for run_id, _ in published_runs:
            for file in store.list_record_files(RECORDS_SYNC, run_id):
                name = f"{file_paths.run_folder('1', RECORDS_SYNC, run_id)}/{file_paths.records_file(*file)}"
                with (
                    store.open_records(RECORDS_SYNC, run_id, file) as local,
                    bucket.open_output_stream(f"{BUCKET}/{name}") as remote,
                ):
                    remote.write(local.read())
        for search in (RecordQuery(), RecordQuery(prefix="a"), RecordQuery(stage=RecordStage.REJECTED)):
            assert search_in_memory(search, published_runs) == set(find(store, search, Bucket(store)))


def test_records_are_found_by_their_status_message(store: RecordStore) -> None:
    """The list of reasons links each reason to its records."""
    messages = ["no plan", "no", None, "no plan", "NO PLAN"]
    records = [
        build_record(str(number), status="rejected" if text else "succeeded", status_message=text)
        for number, text in enumerate(messages)
    ]
    publish_records(store, build_run_id(1), records)
    assert ["3", "0"] == [record.identifier for record in find(store, RecordQuery(message="no plan"))]
    assert ["1"] == [record.identifier for record in find(store, RecordQuery(message="no", stage=RecordStage.REJECTED))]
    assert [] == find(store, RecordQuery(message="n"))
    assert ["2"] == [record.identifier for record in find(store, RecordQuery(message=""))]


def test_records_without_a_message_are_found_in_any_file(store: RecordStore) -> None:
    """All, some or none of a file's records may have a message. Each case gives other bounds."""
    for number, messages in enumerate((["x", None, ""], ["x", "y"], [None, None], ["", ""], ["", "z"])):
        records = [build_record(f"{number}{place}", status_message=text) for place, text in enumerate(messages)]
        publish_records(store, build_run_id(number), records)
    identifiers = [record.identifier for record in find(store, RecordQuery(message=""))]
    assert ["40", "31", "30", "21", "20", "02", "01"] == identifiers


def test_invalid_records_are_found_by_their_status(store: RecordStore) -> None:
    """The list of records shows this status."""
    records = [build_record(str(number), status=status) for number, status in enumerate(("NULL", "DUPLICATE"))]
    publish_records(store, build_run_id(1), records)
    assert ["1"] == [
        record.identifier for record in find(store, RecordQuery(stage=RecordStage.INVALID, status="DUPLICATE"))
    ]
    assert [RecordStage.INVALID] * 2 == [RecordStage.parse("NULL"), RecordStage.parse("DUPLICATE")]


def test_payloads_are_not_read_if_the_query_excludes_them(store: RecordStore) -> None:
    """Payloads are most of a file, and counting reasons doesn't need them."""
    records = [build_record(str(number), payload='{"id":"x"}') for number in range(3)]
    publish_records(store, build_run_id(1), records)
    found_records = find(store, RecordQuery(with_payload=False))
    assert [("2", ""), ("1", ""), ("0", "")] == [(record.identifier, record.payload) for record in found_records]
    assert find(store, RecordQuery()) == [record._replace(payload='{"id":"x"}') for record in found_records]


def test_only_the_row_groups_of_the_shown_page_are_read(store: RecordStore) -> None:
    """The first page of a million records is as fast as that of a hundred."""
    records = [build_record(str(number), payload='{"id":"' + "x" * 100 + '"}') for number in range(30_000)]
    store.publish_records(RECORDS_SYNC, build_run_id(1), RecordFileType.UPDATED, 0, records)
    with store.open_records(RECORDS_SYNC, build_run_id(1), (RecordFileType.UPDATED, 0)) as file:
        assert 1 == len(find_row_groups(file, RecordQuery(limit=50)))
        assert 2 == len(find_row_groups(file, RecordQuery(limit=50, offset=10_000)))
        assert 3 == len(find_row_groups(file, RecordQuery()))
