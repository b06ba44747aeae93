"""The delivery of several batches at once, and the queue after a run that was cut off."""

import contextlib
import dataclasses
import errno
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.delivery_loop import (
    MAX_BATCHES_AHEAD,
    DeliveryHooks,
    DeliveryResult,
    DeliverySettings,
    deliver,
)
from ondatra_dagster.delivery.push.push_config import PushSettings
from ondatra_dagster.delivery.push.push_interface import PushBatch, PushResult
from ondatra_dagster.delivery.queue.claimed_batches import Batch, claim_batch, load_batches, mark_due_pending
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import read_dead_letters
from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.queue_database import Queue, open_for_reading, open_queue
from ondatra_dagster.delivery.queue.settle_batch import SettledBatch
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, Layout, RowChange

LAYOUT = Layout((Column("id", "string"),))
SECONDS = 30  # longer than anything in this file takes


@dataclasses.dataclass
class ScriptedApi:
    """A push function for deliver(). Each batch calls `on_batch` while it is in flight."""

    on_batch: Callable[[list[str]], object] = lambda keys: None
    received_keys: list[str] = dataclasses.field(default_factory=list)
    in_flight: int = 0
    max_in_flight: int = 0
    is_api_down: bool = False
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def __call__(self, parcel: PushBatch, journal: ResponseJournal) -> PushResult:
        keys = [row[0] for row in orjson.loads(parcel.rows_json)["rows"]]
        with self.lock:
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            self.on_batch(keys)
        finally:
            with self.lock:
                self.in_flight -= 1
        with self.lock:
            self.received_keys += keys
        status = "error: 503" if self.is_api_down else "ok"
        return PushResult(
            dict.fromkeys(parcel.result_keys, RowOutcome.parse_status(status)), calls=1, is_outage=self.is_api_down
        )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue" / "sync.sqlite"


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    with open_queue(path, shape=UnitKind.ROW) as queue:
        yield queue


def fill(queue: Queue, keys: str, *, version: int = 1) -> None:
    changes = [
        RowChange(key, number, ChangeType.INSERT, version, orjson.dumps([key]).decode())
        for number, key in enumerate(keys)
    ]
    enqueue_segment(queue, FeedSegment(version - 1, version, [FeedPage(LAYOUT, changes)]), now=1.0)


def send(queue: Queue, api: ScriptedApi, *, threads: int, size: int = 1, **options: object) -> DeliveryResult:
    course = DeliverySettings(
        run_id="r",
        journal_path=queue.store.path.with_suffix(".journal"),
        push=PushSettings(batch_size=size, max_attempts=3, max_concurrent=threads),
    )
    hooks = {"clock": lambda: 1.0, "on_settled": lambda batch, settled: None, **options}
    mark_due_pending(queue, hooks["clock"]())
    return deliver(queue, api, course, DeliveryHooks(**hooks))


def test_as_many_batches_as_allowed_are_in_flight_at_once(queue):
    """Batches don't wait for each other when an API answers slowly."""
    together = threading.Barrier(3)
    api = ScriptedApi(on_batch=lambda keys: together.wait(SECONDS))
    fill(queue, "abcdefghi")
    delivery = send(queue, api, threads=3)
    assert (9, 3) == (delivery.batch_count, api.max_in_flight)
    assert sorted("abcdefghi") == sorted(api.received_keys)
    assert [] == queue.store.fetch_rows("select * from unit")


def test_the_loop_does_other_work_while_it_waits_for_an_api(queue):
    """Records of settled batches are written within a minute, even if an answer takes ten."""
    looked = threading.Event()
    api = ScriptedApi(on_batch=lambda keys: looked.wait(SECONDS))
    fill(queue, "a")
    send(queue, api, threads=1, on_idle=looked.set, idle_seconds=lambda: 0.01)
    assert (["a"], True) == (api.received_keys, looked.is_set())


def test_one_thread_sends_batches_in_order_and_one_at_a_time(queue):
    """The next batch is claimed ahead, but not sent."""
    api = ScriptedApi()
    fill(queue, "abcdefgh")
    send(queue, api, threads=1)
    assert (list("abcdefgh"), 1) == (api.received_keys, api.max_in_flight)


