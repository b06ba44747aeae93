"""The project's own file types with changed bytes, and what their readers return or raise."""

import collections
import contextlib
import dataclasses
import enum
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ondatra_dagster.collector.event_store import (
    EventRequest,
    event_store_path,
    open_locked_store,
    read_page_after,
    read_sequence_id,
)
from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.http.response_status_and_body_decoding import HttpResponse
from ondatra_dagster.delivery.push.push_interface import PushResult
from ondatra_dagster.delivery.queue import unpublished_records
from ondatra_dagster.delivery.queue.claimed_batches import claim_batch, load_batches
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import read_dead_letters
from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.queue_database import Queue, open_queue
from ondatra_dagster.delivery.queue.queue_status import read_status
from ondatra_dagster.delivery.queue.settle_batch import settle_batch
from ondatra_dagster.delivery.queue.snapshot_and_restore import QueueSnapshot, SnapshotUnit, make_snapshot
from ondatra_dagster.delivery.queue.unpublished_records import RECORDS_UPDATED, PushAttempt, read_unpublished_rows
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.errors import BusyError, StateError
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.records.record_schema import DeliveredRecord, RecordOperation, SyncRecord
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, Layout, RowChange
from ondatra_dagster.sync.run_history_store import PastRun, RunHistory, RunMode, RunResult

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
SYNC_ID, RUN_ID = "sync.things", "20261118T120000Z-abcdef"
ROWS = 60


class ReadResult(enum.Enum):
    """The result of reading a damaged file."""

    UNCHANGED = "as before"
    ERROR_MESSAGE = "sentence"
    OTHER_DATA = "other data"
    EXCEPTION = "exception"


@dataclasses.dataclass(frozen=True)
class WrittenFile:
    """A file that was written, and a function that reads all of it."""

    path: Path
    read_content: Callable[[], Any]
    # returns whether the data read from a damaged file is an allowed subset of the written data
    is_less: Callable[[Any, Any], bool] = lambda _written_data, _read_data: False


def yield_corrupted_contents(content: bytes, chance: random.Random, count: int) -> Iterator[bytes]:
    """Yield damaged contents: mostly with one flipped bit, sometimes cut off or with 16 random bytes."""
    for _ in range(count):
        damaged = bytearray(content)
        place, how = chance.randrange(len(content)), chance.random()
        if how < 0.8:
            damaged[place] ^= 1 << chance.randrange(8)
        elif how < 0.9:
            del damaged[place:]
        else:
            damaged[place : place + 16] = chance.randbytes(len(damaged[place : place + 16]))
        yield bytes(damaged)


def corrupt_and_read(file: WrittenFile, *, count: int, seed: int) -> Mapping[ReadResult, list[str]]:
    """Damage the file `count` times and return what each read gave."""
    content, expected_value = file.path.read_bytes(), file.read_content()
    verdicts: dict[ReadResult, list[str]] = collections.defaultdict(list)
    for damaged in yield_corrupted_contents(content, random.Random(seed), count):
        for leftover in ("-wal", "-shm"):
            file.path.with_name(file.path.name + leftover).unlink(missing_ok=True)
        _replace_file(file.path, damaged)
        try:
            actual_value = file.read_content()
        except StateError as error:
            is_named = file.path.name in str(error) and not isinstance(error, BusyError)
            verdicts[ReadResult.ERROR_MESSAGE if is_named else ReadResult.EXCEPTION].append(str(error))
        except Exception as error:  # a test counts it, whatever it is
            verdicts[ReadResult.EXCEPTION].append(f"{type(error).__name__}: {error}")
        else:
            is_known = actual_value == expected_value or file.is_less(expected_value, actual_value)
            verdicts[ReadResult.UNCHANGED if is_known else ReadResult.OTHER_DATA].append(str(actual_value))
    _replace_file(file.path, content)
    return verdicts


