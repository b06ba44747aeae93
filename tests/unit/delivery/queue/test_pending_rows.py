"""The rows that wait in a queue, as the records page lists them."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from ondatra_dagster.delivery.acknowledged_to_desired_diff import StoredRow, UnitKind
from ondatra_dagster.delivery.push.push_interface import PushResult
from ondatra_dagster.delivery.queue.async_jobs import store_job
from ondatra_dagster.delivery.queue.claimed_batches import Batch, Job, claim_batch
from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.pending_rows import PendingRow, PendingRowReader
from ondatra_dagster.delivery.queue.queue_database import Queue, open_for_reading, open_queue
from ondatra_dagster.delivery.queue.settle_batch import settle_batch
from ondatra_dagster.delivery.queue.unpublished_records import PushAttempt
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, Layout, RowChange

LAYOUT = Layout((Column("name", "string"),))
INSERT, DELETE = ChangeType.INSERT, ChangeType.DELETE
BEFORE, AFTER = ChangeType.UPDATE_PREIMAGE, ChangeType.UPDATE_POSTIMAGE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "crm.sqlite"


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    with open_queue(path, shape=UnitKind.ROW) as queue:
        yield queue


def a_change(key: str, change_type: ChangeType = INSERT, *, name: str = "Ada", **fields: object) -> RowChange:
    change = RowChange(key, ord(key[:1] or "x"), change_type, 1, orjson.dumps([name]).decode())
    return change._replace(**fields)


def write(queue: Queue, *changes: RowChange, version: int = 1) -> None:
    dated = [change._replace(version=version) for change in changes]
    enqueue_segment(queue, FeedSegment(version - 1, version, [FeedPage(LAYOUT, dated)]), now=1.0)


def send(queue: Queue, word: str, *, size: int = 100) -> None:
    """Settle one batch with this status for every row."""
    batch = taken(queue, size=size)
    outcomes = dict.fromkeys(batch.result_keys, RowOutcome.parse_status(word))
    attempt = PushAttempt(run_id="r", started_at=1.0, ended_at=2.0, max_attempts=8)
    settle_batch(queue, batch, PushResult(outcomes), attempt, wait_seconds=lambda _: 60.0)


def taken(queue: Queue, *, size: int = 100) -> Batch:
    batch = claim_batch(queue, size=size, number=1)
    assert batch
    return batch


def unsettled(
    path: Path, *, shape: UnitKind = UnitKind.ROW, whole: bool = False, makes_room: bool = False, **asked: str
) -> list[PendingRow]:
    with open_for_reading(path) as store:
        assert store
        look = PendingRowReader(store=store, unit_kind=shape, replaces_rows=makes_room, is_whole_table=whole)
        return list(look.read_rows(**asked))


def keys(rows: list[PendingRow]) -> list[tuple[str, str, str]]:
    return [(row.stage, row.key, str(row.change_type)) for row in rows]


def test_the_newest_rows_are_listed_first(queue: Queue, path: Path) -> None:
    """Records have the same order."""
    write(queue, a_change("a"), a_change("b"))
    write(queue, a_change("c", name="Cy"), version=2)
    assert [
        PendingRow("pending", "c", INSERT, StoredRow(99, 1, '["Cy"]'), 2, 0, None, None),
        PendingRow("pending", "b", INSERT, StoredRow(98, 1, '["Ada"]'), 1, 0, None, None),
        PendingRow("pending", "a", INSERT, StoredRow(97, 1, '["Ada"]'), 1, 0, None, None),
    ] == unsettled(path)


def test_a_failed_row_is_waiting_and_has_its_error(queue: Queue, path: Path) -> None:
    """It also has its number of attempts and the time of its retry."""
    write(queue, a_change("a"))
    send(queue, "error: busy")
    assert [PendingRow("waiting", "a", INSERT, StoredRow(97, 1, '["Ada"]'), 1, 1, 62.0, "busy")] == unsettled(path)


def test_delivered_rows_and_dead_letters_are_not_listed(queue: Queue, path: Path) -> None:
    """They have their records."""
    write(queue, a_change("a"))
    send(queue, "reject: no")
    write(queue, a_change("b"), version=2)
    send(queue, "ok")
    assert [] == unsettled(path)


def test_a_row_in_flight_is_pending_with_the_values_that_were_sent(queue: Queue, path: Path) -> None:
    """A newer value of the key also waits, and will have its own record."""
    write(queue, a_change("a", name="old"))
    taken(queue)
    write(queue, a_change("a", BEFORE, name="old"), a_change("a", AFTER, name="new"), version=2)
    assert [PendingRow("pending", "a", INSERT, StoredRow(97, 1, '["old"]'), 1, 0, None, None)] == unsettled(path)


def test_rows_in_a_job_are_waiting_for_it(queue: Queue, path: Path) -> None:
    """They are due at its next poll. Nothing is wrong with them."""
    write(queue, a_change("a"), a_change("b"))
    batch = taken(queue, size=1)
    store_job(queue, batch, Job('{"id":1}', 10.0, 40.0))
    assert [
        PendingRow("waiting", "a", INSERT, StoredRow(97, 1, '["Ada"]'), 1, 0, 40.0, "the API works on it"),
        PendingRow("pending", "b", INSERT, StoredRow(98, 1, '["Ada"]'), 1, 0, None, None),
    ] == unsettled(path)
    assert [("pending", "b", "insert")] == keys(unsettled(path, stage="pending"))
    assert [("waiting", "a", "insert")] == keys(unsettled(path, stage="waiting"))


def test_an_update_is_listed_once(queue: Queue, path: Path) -> None:
    """Its preimage is only context for push, and will have no record."""
    write(queue, a_change("a", BEFORE, name="old"), a_change("a", AFTER, name="new"))
    assert [PendingRow("pending", "a", AFTER, StoredRow(97, 1, '["new"]'), 1, 0, None, None)] == unsettled(path)


def test_keys_are_found_by_their_prefix(queue: Queue, path: Path) -> None:
    """Characters that LIKE takes for a pattern are ordinary characters here."""
    write(queue, *(a_change(key) for key in ("a%", "a_b", "ab", "A", "é😀x")))
    assert ["ab", "a_b", "a%"] == [row.key for row in unsettled(path, prefix="a")]
    assert ["a_b"] == [row.key for row in unsettled(path, prefix="a_")]
    assert ["a%"] == [row.key for row in unsettled(path, prefix="a%")]
    assert ["é😀x"] == [row.key for row in unsettled(path, prefix="é😀")]


def test_rows_above_the_watermark_are_not_listed(queue: Queue, path: Path) -> None:
    """They are stored in small transactions, and become visible all at once."""
    write(queue, a_change("a"))
    queue.store.execute("update unit set version = 2")
    assert [] == unsettled(path)


def test_a_group_is_listed_with_its_current_rows(path: Path) -> None:
    """Its former rows are only context for push. A group without current rows is listed with its deletes."""
    with open_queue(path, shape=UnitKind.GROUP) as queue:
        gone, new = a_change("g", DELETE, name="old"), a_change("g", name="new")
        write(queue, gone, new, new._replace(rowid=2), a_change("h", DELETE))
        assert [("pending", "h", "delete"), ("pending", "g", "insert"), ("pending", "g", "insert")] == keys(
            unsettled(path, shape=UnitKind.GROUP)
        )


def test_a_version_is_listed_with_its_key(path: Path) -> None:
    """Its rowid means nothing to users."""
    with open_queue(path, shape=UnitKind.VERSION) as queue:
        write(queue, a_change("1", belongs_to="ada"))
        assert [("pending", "ada", "insert")] == keys(unsettled(path, shape=UnitKind.VERSION))
        assert [] == unsettled(path, shape=UnitKind.VERSION, prefix="1")
        assert 1 == len(unsettled(path, shape=UnitKind.VERSION, prefix="a"))


def test_the_rows_of_a_whole_table_are_listed_with_their_rowids(path: Path) -> None:
    """Their records have the same identifiers."""
    with open_queue(path, shape=UnitKind.MIRROR, is_whole_table=True) as queue:
        write(queue, a_change("", rowid=17), a_change("", rowid=2))
        options = {"shape": UnitKind.MIRROR, "whole": True}
        assert ["17", "2"] == [row.key for row in unsettled(path, **options)]
        assert ["17"] == [row.key for row in unsettled(path, **options, prefix="1")]


def test_a_row_that_is_sent_again_is_listed_once(path: Path) -> None:
    """It is unknown what the API has. So a delete is sent first, which will have no record."""
    with open_queue(path, shape=UnitKind.ROW, replaces_rows=True) as queue:
        page = FeedPage(LAYOUT, [a_change("1")])
        enqueue_segment(queue, FeedSegment(0, 1, [page]), now=1.0, is_held=lambda key: True)
        assert ["delete", "insert"] == [str(row.change_type) for unit in taken(queue).units for row in unit.sent_rows]
        assert [("pending", "1", "insert")] == keys(unsettled(path, makes_room=True))


def test_deletes_of_replaced_rows_are_listed_when_they_fail(path: Path) -> None:
    """A delivered one has no record. But while the API refuses a delete, no insert is sent."""
    with open_queue(path, shape=UnitKind.ROW, replaces_rows=True) as queue:
        old, new = a_change("1", DELETE, belongs_to="p"), a_change("2", belongs_to="p")
        write(queue, old, new)
        assert [("pending", "2", "insert")] == keys(unsettled(path, makes_room=True))
        send(queue, "error: busy")
        assert [("pending", "2", "insert"), ("waiting", "1", "delete")] == keys(unsettled(path, makes_room=True))
