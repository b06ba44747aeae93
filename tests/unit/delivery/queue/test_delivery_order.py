"""The order of delivery by kind: rows that replace others, versions of a key, whole tables and partitions."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.push.push_interface import PushBatch, PushResult
from ondatra_dagster.delivery.queue.change_and_outcome_counts import UnitOutcome
from ondatra_dagster.delivery.queue.claimed_batches import Batch, claim_batch, group_by_key, load_batches
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import (
    read_dead_letters,
    replay_dead_letters,
    retry_waiting_now,
)
from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.pending_rows import read_oldest_pending
from ondatra_dagster.delivery.queue.queue_database import Queue, open_queue
from ondatra_dagster.delivery.queue.queue_status import read_status
from ondatra_dagster.delivery.queue.settle_batch import SettledBatch, settle_batch
from ondatra_dagster.delivery.queue.unpublished_records import PushAttempt
from ondatra_dagster.delivery.row_outcome import NO_ROW_KEY, RowOutcome
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, Layout, RowChange, format_key

LAYOUT = Layout((Column("id", "string"), Column("value", "int")))
DELETE, INSERT = ChangeType.DELETE, ChangeType.INSERT
BEFORE, AFTER = ChangeType.UPDATE_PREIMAGE, ChangeType.UPDATE_POSTIMAGE


def a_row(rowid: int, change: ChangeType = INSERT, version: int = 1, of: str = "") -> RowChange:
    value = 10 * rowid + (change is AFTER)
    return RowChange(str(rowid), rowid, change, version, orjson.dumps([of, value]).decode(), of)


def take_in(queue: Queue, *changes: RowChange) -> None:
    """Enqueue the next version."""
    version = max(queue.watermark, 0) + 1
    numbered = [change._replace(version=version) for change in changes]
    enqueue_segment(queue, FeedSegment(version - 1, version, [FeedPage(LAYOUT, numbered)]), now=1.0)


def sent(batch: Batch | None) -> list[str]:
    return [row.result_key for unit in batch.units for row in unit.sent_rows] if batch else []


def end(queue: Queue, batch: Batch | None, *, status: str = "ok", **statuses: str) -> SettledBatch:
    """Settle a batch: `d3="error: no"` is the status of the delete of row 3."""
    assert batch
    words = {"d": DELETE, "i": INSERT, "b": BEFORE, "a": AFTER}
    chosen_outcomes = {f"{key[1:]}:{words[key[0]]}": RowOutcome.parse_status(text) for key, text in statuses.items()}
    outcomes = {
        key: chosen_outcomes.get(key, RowOutcome.parse_status(status))
        for unit in batch.units
        for key in unit.result_keys
    }
    attempt = PushAttempt(run_id="run", started_at=1.0, ended_at=2.0, max_attempts=2)
    return settle_batch(queue, batch, PushResult(outcomes), attempt, wait_seconds=lambda _: 60.0)


def go(queue: Queue, size: int = 100, **statuses: str) -> list[str]:
    """Claim and settle the next batch, and return the result keys of its rows."""
    batch = claim_batch(queue, size=size, number=1)
    if batch is None:
        return []
    end(queue, batch, **statuses)
    return sent(batch)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Queue]:
    with open_queue(tmp_path / "table.sqlite", shape=UnitKind.ROW, replaces_rows=True) as queue:
        yield queue


@pytest.fixture
def versions(tmp_path: Path) -> Iterator[Queue]:
    with open_queue(tmp_path / "scd2.sqlite", shape=UnitKind.VERSION) as queue:
        yield queue


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Queue]:
    with open_queue(tmp_path / "mirror.sqlite", shape=UnitKind.MIRROR) as queue:
        yield queue


@pytest.mark.parametrize("key", [None, "null", "[null]", "a\0b", "a", "", float("nan"), float("inf")])
def test_a_key_of_any_value_stays_one_unit_over_several_versions(mirror, key):
    """If the queue couldn't find a key again, each run would fail, forever."""
    names = [format_key([key]), format_key(["x"])]
    for version in (1, 2):
        take_in(mirror, *(a_row(n, version=version)._replace(key=name) for n, name in enumerate(names)))
    assert sorted(names) == sorted(name for (name,) in mirror.store.fetch_rows("select key from unit"))


