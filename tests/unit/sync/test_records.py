"""What others see of a run's records while it goes on: real queue, real publisher, real files."""

import dataclasses
import threading
from pathlib import Path

import pytest
from support.places import Place

from ondatra_dagster.changes import ChangeType, Column, Layout
from ondatra_dagster.delivery.queue import publication
from ondatra_dagster.delivery.queue.publication import FILE_ROWS
from ondatra_dagster.delivery.queue.settled import DELETED, UPDATED, Attempt, SettledRow, keep_settled
from ondatra_dagster.delivery.queue.tables import Queue, open_queue
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.sync.records import Publisher
from ondatra_dagster.tracking.record import SCHEMA, Operation
from ondatra_dagster.tracking.store import TrackingStore

RUN = "20261118T120102Z-aaaaaa"
FOLDER = f"sync_tracking_datasets/1/sync.crm/{RUN}"
ROWS, BATCH = 200_000, 5_000
ATTEMPT = Attempt(run_id=RUN, started_at=1.0, ended_at=2.0, max_attempts=3)


class Reader:
    """Opens every file that it sees, again and again, while others write."""

    def __init__(self, at: Place) -> None:
        self.seen: list[int] = []  # how many rows there were, look by look
        self.wrong: list[str] = []
        self._at = at
        self._news = threading.Condition()
        self._has_ended = False
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended = True
        self._thread.join()

    def wait_for_a_look(self) -> None:
        """Until it has looked once more from begin to end."""
        with self._news:
            begun = len(self.seen) + 1  # the one that is under way may have begun before
            assert self._news.wait_for(lambda: len(self.seen) > begun, timeout=60)

    def _poll(self) -> None:
        while not self._has_ended:
            rows = sum(map(self._rows_of, self._at.names(FOLDER)))
            with self._news:
                self.seen.append(rows)
                self._news.notify_all()

    def _rows_of(self, name: str) -> int:
        if not name.endswith(".parquet"):
            return 0
        try:
            table = self._at.table(f"{FOLDER}/{name}")
        except Exception as error:  # whatever a reader could stumble over
            self.wrong.append(f"{name}: {error!r}")
            return 0
        if table.schema != SCHEMA:
            self.wrong.append(f"{name}: {table.schema}")
        return table.num_rows


class Beside:
    """A run that settles rows, and what is published of them."""

    def __init__(self, queue: Queue, at: Place) -> None:
        self.publisher = Publisher(
            queue, at.store(), sync_id="sync.crm", run_id=RUN, operation=Operation.UPSERT
        )
        self._queue = queue
        self._layout = queue.layout_id(Layout((Column("id", "bigint"),)))
        publication.begin_run(queue, RUN, "{}")

    def settle(self, numbers: range, *, now: float = 3.0) -> None:
        rows = [
            SettledRow(str(n), n, ChangeType.INSERT, 1, "succeeded", None, self._layout, f"[{n}]")
            for n in numbers
        ]
        attempt = dataclasses.replace(ATTEMPT, ended_at=now)
        with self._queue.store.immediate():
            keep_settled(self._queue, UPDATED, rows, attempt)
        self.publisher.note(len(rows), now=now)


@pytest.mark.parametrize("at", ["folder"], indirect=True)
def test_no_record_waits_longer_than_publish_seconds_for_its_file(at: Place, tmp_path: Path) -> None:
    """However often a batch comes back."""
    with open_queue(tmp_path / "sync.crm.sqlite", shape=Shape.ROW) as queue:
        run = Beside(queue, at)
        published = []
        for second in range(0, 60, 2):
            run.settle(range(second, second + 1), now=1_000.0 + second)
            loose = publication.loose(queue, RUN)
            published.append(loose[0].oldest if loose else 1_000.0 + second)
    assert 10.0 > max(1_000.0 + 2 * place - oldest for place, oldest in enumerate(published))


@pytest.mark.parametrize("at", ["folder"], indirect=True)
def test_a_batch_of_very_many_rows_is_put_into_several_files(at: Place, tmp_path: Path) -> None:
    """A whole table in one call: a file that is too large for its reader helps nobody."""
    with open_queue(tmp_path / "sync.crm.sqlite", shape=Shape.ROW) as queue:
        run = Beside(queue, at)
        run.settle(range(125_000))
        run.publisher.publish_all()
    names = at.names(FOLDER)
    assert [50_000, 50_000, 25_000] == [at.table(f"{FOLDER}/{name}").num_rows for name in names]


@pytest.mark.parametrize("at", ["folder", "S3"], indirect=True)
def test_a_reader_beside_a_run_of_many_rows_sees_only_whole_files(at: Place, tmp_path: Path) -> None:
    """Somebody's query runs each minute, whatever we do."""
    with open_queue(tmp_path / "sync.crm.sqlite", shape=Shape.ROW) as queue, Reader(at) as reader:
        run = Beside(queue, at)
        for first in range(0, ROWS, BATCH):
            run.settle(range(first, first + BATCH))
            if (first + BATCH) % FILE_ROWS == 0:
                reader.wait_for_a_look()
        run.publisher.publish_all()
        reader.wait_for_a_look()
    assert [] == reader.wrong
    assert {FILE_ROWS, 2 * FILE_ROWS, 3 * FILE_ROWS, ROWS} <= set(reader.seen)
    assert sorted(reader.seen) == reader.seen


@pytest.mark.parametrize("shape", [Shape.ROW, Shape.GROUP])
@pytest.mark.parametrize("refusals", [1, FILE_ROWS + 1])
def test_refused_deletes_are_published_before_the_rows_that_came_after_them(
    tmp_path: Path, shape: Shape, refusals: int
) -> None:
    """Who goes on from the records of a killed run takes them for done when they have only those rows."""
    tracking = TrackingStore(str(tmp_path / "tracking"))
    replaces_rows = shape is Shape.ROW
    with open_queue(tmp_path / "queue.sqlite", shape=shape, replaces_rows=replaces_rows) as queue:
        layout = queue.layout_id(Layout((Column("id", "bigint"),)))
        publication.begin_run(queue, RUN, "{}")
        refused = SettledRow("1", 1, ChangeType.DELETE, 2, "rejected", "locked", layout, "[1]")
        came = SettledRow("2", 2, ChangeType.INSERT, 2, "succeeded", None, layout, "[2]")
        keep_settled(queue, DELETED, [refused] * refusals, ATTEMPT)
        keep_settled(queue, UPDATED, [came] * FILE_ROWS, ATTEMPT)
        publisher = Publisher(queue, tracking, sync_id="sync.crm", run_id=RUN, operation=Operation.UPSERT)
        publisher.note(FILE_ROWS + refusals, now=ATTEMPT.ended_at)
    deleted = [(DELETED, number) for number in range(1 + refusals // FILE_ROWS)]
    assert [*deleted, (UPDATED, 0)] == tracking.record_files("sync.crm", RUN)