def test_journals_are_reused_and_their_files_are_deleted(queue, path):
    """Ten thousand batches must not make ten thousand files, and responses contain personal data."""
    files: set[str] = set()
    api = ScriptedApi(on_batch=lambda keys: files.update(file.name for file in path.parent.glob("*.journal*")))
    fill(queue, "abcdefghijklmnopqrstuvwxyz")
    send(queue, api, threads=3)
    assert 3 <= len(files) <= 3 + MAX_BATCHES_AHEAD
    assert [] == list(path.parent.glob("*.journal*"))


def test_batches_claimed_ahead_are_released_when_the_api_is_down(queue):
    """The rows of a claimed batch wouldn't get newer values."""
    api = ScriptedApi(is_api_down=True)
    fill(queue, "abcdefgh")
    delivery = send(queue, api, threads=1)
    assert (3, True, list("abc")) == (delivery.batch_count, delivery.is_outage, api.received_keys)
    assert [] == load_batches(queue)
    assert [("pending", 5), ("waiting", 3)] == queue.store.fetch_rows(
        "select state, count(*) from unit group by state order by state"
    )


def test_an_outage_of_only_the_last_batch_does_not_count_as_an_outage(queue):
    """The other batches arrived. Users would stop reading alerts about a single failed batch."""
    fill(queue, "abc")
    api = ScriptedApi()
    api.on_batch = lambda keys: setattr(api, "is_api_down", keys == ["c"])
    delivery = send(queue, api, threads=1)
    assert (3, False) == (delivery.batch_count, delivery.is_outage)
    fill(queue, "d", version=2)
    api.on_batch = lambda keys: setattr(api, "is_api_down", True)
    assert send(queue, api, threads=1).is_outage  # no batch arrived


def test_a_mirror_sync_claims_no_batch_ahead(tmp_path):
    """Otherwise memory would hold eight partitions for one that is sent, and they wouldn't get newer values."""
    with open_queue(tmp_path / "mirror.sqlite", shape=UnitKind.MIRROR) as mirror:
        fill(mirror, "abcdefgh")
        claimed: set[int] = set()

        def look(keys: list[str]) -> None:
            with open_for_reading(mirror.store.path) as store:
                claimed.update(number for (number,) in store.fetch_rows("select count(*) from batch"))

        send(mirror, ScriptedApi(on_batch=look), threads=1, size=0)
    assert {1} == claimed


def test_batch_numbers_begin_at_one_and_continue_after_a_crash(queue):
    """A batch keeps its number, and no other batch of that run has it."""
    numbers: list[int] = []
    fill(queue, "abcd")

    def meet(keys: list[str]) -> None:
        if keys == ["c"]:
            raise PoisonError

    def note(batch: Batch, settled: SettledBatch) -> None:
        numbers.append(batch.number)

    with pytest.raises(PoisonError):
        send(queue, ScriptedApi(on_batch=meet), threads=1, on_settled=note)
    fill(queue, "ef", version=2)
    send(queue, ScriptedApi(), threads=1, on_settled=note)
    assert [1, 2, 3, 4, 5, 6] == numbers
    fill(queue, "g", version=3)
    send(queue, ScriptedApi(), threads=1, on_settled=note)
    assert 1 == numbers[-1]


def test_a_paused_sync_sends_no_further_batch(queue):
    """A batch that was claimed before the pause isn't sent either."""
    api = ScriptedApi()
    fill(queue, "abcdefgh")
    delivery = send(queue, api, threads=2, may_continue=lambda: len(api.received_keys) < 2)
    assert 2 <= delivery.batch_count <= 3
    assert [] == load_batches(queue)


class PoisonError(Exception):
    """The end of the process."""


def test_the_row_that_crashes_the_process_is_found_among_eight_batches(queue, caplog):
    """The other batches in flight don't become dead letters."""
    fill(queue, "abcdefghijklmnop")

    def meet(keys: list[str]) -> None:
        if "d" in keys:
            raise PoisonError

    api = ScriptedApi(on_batch=meet)
    for crashes in itertools.count():
        try:
            send(queue, api, threads=8, size=2)
            break
        except PoisonError:
            assert crashes < 10
    assert 3 + 3 == crashes  # three times in its batch, then three times alone
    assert ["d"] == dead_letters_of(queue)
    assert set("abcefghijklmnop") == set(api.received_keys)
    assert [] == load_batches(queue)