def test_a_waiting_delete_delays_the_inserts_of_its_version(table):
    """A sheet with the old and the new rows is worse than one with only the old rows."""
    take_in(table, a_row(1), a_row(2))
    assert ["1:insert", "2:insert"] == go(table)
    take_in(table, a_row(1, DELETE), a_row(2, DELETE), a_row(3), a_row(4))
    assert ["1:delete", "2:delete"] == go(table, d2="error: later")
    assert [] == go(table)
    retry_waiting_now(table)
    assert ["2:delete"] == go(table)
    assert ["3:insert", "4:insert"] == go(table)


def test_rows_that_are_held_back_start_no_run(table):
    """Such a run would start at each tick and send nothing. It would end as a success although rows have failed."""
    take_in(table, a_row(1))
    go(table)
    take_in(table, a_row(1, DELETE), a_row(2))
    assert read_status(table.store, now=2.0).can_deliver
    assert ["1:delete"] == go(table, d1="error: later")
    status = read_status(table.store, now=2.0)
    assert (0, 0, 1, False) == (status.pending_units, status.held_back_units, status.waiting_units, status.can_deliver)
    assert read_status(table.store, now=1000.0).can_deliver  # the delete is due for its retry
    retry_waiting_now(table)
    assert ["1:delete"] == go(table)
    free = read_status(table.store, now=2.0)
    assert (1, 0, True) == (free.pending_units, free.held_back_units, free.can_deliver)


def test_a_rejected_delete_blocks_no_inserts_and_is_sent_again_later(table):
    """One row that can't be deleted must not block its table forever. The next version sends its delete again."""
    take_in(table, a_row(1), a_row(2))
    go(table)
    take_in(table, a_row(1, DELETE), a_row(2, DELETE), a_row(3), a_row(4))
    assert ["1:delete", "2:delete"] == go(table, d1="reject: locked", d2="reject: locked")
    assert ["3:insert", "4:insert"] == go(table, i3="error: later")
    take_in(table, a_row(3, DELETE), a_row(4, DELETE), a_row(5))
    assert ["1:delete", "2:delete", "4:delete"] == go(table)  # row 3 never arrived
    assert ["5:insert"] == go(table)


def test_a_late_delete_never_removes_a_row_that_came_back(table):
    """The row comes back with a new rowid. Its waiting delete is sent before the new insert."""
    take_in(table, a_row(1, of="a"))
    go(table)
    take_in(table, a_row(1, DELETE, of="a"))
    go(table, d1="error: later")
    take_in(table, a_row(2, of="a"))
    assert ["1:delete"] == go(table)
    assert ["2:insert"] == go(table)
    assert [] == table.store.fetch_rows("select * from unit")


def test_a_newer_version_removes_unsent_rows_from_the_queue(table):
    """Rows that the table no longer has must not appear in the API for a moment."""
    take_in(table, a_row(1))
    go(table, i1="error: later")
    take_in(table, a_row(1, DELETE), a_row(2))
    assert ["2:insert"] == go(table)
    assert [] == table.store.fetch_rows("select * from unit")


def test_deletes_next_to_inserts_have_a_record_only_if_they_fail(table):
    """They only make room, because the version is about the new rows."""
    take_in(table, a_row(1, of="mon"), a_row(2, of="tue"), a_row(3, of="wed"))
    go(table)
    replaced = (a_row(1, DELETE, of="mon"), a_row(2, DELETE, of="tue"), a_row(3, DELETE, of="wed"))
    take_in(table, *replaced, a_row(4, of="mon"), a_row(5, of="tue"))
    batch = claim_batch(table, size=100, number=1)
    settled = end(table, batch, d2="reject: locked")
    assert {"delete": 1} == settled.counts[UnitOutcome.SUCCEEDED]  # Wednesday has no row any more
    assert {"update": 1} == settled.counts[UnitOutcome.REJECTED]  # on Tuesday one row replaces another


