"""Files of ours with changed bytes, and what their readers make of these."""

import collections
import contextlib
import dataclasses
import enum
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ondatra_dagster.changes import Change, ChangeType, Column, FeedPage, Layout, Segment
from ondatra_dagster.collector.event_file import Intake, event_path, held_file, numbering_of, page_after
from ondatra_dagster.delivery.frontier import Frontier, FrontierUnit
from ondatra_dagster.delivery.journal import Answered, Journal
from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.queue import publication
from ondatra_dagster.delivery.queue.claim import claim, frozen_batches
from ondatra_dagster.delivery.queue.enqueue import enqueue
from ondatra_dagster.delivery.queue.letters import dead_letters
from ondatra_dagster.delivery.queue.settle import settle
from ondatra_dagster.delivery.queue.settled import UPDATED, Attempt
from ondatra_dagster.delivery.queue.states import look
from ondatra_dagster.delivery.queue.tables import Queue, open_queue
from ondatra_dagster.delivery.queue.takeover import frontier_of
from ondatra_dagster.delivery.queue.unpublished import ended_beside
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.errors import BusyError, StateError
from ondatra_dagster.project.settings.settings import read_settings
from ondatra_dagster.tracking.addresses import BatchType
from ondatra_dagster.tracking.history import History, Mode, PastRun, Result
from ondatra_dagster.tracking.record import Delivered, Operation, SyncRecord
from ondatra_dagster.tracking.store import TrackingStore

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
SYNC_ID, RUN_ID = "sync.things", "20261118T120000Z-abcdef"
ROWS = 60


class Verdict(enum.Enum):
    """What a reader made of a damaged file."""

    AS_BEFORE = "as before"
    SENTENCE = "sentence"
    OTHER_DATA = "other data"
    EXCEPTION = "exception"


@dataclasses.dataclass(frozen=True)
class WrittenFile:
    """A file that was written, and all that its readers read in it."""

    path: Path
    read: Callable[[], Any]
    # whether what was read of the damaged file is less of what was written, where that is allowed
    is_less: Callable[[Any, Any], bool] = lambda _written, _read: False


def damages(content: bytes, chance: random.Random, count: int) -> Iterator[bytes]:
    """Yield the content with one flipped bit, and now and then cut off or with random bytes in it."""
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


def judge(file: WrittenFile, *, count: int, seed: int) -> Mapping[Verdict, list[str]]:
    """Damage the file so often, and return what became of each."""
    content, written = file.path.read_bytes(), file.read()
    verdicts: dict[Verdict, list[str]] = collections.defaultdict(list)
    for damaged in damages(content, random.Random(seed), count):
        for leftover in ("-wal", "-shm"):
            file.path.with_name(file.path.name + leftover).unlink(missing_ok=True)
        _replace(file.path, damaged)
        try:
            found = file.read()
        except StateError as error:
            is_named = file.path.name in str(error) and not isinstance(error, BusyError)
            verdicts[Verdict.SENTENCE if is_named else Verdict.EXCEPTION].append(str(error))
        except Exception as error:  # whatever it is, a test counts it
            verdicts[Verdict.EXCEPTION].append(f"{type(error).__name__}: {error}")
        else:
            is_known = found == written or file.is_less(written, found)
            verdicts[Verdict.AS_BEFORE if is_known else Verdict.OTHER_DATA].append(str(found))
    _replace(file.path, content)
    return verdicts