def _replace_file(path: Path, content: bytes) -> None:
    """Replace the file by another one: SQLite shares what it knows of a file between its connections."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)


def write_snapshot_file(folder: Path) -> WrittenFile:
    store = RecordStore(str(folder))
    states = ("waiting", "pending", "dead")
    units = [
        SnapshotUnit(f"c-{n}", 3, states[n % 3], f'{n} 1 ["a"]', None, f'{n} 1 ["b"]', n % 4, 1.5, "503", None)
        for n in range(ROWS)
    ]
    store.write_snapshot(
        QueueSnapshot(
            sync_id=SYNC_ID,
            run_id=RUN_ID,
            table_id="T",
            watermark=3,
            invalid_watermark=-1,
            base_url="http://x",
            written_at=NOW,
            units=units,
            layouts={1: '[["a","string"]]'},
            queue_metadata={"form": "x"},
        )
    )

    def read_content() -> Any:
        snapshot = store.read_newest_snapshot(SYNC_ID)
        return snapshot and dataclasses.replace(snapshot, units=list(snapshot.units))

    return WrittenFile(folder / f"queue_snapshots/1/{SYNC_ID}/{RUN_ID}.parquet", read_content)


def write_records_file(folder: Path) -> WrittenFile:
    store = RecordStore(str(folder))
    address = store.publish_records(SYNC_ID, RUN_ID, RecordFileType.UPDATED, 0, map(_record, range(ROWS)))

    def read_content() -> Any:
        ends = list(store.read_delivered_since(SYNC_ID, None, with_payload=True))
        return ends, store.count_records(SYNC_ID, RUN_ID, [(RecordFileType.UPDATED, 0)])

    return WrittenFile(Path(address), read_content)


def _record(number: int) -> SyncRecord:
    payload = f'{{"id":{number}}}'
    return SyncRecord(
        identifier=str(number),
        payload=payload,
        operation=RecordOperation.UPSERT,
        status="succeeded",
        status_message=None,
        batch_started_at=NOW,
        batch_ended_at=NOW,
        rowid=number,
        change_type="insert",
        table_version=3,
        table_id="T",
    )


def write_delivered_file(folder: Path) -> WrittenFile:
    store = RecordStore(str(folder))
    write_records_file(folder)
    ends: list[DeliveredRecord] = list(store.read_delivered_since(SYNC_ID, None, with_payload=True))
    store.write_delivered(SYNC_ID, ends, last_run=RUN_ID)
    store.remove_run(SYNC_ID, RUN_ID)
    path = folder / f"sent/1/{SYNC_ID}.parquet"
    return WrittenFile(path, lambda: list(store.read_delivered_since(SYNC_ID, None, with_payload=True)))


def write_history_file(folder: Path) -> WrittenFile:
    path = folder / "history.sqlite"
    for number in range(5):
        run_id = f"{RUN_ID}{number}"
        past = PastRun(
            sync_id=SYNC_ID,
            run_id=run_id,
            model=SYNC_ID,
            dagster_run_id=None,
            started_at=NOW,
            ended_at=NOW,
            trigger="a test",
            mode=RunMode.FULL,
            reason="a reason",
            version_from=1,
            version_to=2,
            counts={"grid": {}},
            result=RunResult.SUCCEEDED,
        )
        RunHistory(path).finish_run(past)

    def read_content() -> Any:
        history = RunHistory(path).as_required()
        return (history.list_runs(), history.read_totals(), history.read_newest_runs(), history.has_begun(SYNC_ID))

    # SQLite finds only some damage; other data is allowed here, because no delivery depends on the history
    return WrittenFile(path, read_content, is_less=lambda _written_data, _read_data: True)


def write_journal_file(folder: Path) -> WrittenFile:
    path = folder / "a.journal"
    with contextlib.closing(ResponseJournal.open(path, "seed")) as journal:
        journal.begin_batch("seed", 1)
        for number in range(ROWS):
            journal.record_response(journal.next_call_key(str(number)), HttpResponse(200, f"fine {number}", {"a": "b"}))

    def read_content() -> Any:
        with contextlib.closing(ResponseJournal.open(path, "seed")) as journal:
            return [journal.find_response(journal.next_call_key(str(number))) for number in range(ROWS)]

    def is_less(written_answers: Any, read_answers: Any) -> bool:
        """Return whether only the last responses are missing: their calls are made again."""
        responses = [answer for answer in read_answers if answer]
        return responses == written_answers[: len(responses)] and not any(read_answers[len(responses) :])

    return WrittenFile(path, read_content, is_less)


def write_queue_file(folder: Path) -> WrittenFile:
    """Write a queue with units in all states: pending, waiting, dead, in a batch, settled."""
    path = folder / "queue.sqlite"
    with open_queue(path, shape=UnitKind.ROW) as queue:
        queue.write_meta("table_id", "T")
        unpublished_records.begin_run(queue, RUN_ID, "{}")
        enqueue_segment(queue, _segment(-1, 1, ChangeType.INSERT, range(ROWS)), now=1.0)
        _settle_some(queue, "ok", 12)
        unpublished_records.assign_rows_to_file(queue, RUN_ID, RECORDS_UPDATED)
        _settle_some(queue, "ok", 3)
        _settle_some(queue, "reject: no", 3)
        _settle_some(queue, "error: 503", 3)
        claim_batch(queue, size=5, number=5)
        enqueue_segment(queue, _segment(1, 2, ChangeType.UPDATE_POSTIMAGE, range(20, 40)), now=1.0)

    def read_content() -> Any:
        with open_queue(path, shape=UnitKind.ROW) as queue:
            return list(_read_queue(queue))

    return WrittenFile(path, read_content)


def _segment(after: int, upto: int, change_type: ChangeType, rows: range) -> FeedSegment:
    layout = Layout((Column("id", "string"), Column("name", "string")))
    changes = [RowChange(f"c-{n}", n, change_type, upto, f'["c-{n}","v{upto}"]', "") for n in rows]
    return FeedSegment(after, upto, [FeedPage(layout, changes)])


def _settle_some(queue: Queue, status: str, rows: int) -> None:
    batch = claim_batch(queue, size=rows, number=1)
    assert batch
    attempt = PushAttempt(run_id=RUN_ID, started_at=1.0, ended_at=2.0, max_attempts=3)
    settle_batch(
        queue,
        batch,
        PushResult({key: RowOutcome.parse_status(status) for key in batch.result_keys}, calls=1),
        attempt,
        wait_seconds=lambda _: 9.0,
    )


def _read_queue(queue: Queue) -> Iterator[Any]:
    """Yield all that a run sends, publishes and leaves in the queue."""
    state = read_status(queue.store, now=5.0)
    yield (
        state.table_id,
        state.watermark,
        state.pending_units,
        state.waiting_units,
        state.dead_units,
        state.has_open_run,
    )
    yield [(batch.id, batch.batch_key, batch.units) for batch in load_batches(queue)]
    snapshot = make_snapshot(queue, sync_id=SYNC_ID, run_id=RUN_ID, written_at=NOW)
    # attempts, times and messages of a unit aren't protected
    units = [unit._replace(attempts=0, due_at=None, set_at=None, message=None) for unit in snapshot.units]
    yield dataclasses.replace(snapshot, units=units)
    yield unpublished_records.open_runs(queue)
    for file in unpublished_records.read_assigned_files(queue, RUN_ID):
        yield file, list(unpublished_records.read_file_rows(queue, file))
    yield list(read_unpublished_rows(queue.store, RUN_ID, RECORDS_UPDATED, ()))
    yield [(letter.key, letter.rows_to_send) for letter in read_dead_letters(queue.store, queue.unit_kind)]
    while batch := claim_batch(queue, size=10, number=9):
        yield [(unit.key, unit.version, unit.sent_rows) for unit in batch.units]


def write_event_store(folder: Path) -> WrittenFile:
    settings = read_settings(folder, {})
    models = ("events.views", "events.clicks")
    with open_locked_store(settings, "a test") as file:
        for number in range(ROWS):
            body = b'[{"n":%d}%b]' % (number, b',{"a":"long"}' * (200 * (number % 5 == 0)))
            file.store_requests([EventRequest(models[number % 2], 1_800_000_000_000_000 + number, 1, body)])
    path = event_store_path(settings)

    def read_content() -> Any:
        intakes = [read_page_after(path, model, 0, limit=1000) for model in models]
        return read_sequence_id(path), intakes

    return WrittenFile(path, read_content)


FILE_WRITERS: Mapping[str, Callable[[Path], WrittenFile]] = {
    "snapshot": write_snapshot_file,
    "records": write_records_file,
    "sent": write_delivered_file,
    "history": write_history_file,
    "journal": write_journal_file,
    "queue": write_queue_file,
    "events": write_event_store,
}