def test_the_rows_of_an_append_are_sent_in_order(tmp_path):
    """The user may rely on the ORDER BY of the query."""
    with open_queue(tmp_path / "append.sqlite", shape=UnitKind.ROW) as queue:
        take_in(queue, *(a_row(n) for n in range(1, 6)))
        take_in(queue, *(a_row(n) for n in range(6, 9)))
        rows = [row for _ in range(4) for row in go(queue, size=2)]
    assert [f"{n}:insert" for n in range(1, 9)] == rows


def test_a_change_from_before_an_alter_is_sent_with_the_new_columns(tmp_path):
    """The change feed before an ALTER has other columns, but the same key."""
    wider = Layout((*LAYOUT.columns, Column("note", "string")))
    with open_queue(tmp_path / "merge.sqlite", shape=UnitKind.ROW) as queue:
        take_in(queue, a_row(1, of="a"), a_row(2, of="b"))
        go(queue, i1="error: later")
        pages = [
            FeedPage(wider, [RowChange("1", 1, change, 3, payload) for change, payload in images])
            for images in ([(BEFORE, '["a",10,null]'), (AFTER, '["a",10,"x"]')],)
        ]
        take_in(queue, a_row(2, BEFORE, of="b"), a_row(2, AFTER, of="b"))
        enqueue_segment(queue, FeedSegment(2, 3, pages), now=1.0)
        batch = claim_batch(queue, size=9, number=1)
        assert ["1:insert", "2:update_preimage", "2:update_postimage"] == sent(batch)
        rows = orjson.loads(PushBatch.from_batch(batch, queue.layouts).rows_json)["rows"]
    assert [["a", 10, "x"], ["b", 20, None], ["b", 21, None]] == [row[:-2] for row in rows]


def test_a_column_that_was_added_again_is_sent_next_to_rows_without_it(tmp_path):
    """Otherwise its values would count as delivered, and would never be sent."""
    without = Layout(LAYOUT.columns[:1])
    with open_queue(tmp_path / "merge.sqlite", shape=UnitKind.ROW) as queue:
        take_in(queue, a_row(1, of="a"))
        go(queue)
        old = RowChange("2", 2, INSERT, 2, '["b"]')
        enqueue_segment(queue, FeedSegment(1, 2, [FeedPage(without, [old])]), now=1.0)
        take_in(queue, a_row(3, of="c"))
        batch = claim_batch(queue, size=9, number=1)
        parcel = PushBatch.from_batch(batch, queue.layouts)
    assert LAYOUT == parcel.layout
    assert [["b", None], ["c", 30]] == [row[:-2] for row in orjson.loads(parcel.rows_json)["rows"]]


def test_the_versions_of_a_key_are_sent_in_one_batch_the_ended_one_first(versions):
    """An API that gets the new version first has two current ones, or rejects it."""
    take_in(versions, a_row(1, of="a"), a_row(2, of="b"), a_row(3, of="c"))
    assert ["1:insert", "2:insert"] == go(versions, size=2)
    assert ["3:insert"] == go(versions, size=2)
    # the order of the change feed: ended versions first, then new ones
    closed = [a_row(n, change, of=key) for n, key in ((1, "a"), (3, "c")) for change in (BEFORE, AFTER)]
    take_in(versions, *closed, a_row(4, of="a"), a_row(5, of="c"))
    pair = ["1:update_preimage", "1:update_postimage", "4:insert"]
    assert pair == go(versions, size=4)
    assert ["3:update_preimage", "3:update_postimage", "5:insert"] == go(versions, size=4)
    assert [] == go(versions)


def test_a_new_version_is_sent_with_the_unsettled_versions_before_it(versions):
    """Otherwise the API would have a new version next to an old one that never ended."""
    take_in(versions, a_row(1, of="a"), a_row(2, of="b"))
    go(versions)
    take_in(versions, a_row(1, BEFORE, of="a"), a_row(1, AFTER, of="a"), a_row(3, of="a"))
    go(versions, b1="reject: no", a1="reject: no", i3="error: later")
    assert [("a", "later")] == [(unit.key, unit.error) for unit in read_oldest_pending(versions.store, limit=9)]
    assert [("a", "no")] == [
        (letter.key, letter.error) for letter in read_dead_letters(versions.store, UnitKind.VERSION)
    ]
    take_in(versions, a_row(3, BEFORE, of="a"), a_row(3, AFTER, of="a"), a_row(4, of="a"))
    assert ["1:update_preimage", "1:update_postimage", "3:insert", "4:insert"] == go(versions)
    assert [] == versions.store.fetch_rows("select * from unit")


