"""Searching the files of records: what is found, in which order, and how little is read for it."""

import contextlib
import dataclasses
import random
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

import pytest
from support.moto_store import BUCKET, moto_store
from support.record_stores import BEGAN, SYNC, a_record, found, plainly, publish, random_records, run_name
from support.seeds import new_chance, new_seeds

from ondatra_dagster.errors import StateError
from ondatra_dagster.planning.s3_objects import s3_files
from ondatra_dagster.project.settings.s3_access import read_s3_access
from ondatra_dagster.tracking import addresses, parquet_files
from ondatra_dagster.tracking.addresses import BatchType, NumberedFile
from ondatra_dagster.tracking.found import FoundRecord, Search, Stage
from ondatra_dagster.tracking.parts import parts_of, records_of, window
from ondatra_dagster.tracking.record_search import RecordFiles, RunRecords, count_runs, search_runs
from ondatra_dagster.tracking.row_groups import found_groups
from ondatra_dagster.tracking.store import TrackingStore

HISTORIES = 6


@pytest.fixture
def store(tmp_path: Path) -> TrackingStore:
    return TrackingStore(str(tmp_path / "tracking"))


def runs(store: TrackingStore) -> list[RunRecords]:
    """All of them, the newest first."""
    return [RunRecords(run_id=run_id) for run_id in reversed(store.runs(SYNC))]


def find(store: TrackingStore, search: Search, files: RecordFiles | None = None) -> list[FoundRecord]:
    parts = search_runs(files or store, SYNC, search, runs(store))
    return list(records_of(window(parts, offset=search.offset, limit=search.limit)))


