"""The records of a run in progress as other readers see them, with a real queue, publisher and files."""

import dataclasses
import threading
from pathlib import Path

import pytest
from support.files.tracking_locations import TrackingLocation

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue import unpublished_records
from ondatra_dagster.delivery.queue.queue_database import Queue, open_queue
from ondatra_dagster.delivery.queue.unpublished_records import (
    FILE_ROWS,
    RECORDS_DELETED,
    RECORDS_UPDATED,
    PushAttempt,
    SettledRow,
    store_settled_rows,
)
from ondatra_dagster.records.record_schema import RECORD_SCHEMA, RecordOperation
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.row_changes import ChangeType, Column, Layout
from ondatra_dagster.sync.record_publisher import RecordPublisher

RUN = "20261118T120102Z-aaaaaa"
FOLDER = f"sync_tracking_datasets/1/sync.crm/{RUN}"
ROWS, BATCH = 200_000, 5_000
ATTEMPT = PushAttempt(run_id=RUN, started_at=1.0, ended_at=2.0, max_attempts=3)


class PollingReader:
    """A reader that opens every file again and again, while a run writes them."""

    def __init__(self, tracking_location: TrackingLocation) -> None:
        self.row_counts: list[int] = []  # the number of rows at each read
        self.problems: list[str] = []
        self._at = tracking_location
        self._news = threading.Condition()
        self._has_ended = False
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> "PollingReader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended = True
        self._thread.join()

    def wait_for_read(self) -> None:
        """Wait until the reader has read once more from beginning to end."""
        with self._news:
            begun = len(self.row_counts) + 1  # the read in progress may have begun before
            assert self._news.wait_for(lambda: len(self.row_counts) > begun, timeout=60)

    def _poll(self) -> None:
        while not self._has_ended:
            rows = sum(map(self._rows_of, self._at.list_files(FOLDER)))
            with self._news:
                self.row_counts.append(rows)
                self._news.notify_all()

    def _rows_of(self, name: str) -> int:
        if not name.endswith(".parquet"):
            return 0
        try:
            table = self._at.read_parquet(f"{FOLDER}/{name}")
        except Exception as error:  # any error that a reader could get
            self.problems.append(f"{name}: {error!r}")
            return 0
        if table.schema != RECORD_SCHEMA:
            self.problems.append(f"{name}: {table.schema}")
        return table.num_rows


class PublishingRun:
    """A run that settles rows and publishes their records."""

    def __init__(self, queue: Queue, tracking_location: TrackingLocation) -> None:
        self.publisher = RecordPublisher(
            queue, tracking_location.open_store(), sync_id="sync.crm", run_id=RUN, operation=RecordOperation.UPSERT
        )
        self._queue = queue
        self._layout = queue.store_layout(Layout((Column("id", "bigint"),)))
        unpublished_records.begin_run(queue, RUN, "{}")

    def resolve_alerts(self, numbers: range, *, now: float = 3.0) -> None:
        rows = [SettledRow(str(n), n, ChangeType.INSERT, 1, "succeeded", None, self._layout, f"[{n}]") for n in numbers]
        attempt = dataclasses.replace(ATTEMPT, ended_at=now)
        with self._queue.store.write_transaction():
            store_settled_rows(self._queue, RECORDS_UPDATED, rows, attempt)
        self.publisher.add_settled_rows(len(rows), now=now)


@pytest.mark.parametrize("tracking_location", ["folder"], indirect=True)
def test_no_record_waits_longer_than_publish_seconds_for_its_file(
    tracking_location: TrackingLocation, tmp_path: Path
) -> None:
    """Batches end every two seconds, but this doesn't delay the file."""
    with open_queue(tmp_path / "sync.crm.sqlite", shape=UnitKind.ROW) as queue:
        run = PublishingRun(queue, tracking_location)
        published = []
        for second in range(0, 60, 2):
            run.resolve_alerts(range(second, second + 1), now=1_000.0 + second)
            loose = unpublished_records.count_unassigned_rows(queue, RUN)
            published.append(loose[0].oldest_ended_at if loose else 1_000.0 + second)
    assert 10.0 > max(1_000.0 + 2 * place - oldest for place, oldest in enumerate(published))


@pytest.mark.parametrize("tracking_location", ["folder"], indirect=True)
def test_a_batch_of_very_many_rows_is_written_to_several_files(
    tracking_location: TrackingLocation, tmp_path: Path
) -> None:
    """A whole table may be sent in one call. A file that is too large for its reader is of no use."""
    with open_queue(tmp_path / "sync.crm.sqlite", shape=UnitKind.ROW) as queue:
        run = PublishingRun(queue, tracking_location)
        run.resolve_alerts(range(125_000))
        run.publisher.publish_all()
    names = tracking_location.list_files(FOLDER)
    assert [50_000, 50_000, 25_000] == [tracking_location.read_parquet(f"{FOLDER}/{name}").num_rows for name in names]


@pytest.mark.parametrize("tracking_location", ["folder", "S3"], indirect=True)
def test_a_reader_sees_only_whole_files_during_a_run_of_many_rows(
    tracking_location: TrackingLocation, tmp_path: Path
) -> None:
    """A user's query may run each minute, whatever the run does."""
    with (
        open_queue(tmp_path / "sync.crm.sqlite", shape=UnitKind.ROW) as queue,
        PollingReader(tracking_location) as reader,
    ):
        run = PublishingRun(queue, tracking_location)
        for first in range(0, ROWS, BATCH):
            run.resolve_alerts(range(first, first + BATCH))
            if (first + BATCH) % FILE_ROWS == 0:
                reader.wait_for_read()
        run.publisher.publish_all()
        reader.wait_for_read()
    assert [] == reader.problems
    assert {FILE_ROWS, 2 * FILE_ROWS, 3 * FILE_ROWS, ROWS} <= set(reader.row_counts)
    assert sorted(reader.row_counts) == reader.row_counts


@pytest.mark.parametrize("shape", [UnitKind.ROW, UnitKind.GROUP])
@pytest.mark.parametrize("refusals", [1, FILE_ROWS + 1])
def test_rejected_deletes_are_published_before_rows_that_came_later(
    tmp_path: Path, shape: UnitKind, refusals: int
) -> None:
    """A recovery from the records of a killed run takes the deletes for done if it has only those rows."""
    tracking = RecordStore(str(tmp_path / "tracking"))
    replaces_rows = shape is UnitKind.ROW
    with open_queue(tmp_path / "queue.sqlite", shape=shape, replaces_rows=replaces_rows) as queue:
        layout = queue.store_layout(Layout((Column("id", "bigint"),)))
        unpublished_records.begin_run(queue, RUN, "{}")
        refused = SettledRow("1", 1, ChangeType.DELETE, 2, "rejected", "locked", layout, "[1]")
        came = SettledRow("2", 2, ChangeType.INSERT, 2, "succeeded", None, layout, "[2]")
        store_settled_rows(queue, RECORDS_DELETED, [refused] * refusals, ATTEMPT)
        store_settled_rows(queue, RECORDS_UPDATED, [came] * FILE_ROWS, ATTEMPT)
        publisher = RecordPublisher(queue, tracking, sync_id="sync.crm", run_id=RUN, operation=RecordOperation.UPSERT)
        publisher.add_settled_rows(FILE_ROWS + refusals, now=ATTEMPT.ended_at)
    deleted = [(RECORDS_DELETED, number) for number in range(1 + refusals // FILE_ROWS)]
    assert [*deleted, (RECORDS_UPDATED, 0)] == tracking.list_record_files("sync.crm", RUN)