def test_ctrl_c_counts_as_no_crash_and_does_not_wait_for_the_api(queue):
    """A user who presses Ctrl-C five times wants the run to end, and wants no dead letters."""
    fill(queue, "abcd")
    never = threading.Event()
    away = threading.Semaphore(0)

    def meet(keys: list[str]) -> None:
        away.release()
        never.wait(SECONDS)

    def on_their_way() -> None:
        for _ in range(2):
            away.acquire(timeout=SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # test runners may ignore it
    try:
        for _ in range(5):
            presses = threading.Thread(target=on_their_way)
            presses.start()
            with pytest.raises(KeyboardInterrupt):
                send(queue, ScriptedApi(on_batch=meet), threads=2)
            presses.join()
    finally:
        signal.signal(signal.SIGINT, before)
    never.set()
    assert [0, 0, 0, 0] == [batch.crash_count for batch in load_batches(queue)]
    api = ScriptedApi()
    send(queue, api, threads=2)
    assert sorted("abcd") == sorted(api.received_keys)
    assert [] == queue.store.fetch_rows("select * from unit")


def test_a_failure_outside_of_push_counts_as_no_crash_of_the_batches(queue):
    """Three runs with a full disk or an unreachable bucket must not turn valid rows into dead letters."""
    fill(queue, "abcd")

    def fail(attempts: int) -> float:
        raise OSError(errno.ENOSPC, "No space left on device")

    for _ in range(5):
        with pytest.raises(OSError, match="No space left"):
            send(queue, ScriptedApi(is_api_down=True), threads=2, row_retry_seconds=fail)
    assert {0} == {batch.crash_count for batch in load_batches(queue)}
    api = ScriptedApi()
    send(queue, api, threads=2)
    assert sorted("abcd") == sorted(api.received_keys)
    assert [] == dead_letters_of(queue)


def dead_letters_of(queue: Queue) -> list[str]:
    return [letter.key for letter in read_dead_letters(queue.store, UnitKind.ROW)]


def test_batches_in_flight_are_finished_when_another_push_crashes(queue):
    """An error in ondatra must not cut off the calls of other batches."""
    fill(queue, "ab")
    both = threading.Barrier(2)

    def meet(keys: list[str]) -> None:
        both.wait(SECONDS)
        if keys == ["a"]:
            raise PoisonError

    api = ScriptedApi(on_batch=meet)
    with contextlib.suppress(PoisonError):
        send(queue, api, threads=2)
    assert ["b"] == api.received_keys


def test_batches_that_ended_before_a_crashed_push_are_settled(queue):
    """Batches that have ended share a commit, and a crashed one must not discard the others' results."""
    fill(queue, "abcd")
    c_is_sent = threading.Event()

    def meet(keys: list[str]) -> None:
        if keys == ["c"]:
            c_is_sent.set()
            raise PoisonError

    api = ScriptedApi(on_batch=meet)
    with pytest.raises(PoisonError):
        send(queue, api, threads=1, on_settled=lambda batch, settled: c_is_sent.wait(SECONDS))
    assert ["a", "b"] == api.received_keys  # d, which was claimed ahead, isn't sent
    assert [("c",), ("d",)] == queue.store.fetch_rows("select key from unit order by key")


def test_batches_claimed_ahead_of_a_kill_are_sent_normally(queue):
    """Push never saw them, so they don't count as crashed and needn't be sent row by row."""
    fill(queue, "abcd")
    first_batch, *_ = [claim_batch(queue, size=1, number=number) for number in (1, 2, 3, 4)]
    journal = ResponseJournal.open(queue.store.path.with_suffix(".journal"), first_batch.batch_key)
    journal.begin_batch(first_batch.batch_key, first_batch.id)
    journal.close()
    api = ScriptedApi()
    crashes: list[int] = []
    send(queue, api, threads=1, on_settled=lambda batch, settled: crashes.append(batch.crash_count))
    assert (list("abcd"), [1, 0, 0, 0]) == (api.received_keys, crashes)


def test_ctrl_c_while_a_batch_is_settled_counts_as_no_crash(queue):
    """Its commit didn't happen, so the batch is still in flight, and the shutdown isn't counted as a crash."""

    def interrupt(attempts: int) -> float:
        raise KeyboardInterrupt

    fill(queue, "ab")
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            send(queue, ScriptedApi(is_api_down=True), threads=1, row_retry_seconds=interrupt)
    assert [0, 0] == [batch.crash_count for batch in load_batches(queue)]