def _replace(path: Path, content: bytes) -> None:
    """Put another file in the place of the one that was read: SQLite shares what it knows of one file."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)


def a_frontier(folder: Path) -> WrittenFile:
    store = TrackingStore(str(folder))
    states = ("waiting", "pending", "dead")
    units = [
        FrontierUnit(
            f"c-{n}", 3, states[n % 3], f'{n} 1 ["a"]', None, f'{n} 1 ["b"]', n % 4, 1.5, "503", None
        )
        for n in range(ROWS)
    ]
    store.write_frontier(
        Frontier(
            sync_id=SYNC_ID,
            run_id=RUN_ID,
            table_id="T",
            watermark=3,
            invalid_watermark=-1,
            base_url="http://x",
            written_at=NOW,
            units=units,
            layouts={1: '[["a","string"]]'},
            notes={"form": "x"},
        )
    )

    def read() -> Any:
        frontier = store.newest_frontier(SYNC_ID)
        return frontier and dataclasses.replace(frontier, units=list(frontier.units))

    return WrittenFile(folder / f"frontiers/1/{SYNC_ID}/{RUN_ID}.parquet", read)


def a_records_file(folder: Path) -> WrittenFile:
    store = TrackingStore(str(folder))
    address = store.publish(SYNC_ID, RUN_ID, BatchType.UPDATED, 0, map(_record, range(ROWS)))

    def read() -> Any:
        ends = list(store.delivered_since(SYNC_ID, None, with_payload=True))
        return ends, store.count_records(SYNC_ID, RUN_ID, [(BatchType.UPDATED, 0)])

    return WrittenFile(Path(address), read)


def _record(number: int) -> SyncRecord:
    payload = f'{{"id":{number}}}'
    return SyncRecord(
        identifier=str(number),
        payload=payload,
        operation=Operation.UPSERT,
        status="succeeded",
        status_message=None,
        batch_started_at=NOW,
        batch_ended_at=NOW,
        rowid=number,
        change_type="insert",
        table_version=3,
        table_id="T",
    )


def a_sent_file(folder: Path) -> WrittenFile:
    store = TrackingStore(str(folder))
    a_records_file(folder)
    ends: list[Delivered] = list(store.delivered_since(SYNC_ID, None, with_payload=True))
    store.keep_sent(SYNC_ID, ends, through=RUN_ID)
    store.remove_run(SYNC_ID, RUN_ID)
    path = folder / f"sent/1/{SYNC_ID}.parquet"
    return WrittenFile(path, lambda: list(store.delivered_since(SYNC_ID, None, with_payload=True)))


def a_history(folder: Path) -> WrittenFile:
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
            mode=Mode.FULL,
            reason="a reason",
            version_from=1,
            version_to=2,
            counts={"grid": {}},
            result=Result.SUCCEEDED,
        )
        History(path).finish(past)

    def read() -> Any:
        history = History(path).required()
        return history.runs(), history.totals(), history.newest(), history.has_begun(SYNC_ID)

    # SQLite notices what it notices: no delivery goes by it
    return WrittenFile(path, read, is_less=lambda _written, _read: True)


def a_journal(folder: Path) -> WrittenFile:
    path = folder / "a.journal"
    with contextlib.closing(Journal.open(path, "seed")) as journal:
        journal.begin_batch("seed", 1)
        for number in range(ROWS):
            journal.note_answer(journal.next_slot(str(number)), Answered(200, f"fine {number}", {"a": "b"}))

    def read() -> Any:
        with contextlib.closing(Journal.open(path, "seed")) as journal:
            return [journal.answer(journal.next_slot(str(number))) for number in range(ROWS)]

    def is_less(written: Any, found: Any) -> bool:
        """Return whether the last answers are gone: these calls are made again."""
        known = [answer for answer in found if answer]
        return known == written[: len(known)] and not any(found[len(known) :])

    return WrittenFile(path, read, is_less)


def a_queue(folder: Path) -> WrittenFile:
    """Put rows of all states into a queue: pending, waiting, dead, in a batch, settled."""
    path = folder / "queue.sqlite"
    with open_queue(path, shape=Shape.ROW) as queue:
        queue.set_meta("table_id", "T")
        publication.begin_run(queue, RUN_ID, "{}")
        enqueue(queue, _segment(-1, 1, ChangeType.INSERT, range(ROWS)), now=1.0)
        _settle_some(queue, "ok", 12)
        publication.choose(queue, RUN_ID, UPDATED)
        _settle_some(queue, "ok", 3)
        _settle_some(queue, "reject: no", 3)
        _settle_some(queue, "error: 503", 3)
        claim(queue, size=5, number=5)
        enqueue(queue, _segment(1, 2, ChangeType.UPDATE_POSTIMAGE, range(20, 40)), now=1.0)

    def read() -> Any:
        with open_queue(path, shape=Shape.ROW) as queue:
            return list(_read_queue(queue))

    return WrittenFile(path, read)


def _segment(after: int, upto: int, change_type: ChangeType, rows: range) -> Segment:
    layout = Layout((Column("id", "string"), Column("name", "string")))
    changes = [Change(f"c-{n}", n, change_type, upto, f'["c-{n}","v{upto}"]', "") for n in rows]
    return Segment(after, upto, [FeedPage(layout, changes)])


def _settle_some(queue: Queue, status: str, rows: int) -> None:
    batch = claim(queue, size=rows, number=1)
    assert batch
    attempt = Attempt(run_id=RUN_ID, started_at=1.0, ended_at=2.0, max_attempts=3, calls=1)
    settle(
        queue, batch, {key: Outcome.parse(status) for key in batch.result_keys}, attempt, wait=lambda _: 9.0
    )


def _read_queue(queue: Queue) -> Iterator[Any]:
    """Read all that a run sends, publishes and leaves."""
    state = look(queue.store, now=5.0)
    yield state.table_id, state.watermark, state.pending, state.waiting, state.dead, state.has_open_run
    yield [(batch.id, batch.seed, batch.units) for batch in frozen_batches(queue)]
    frontier = frontier_of(queue, sync_id=SYNC_ID, run_id=RUN_ID, written_at=NOW)
    # when and how often a unit is tried isn't protected, nor why it isn't there yet
    units = [unit._replace(attempts=0, due_at=None, set_at=None, message=None) for unit in frontier.units]
    yield dataclasses.replace(frontier, units=units)
    yield publication.open_runs(queue)
    for file in publication.chosen(queue, RUN_ID):
        yield file, list(publication.settled_rows(queue, file))
    yield list(ended_beside(queue.store, RUN_ID, UPDATED, ()))
    yield [(letter.key, letter.sends) for letter in dead_letters(queue.store, queue.shape)]
    while batch := claim(queue, size=10, number=9):
        yield [(unit.key, unit.version, unit.sent) for unit in batch.units]


def an_event_file(folder: Path) -> WrittenFile:
    settings = read_settings(folder, {})
    models = ("events.views", "events.clicks")
    with held_file(settings, "a test") as file:
        for number in range(ROWS):
            body = b'[{"n":%d}%b]' % (number, b',{"a":"long"}' * (200 * (number % 5 == 0)))
            file.take([Intake(models[number % 2], 1_800_000_000_000_000 + number, 1, body)])
    path = event_path(settings)

    def read() -> Any:
        intakes = [page_after(path, model, 0, most=1000) for model in models]
        return numbering_of(path), intakes

    return WrittenFile(path, read)


KINDS: Mapping[str, Callable[[Path], WrittenFile]] = {
    "frontier": a_frontier,
    "records": a_records_file,
    "sent": a_sent_file,
    "history": a_history,
    "journal": a_journal,
    "queue": a_queue,
    "events": an_event_file,
}
