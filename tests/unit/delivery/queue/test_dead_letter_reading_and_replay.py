"""The reading of dead letters in chunks: after one bad day there may be a million."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import (
    CHUNK_DEAD_LETTERS,
    read_dead_letters,
    replay_dead_letters,
)
from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.queue_database import Queue, open_for_reading, open_queue
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, Layout, RowChange

LAYOUT = Layout((Column("id", "string"), Column("value", "string")))
NUMBER = 4 * CHUNK_DEAD_LETTERS + 7
DIE = """
update unit set state = 'dead', attempts = 8, message = 'no', died_at = id % 10
"""


def key_of(number: int) -> str:
    return f"k{number:06}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue" / "sync.sqlite"


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    """Yield a queue with dead letters whose times have another order than their keys."""
    changes = [
        RowChange(key_of(n), n, ChangeType.INSERT, 1, orjson.dumps([key_of(n), str(n) + "x" * 1000]).decode())
        for n in range(NUMBER)
    ]
    with open_queue(path, shape=UnitKind.ROW) as queue:
        enqueue_segment(queue, FeedSegment(0, 1, [FeedPage(LAYOUT, changes)]), now=1.0)
        queue.store.execute(DIE)
        yield queue


def test_dead_letters_are_read_in_the_order_of_their_times(queue: Queue) -> None:
    letters = list(read_dead_letters(queue.store, UnitKind.ROW))

    assert NUMBER == len(letters)
    order = [(letter.died_at, letter.unit_id) for letter in letters]
    assert order == sorted(order)
    assert {key_of(n) for n in range(NUMBER)} == {letter.key for letter in letters}


@pytest.mark.parametrize(("limit", "offset"), [(1, 0), (CHUNK_DEAD_LETTERS + 1, 3), (10, NUMBER - 4), (5, NUMBER)])
def test_limit_and_offset_select_a_slice_of_the_dead_letters(limit: int, offset: int, queue: Queue) -> None:
    letters = [letter.key for letter in read_dead_letters(queue.store, UnitKind.ROW)]
    page = read_dead_letters(queue.store, UnitKind.ROW, limit=limit, offset=offset)

    assert letters[offset : offset + limit] == [letter.key for letter in page]


def test_only_some_dead_letters_are_in_memory_at_once(queue: Queue, path: Path) -> None:
    """Each payload has a kilobyte."""
    with open_for_reading(path) as store:
        assert store is not None
        tracemalloc.start()
        size = sum(len(letter.rows_to_send[0][1]["value"]) for letter in read_dead_letters(store, UnitKind.ROW))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert size > 1000 * NUMBER
    assert peak < size


def test_a_slow_reader_does_not_block_other_processes(queue: Queue, path: Path) -> None:
    """`ondatra dead --json | less` blocks no replay. The reader omits dead letters that are replayed meanwhile."""
    with open_for_reading(path) as store:
        assert store is not None
        letters = read_dead_letters(store, UnitKind.ROW)
        first = next(letters)
        assert NUMBER == replay_dead_letters(queue, now=2.0)
        queue.store.checkpoint()
        assert 0 == Path(f"{path}-wal").stat().st_size
        rest = list(letters)

    assert not first.died_at.timestamp()
    assert CHUNK_DEAD_LETTERS - 1 == len(rest)


def test_a_replay_drops_dead_letters_with_nothing_to_send(queue: Queue) -> None:
    """It counts them too. The API already has their rows."""
    queue.store.execute("update unit set acknowledged = desired, maybe_sent = null where id % 2")

    assert NUMBER == replay_dead_letters(queue, now=2.0)
    ((pending_count,),) = queue.store.fetch_rows("select count(*) from unit where state = 'pending' and attempts = 0")
    ((units,),) = queue.store.fetch_rows("select count(*) from unit")
    assert pending_count == units == NUMBER - (NUMBER + 1) // 2