def test_a_key_with_a_version_in_flight_waits(versions):
    """Two concurrent calls may arrive in either order."""
    take_in(versions, a_row(1, of="a"), a_row(2, of="b"))
    first = claim_batch(versions, size=1, number=1)
    assert ["1:insert"] == sent(first)
    take_in(versions, a_row(1, BEFORE, of="a"), a_row(1, AFTER, of="a"), a_row(3, of="a"))
    assert ["2:insert"] == go(versions)
    assert [] == go(versions)
    end(versions, first)
    assert ["1:update_preimage", "1:update_postimage", "3:insert"] == go(versions)


def test_the_versions_of_an_empty_key_are_sent_like_all_others(versions):
    """An empty text is a value too."""
    take_in(versions, a_row(1, of=""), a_row(2, of="b"))
    assert ["1:insert", "2:insert"] == go(versions, i1="error: later")
    closed = [a_row(1, change, of="") for change in (BEFORE, AFTER)]
    take_in(versions, *closed, a_row(3, of=""))
    first = claim_batch(versions, size=2, number=1)
    assert ["1:insert", "3:insert"] == sent(first)
    assert [2] == [len(units) for units in group_by_key(first.units)]
    end(versions, first)
    assert [] == versions.store.fetch_rows("select * from unit")


def test_a_mirror_is_sent_in_one_batch_and_replaces_waiting_rows(mirror):
    """Each try sends the current rows of the table. A row that is gone is never sent."""
    rows = [a_row(n, of="mon")._replace(key="mon") for n in (1, 2, 3)]
    take_in(mirror, *rows, a_row(4, of="tue")._replace(key="tue"))
    assert ["1:insert", "2:insert", "3:insert"] == go(mirror, size=0, i2="error: later")
    assert ["4:insert"] == go(mirror, size=0)
    gone = [row._replace(change_type=DELETE) for row in rows]
    take_in(mirror, *gone, a_row(5, of="mon")._replace(key="mon"))
    assert ["5:insert"] == go(mirror, size=0)
    assert [] == mirror.store.fetch_rows("select * from unit")


def test_the_worst_status_of_a_row_decides_about_the_whole_mirror(mirror):
    """Half of a table isn't a mirror."""
    take_in(mirror, *(a_row(n)._replace(key="") for n in (1, 2, 3)))
    batch = claim_batch(mirror, size=0, number=1)
    settled = end(mirror, batch, i1="warn: long", i2="reject: bad")
    assert ({}, {"insert": 3}) == (settled.counts[UnitOutcome.SUCCEEDED], settled.counts[UnitOutcome.REJECTED])
    assert ["bad"] == [letter.error for letter in read_dead_letters(mirror.store, UnitKind.MIRROR)]
    assert 1 == replay_dead_letters(mirror, now=3.0)
    assert ["1:insert", "2:insert", "3:insert"] == go(mirror, size=0)


def test_an_empty_table_is_sent_as_a_mirror_without_rows(mirror):
    """Without that call the API would keep the last row forever."""
    take_in(mirror, a_row(1)._replace(key=""))
    go(mirror, size=0)
    take_in(mirror, a_row(1, DELETE)._replace(key=""))
    batch = claim_batch(mirror, size=0, number=1)
    assert batch
    assert [[NO_ROW_KEY]] == [unit.result_keys for unit in batch.units]
    assert '{"columns":["id","value","__ondatra_rowid","__ondatra_change_type"],"rows":[]}' == (
        PushBatch.from_batch(batch, mirror.layouts).rows_json
    )
    assert [batch] == load_batches(mirror)
    end(mirror, batch, status="error: later")
    retry_waiting_now(mirror)
    end(mirror, claim_batch(mirror, size=0, number=1), status="error: later")
    assert [1] == [letter.weight for letter in read_dead_letters(mirror.store, UnitKind.MIRROR)]
    replay_dead_letters(mirror, now=3.0)
    end(mirror, claim_batch(mirror, size=0, number=1))
    assert [] == mirror.store.fetch_rows("select * from unit")