class Watched:
    """A store that remembers which files were opened."""

    def __init__(self, store: TrackingStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.opened: list[tuple[str, NumberedFile]] = []

    def record_files(self, sync_id: str, run_id: str) -> list[NumberedFile]:
        return self._store.record_files(sync_id, run_id)

    @contextlib.contextmanager
    def reading_records(self, sync_id: str, run_id: str, file: NumberedFile) -> Iterator[BinaryIO]:
        with self._lock:
            self.opened.append((run_id, file))
        with self._store.reading_records(sync_id, run_id, file) as opened:
            yield opened


def test_any_search_finds_what_a_plain_filter_does(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over runs, types, files and row groups, whose bounds rule some of them out, and the newest first."""
    monkeypatch.setattr(parquet_files, "ROWS_IN_MEMORY", 7)  # row groups of a few
    for seed in new_seeds(HISTORIES):
        chance = random.Random(seed)
        store = TrackingStore(str(Path(store.run_address(SYNC, "x")).parents[3] / seed))
        made = []
        for run in range(chance.randrange(4)):
            records = list(random_records(chance, run=run, count=chance.randrange(60)))
            middle = chance.randrange(len(records) + 1)
            publish(store, run_name(run), records[:middle], number=0)
            publish(store, run_name(run), records[middle:], number=10)
            made.append((run_name(run), records))
        for prefix in ("", "a", "b=", "😀", "zz"):
            for stage in (None, *[stage for stage in Stage if stage.has_ended]):
                search = Search(prefix=prefix, stage=stage)
                answer = find(store, search)
                assert plainly(search, made) == set(answer), f"seed {seed}: {search}"
                assert len(answer) == count_runs(store, SYNC, search, runs(store))
                assert len(answer) == len(set(answer))
                order = [(record.run_id, record.batch_ended_at) for record in answer]
                assert sorted(order, reverse=True) == order, f"seed {seed}: {search}"
                first, last = sorted(chance.choices(range(len(answer) + 2), k=2))
                page = Search(prefix=prefix, stage=stage, offset=first, limit=last - first)
                assert answer[first:last] == find(store, page)
                for change_type in ("insert", "delete", "nothing"):
                    narrower = dataclasses.replace(search, change_type=change_type)
                    expected = [record for record in answer if record.change_type == change_type]
                    assert set(expected) == set(find(store, narrower))
                    assert len(expected) == count_runs(store, SYNC, narrower, runs(store))


@pytest.mark.parametrize("search", [Search(), Search(prefix="k"), Search(stage=Stage.SUCCEEDED)])
def test_what_ended_last_in_a_type_comes_first(store: TrackingStore, search: Search) -> None:
    """Rows of one batch have one time: then it is their order that tells."""
    records = [a_record(f"k{number}") for number in range(5)]
    publish(store, run_name(1), records)
    assert [found(run_name(1), record) for record in reversed(records)] == find(store, search)


def test_what_is_large_is_read_when_its_turn_comes(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several files are looked into ahead: of each no more is kept than a few rows."""
    monkeypatch.setattr(parquet_files, "ROWS_IN_MEMORY", 1)
    letters = random.Random(1)
    records = [a_record(f"k{number}", payload=letters.randbytes(20_000).hex()) for number in range(4)]
    publish(store, run_name(1), records)
    with store.reading_records(SYNC, run_name(1), (BatchType.UPDATED, 0)) as file:
        groups = found_groups(file, Search(prefix="k"))
    assert [True, True, False, False] == [group.part is not None for group in groups]
    assert ["k3", "k2", "k1", "k0"] == [record.identifier for record in find(store, Search(prefix="k"))]


def test_types_of_a_run_are_told_in_one_order(store: TrackingStore) -> None:
    """Deletes, updates and what was set aside are files of their own, which nobody who looks cares for."""
    records = [
        a_record(
            str(number),
            operation="delete" if number % 3 == 0 else "upsert",
            status="NULL" if number % 3 == 1 else "succeeded",
            batch_ended_at=BEGAN + timedelta(seconds=number),
        )
        for number in range(30_000)
    ]
    publish(store, run_name(1), records)
    assert [str(number) for number in reversed(range(30_000))] == [
        record.identifier for record in find(store, Search())
    ]


def test_a_search_stops_at_its_limit(store: TrackingStore) -> None:
    """Nobody waits for runs whose records aren't shown."""
    for run in range(60):
        publish(store, run_name(run), [a_record(str(run))])
    files = Watched(store)
    assert ["59", "58"] == [record.identifier for record in find(store, Search(limit=2), files)]
    assert len({run_id for run_id, _ in files.opened}) < 30


def test_files_of_other_types_are_not_opened(store: TrackingStore) -> None:
    """Their names say enough."""
    publish(store, run_name(1), [a_record("a"), a_record("b", status="NULL")])
    files = Watched(store)
    assert ["b"] == [record.identifier for record in find(store, Search(stage=Stage.INVALID), files)]
    assert [(run_name(1), (BatchType.INVALID, 0))] == files.opened


def test_a_run_may_have_records_beside_its_files(store: TrackingStore) -> None:
    """What is settled and not yet published is as new as it gets; its files are told by who knows them."""
    publish(store, run_name(1), [a_record("old")])
    publish(store, run_name(1), [a_record("too late")], number=1)
    beside = found(run_name(1), a_record("new", batch_ended_at=BEGAN + timedelta(seconds=1)))
    run = RunRecords(
        run_id=run_name(1),
        files=[(BatchType.UPDATED, 0)],
        beside={BatchType.UPDATED: parts_of([beside])},
    )
    parts = search_runs(store, SYNC, Search(), [run])
    assert ["new", "old"] == [record.identifier for record in records_of(parts)]


def test_a_file_that_goes_while_one_looks_has_no_records(store: TrackingStore) -> None:
    """Whoever prunes a store doesn't wait for readers."""
    for run in (1, 2):
        publish(store, run_name(run), [a_record(str(run))])

    class Pruned(Watched):
        def record_files(self, sync_id: str, run_id: str) -> list[NumberedFile]:
            return [*super().record_files(sync_id, run_id), (BatchType.DELETED, 4)]

    assert ["2", "1"] == [record.identifier for record in find(store, Search(), Pruned(store))]


def test_a_damaged_file_is_named(store: TrackingStore) -> None:
    """To leave it out silently would be an answer that isn't true."""
    publish(store, run_name(1), [a_record()])
    path = Path(store.run_address(SYNC, run_name(1))) / "records_updated.0.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(StateError, match=r"records_updated\.0\.parquet can't be read .* backup"):
        find(store, Search())


def test_files_in_a_bucket_are_searched_where_they_are(store: TrackingStore) -> None:
    """Through whatever opens them, by parts of a file."""
    chance = new_chance("bucket")
    made = [(run_name(run), list(random_records(chance, run=run, count=40))) for run in range(3)]
    for run_id, records in made:
        publish(store, run_id, records)
    with moto_store() as variables:
        bucket = s3_files(read_s3_access(variables, {}))

        class Bucket(Watched):
            @contextlib.contextmanager
            def reading_records(self, sync_id: str, run_id: str, file: NumberedFile) -> Iterator[BinaryIO]:
                name = f"{addresses.run_folder('1', sync_id, run_id)}/{addresses.records_file(*file)}"
                with bucket.open_input_file(f"{BUCKET}/{name}") as opened:
                    yield opened

        for run_id, _ in made:
            for file in store.record_files(SYNC, run_id):
                name = f"{addresses.run_folder('1', SYNC, run_id)}/{addresses.records_file(*file)}"
                with (
                    store.reading_records(SYNC, run_id, file) as local,
                    bucket.open_output_stream(f"{BUCKET}/{name}") as remote,
                ):
                    remote.write(local.read())
        for search in (Search(), Search(prefix="a"), Search(stage=Stage.REJECTED)):
            assert plainly(search, made) == set(find(store, search, Bucket(store)))


def test_records_are_found_by_what_was_said_of_them(store: TrackingStore) -> None:
    """A list of reasons leads from each to its records."""
    said = ["no plan", "no", None, "no plan", "NO PLAN"]
    records = [
        a_record(str(number), status="rejected" if text else "succeeded", status_message=text)
        for number, text in enumerate(said)
    ]
    publish(store, run_name(1), records)
    assert ["3", "0"] == [each.identifier for each in find(store, Search(message="no plan"))]
    assert ["1"] == [each.identifier for each in find(store, Search(message="no", stage=Stage.REJECTED))]
    assert [] == find(store, Search(message="n"))
    assert ["2"] == [each.identifier for each in find(store, Search(message=""))]


def test_records_of_which_nothing_was_said_are_found_in_any_file(store: TrackingStore) -> None:
    """Of all, of some, of none: each time a file tells other bounds."""
    for number, said in enumerate((["x", None, ""], ["x", "y"], [None, None], ["", ""], ["", "z"])):
        records = [a_record(f"{number}{place}", status_message=text) for place, text in enumerate(said)]
        publish(store, run_name(number), records)
    found = [each.identifier for each in find(store, Search(message=""))]
    assert ["40", "31", "30", "21", "20", "02", "01"] == found


def test_what_was_set_aside_is_found_by_its_status(store: TrackingStore) -> None:
    """It is the word that a list of records shows."""
    records = [a_record(str(number), status=status) for number, status in enumerate(("NULL", "DUPLICATE"))]
    publish(store, run_name(1), records)
    assert ["1"] == [each.identifier for each in find(store, Search(stage=Stage.INVALID, status="DUPLICATE"))]
    assert [Stage.INVALID] * 2 == [Stage.named("NULL"), Stage.named("DUPLICATE")]


def test_payloads_are_left_out_where_nobody_asks_for_them(store: TrackingStore) -> None:
    """They are most of a file: to count reasons they needn't be read."""
    records = [a_record(str(number), payload='{"id":"x"}') for number in range(3)]
    publish(store, run_name(1), records)
    told = find(store, Search(with_payload=False))
    assert [("2", ""), ("1", ""), ("0", "")] == [(each.identifier, each.payload) for each in told]
    assert find(store, Search()) == [each._replace(payload='{"id":"x"}') for each in told]


def test_no_more_groups_of_a_file_are_looked_at_than_are_shown(store: TrackingStore) -> None:
    """The first page of a million records comes as fast as that of a hundred."""
    records = [a_record(str(number), payload='{"id":"' + "x" * 100 + '"}') for number in range(30_000)]
    store.publish(SYNC, run_name(1), BatchType.UPDATED, 0, records)
    with store.reading_records(SYNC, run_name(1), (BatchType.UPDATED, 0)) as file:
        assert 1 == len(found_groups(file, Search(limit=50)))
        assert 2 == len(found_groups(file, Search(limit=50, offset=10_000)))
        assert 3 == len(found_groups(file, Search()))
