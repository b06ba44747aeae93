"""The claiming of batches: which units are sent together, and what happens to a batch after a crash."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.delivery_loop import DeliveryHooks, DeliverySettings, deliver
from ondatra_dagster.delivery.push.push_config import PushSettings
from ondatra_dagster.delivery.push.push_interface import PushResult
from ondatra_dagster.delivery.queue.claimed_batches import claim_batch, load_batches
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import read_dead_letters
from ondatra_dagster.delivery.queue.enqueue_changes import enqueue_segment
from ondatra_dagster.delivery.queue.queue_database import Queue, open_queue
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.row_changes import ChangeType, Column, FeedPage, FeedSegment, Layout, RowChange

LAYOUT = Layout((Column("id", "string"), Column("value", "int")))


def a_change(key: str, rowid: int, change_type: ChangeType = ChangeType.INSERT, version: int = 1) -> RowChange:
    value = rowid + 100 * (change_type is ChangeType.UPDATE_POSTIMAGE)
    return RowChange(key, rowid, change_type, version, orjson.dumps([key, value]).decode())


def a_segment(*changes: RowChange, upto: int = 1) -> FeedSegment:
    return FeedSegment(upto - 1, upto, [FeedPage(LAYOUT, list(changes))])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue" / "sync.sqlite"


@pytest.fixture
def groups(path: Path) -> Iterator[Queue]:
    with open_queue(path, shape=UnitKind.GROUP) as queue:
        yield queue


def sizes(queue: Queue, size: int) -> list[int]:
    batches = []
    while batch := claim_batch(queue, size=size, number=1):
        batches.append(len(batch.result_keys))
    return batches


def test_a_group_is_never_split(groups):
    """An API that gets half an invoice deletes the other half."""
    rows = [("a", 3), ("b", 2), ("c", 2), ("d", 1)]
    changes = [a_change(key, 10 * n + i) for n, (key, count) in enumerate(rows) for i in range(count)]
    enqueue_segment(groups, a_segment(*changes), now=1.0)
    assert [3, 4, 1] == sizes(groups, 4)


def test_a_group_larger_than_a_batch_is_a_batch_by_itself(groups):
    """No batch could contain it."""
    changes = [a_change("a", n) for n in range(5)] + [a_change("b", 9)]
    enqueue_segment(groups, a_segment(*changes), now=1.0)
    assert [5, 1] == sizes(groups, 2)


def test_both_images_of_an_update_are_sent_in_one_batch(path):
    """Push can't compare images that arrive in different calls."""
    with open_queue(path, shape=UnitKind.ROW) as queue:
        changes = [
            a_change(key, n, change)
            for n, key in enumerate("abc")
            for change in (ChangeType.UPDATE_PREIMAGE, ChangeType.UPDATE_POSTIMAGE)
        ]
        enqueue_segment(queue, a_segment(*changes), now=1.0)
        assert [2, 2, 2] == sizes(queue, 3)


def test_replaced_rows_are_deleted_before_new_ones_are_inserted(path):
    """If a sheet got the new rows first, it would have both for a while, or forever."""
    with open_queue(path, shape=UnitKind.ROW, replaces_rows=True) as queue:
        changes = [
            a_change("1", 1, ChangeType.DELETE),
            a_change("2", 2, ChangeType.INSERT),
            a_change("3", 3, ChangeType.DELETE),
        ]
        enqueue_segment(queue, a_segment(*changes), now=1.0)
        first = claim_batch(queue, size=10, number=1)
        assert ["1:delete", "3:delete"] == first.result_keys
        assert claim_batch(queue, size=10, number=2) is None  # while the deletes are in flight


def test_a_second_enqueue_of_the_same_versions_changes_nothing(groups):
    """This happens when the process crashes right after the commit."""
    enqueue_segment(groups, a_segment(a_change("a", 1)), now=1.0)
    before = groups.store.fetch_rows("select * from unit")
    assert 0 == enqueue_segment(groups, a_segment(a_change("a", 1)), now=2.0)
    assert before == groups.store.fetch_rows("select * from unit")


def test_a_row_that_was_inserted_and_deleted_before_a_push_is_not_sent(groups):
    """The API never had it."""
    enqueue_segment(
        groups, a_segment(a_change("a", 1), a_change("a", 1, ChangeType.DELETE, version=2), upto=2), now=1.0
    )
    assert [] == sizes(groups, 10)


def test_the_rows_of_an_interrupted_enqueue_stay_hidden_until_replaced(groups):
    """Rows are stored before their version becomes visible. A crash in between must not show half a version."""

    class CutError(Exception):
        """The end of the feed."""

    def pages() -> Iterator[FeedPage]:
        # more keys than fit in one transaction
        yield FeedPage(LAYOUT, [a_change(f"{n:05}", n) for n in range(6000)])
        raise CutError

    with pytest.raises(CutError):
        enqueue_segment(groups, FeedSegment(0, 1, pages()), now=1.0)
    assert 0 < groups.store.fetch_rows("select count(*) from unit")[0][0]
    assert claim_batch(groups, size=10, number=1) is None
    enqueue_segment(groups, a_segment(a_change("x", 7)), now=2.0)
    assert [("x",)] == groups.store.fetch_rows("select key from unit")


def test_a_claimed_batch_is_loaded_unchanged(path):
    """The journal has answers only for exactly the same calls."""
    with open_queue(path, shape=UnitKind.GROUP) as queue:
        enqueue_segment(queue, a_segment(a_change("a", 1), a_change("a", 2), a_change("b", 3)), now=1.0)
        claimed = claim_batch(queue, size=10, number=4)
    with open_queue(path, shape=UnitKind.GROUP) as queue:
        newer = (a_change("a", 1, ChangeType.DELETE, 2), a_change("a", 2, ChangeType.DELETE, 2))
        enqueue_segment(queue, a_segment(*newer, upto=2), now=2.0)
        assert [claimed] == load_batches(queue)


class CrashError(Exception):
    """The end of the process."""


def test_the_row_that_crashes_the_process_is_found_and_the_others_arrive(path, caplog):
    """One such row must not block a table forever."""
    arrived: list[str] = []

    def push(parcel, journal):
        rows = [row[0] for row in orjson.loads(parcel.rows_json)["rows"]]
        if "c" in rows:
            raise CrashError
        arrived.extend(rows)
        return PushResult({key: RowOutcome.parse_status("ok") for key in parcel.result_keys})

    course = DeliverySettings(
        run_id="r", journal_path=path.with_suffix(".journal"), push=PushSettings(batch_size=10, max_attempts=3)
    )
    with open_queue(path, shape=UnitKind.ROW) as queue:
        enqueue_segment(queue, a_segment(*(a_change(key, n) for n, key in enumerate("abcd"))), now=1.0)
    crashes = 0
    while True:
        with open_queue(path, shape=UnitKind.ROW) as queue, caplog.at_level(logging.WARNING):
            try:
                deliver(queue, push, course, DeliveryHooks(clock=lambda: 1.0, on_settled=lambda batch, settled: None))
                break
            except CrashError:
                crashes += 1
    assert 3 + 3 == crashes  # three times in its batch, then three times alone
    assert ["a", "b", "d"] == arrived
    with open_queue(path, shape=UnitKind.ROW) as queue:
        letters = list(read_dead_letters(queue.store, UnitKind.ROW))
    assert ["c"] == [letter.key for letter in letters]
    assert "alone ended the process 3 times" in letters[0].error
    assert "its keys go out one by one" in caplog.text


def test_a_process_that_crashes_between_batches_still_delivers_them(path):
    """The crash may come from publishing records each time. The batches in flight don't become dead letters."""
    course = DeliverySettings(
        run_id="r", journal_path=path.with_suffix(".journal"), push=PushSettings(batch_size=1, max_attempts=3)
    )
    keys: list[str] = []
    worst: list[int] = []
    ends = 0

    def push(parcel, journal):
        keys.append(parcel.units[0].key)
        return PushResult({key: RowOutcome.parse_status("ok") for key in parcel.result_keys})

    def on_settled(batch, _settled):
        worst.append(batch.crash_count)
        raise CrashError

    with open_queue(path, shape=UnitKind.ROW) as queue:
        enqueue_segment(queue, a_segment(*(a_change(key, n) for n, key in enumerate("abcdefgh"))), now=1.0)
    while ends < len(worst) + 1:
        with open_queue(path, shape=UnitKind.ROW) as queue, contextlib.suppress(CrashError):
            deliver(queue, push, course, DeliveryHooks(clock=lambda: 1.0, on_settled=on_settled))
        ends += 1
    assert ends <= 8 + 1  # each run settled at least one batch, and the last had nothing to do
    with open_queue(path, shape=UnitKind.ROW) as queue:
        assert ([], []) == (load_batches(queue), queue.store.fetch_rows("select * from unit"))
    assert set("abcdefgh") == set(keys)
    assert max(worst) <= 1  # after a crash each batch was sent alone, and so it was settled


def test_a_sync_that_may_not_continue_claims_no_batch(path):
    """The waiting rows of a paused sync can still get newer values."""
    course = DeliverySettings(
        run_id="r", journal_path=path.with_suffix(".journal"), push=PushSettings(batch_size=1, max_attempts=3)
    )
    keys: list[str] = []

    def push(parcel, journal):
        keys.extend(row[0] for row in orjson.loads(parcel.rows_json)["rows"])
        return PushResult({key: RowOutcome.parse_status("ok") for key in parcel.result_keys})

    with open_queue(path, shape=UnitKind.ROW) as queue:
        enqueue_segment(queue, a_segment(a_change("a", 1), a_change("b", 2)), now=1.0)
        hooks = DeliveryHooks(clock=lambda: 1.0, on_settled=lambda *_: None, may_continue=lambda: not keys)
        delivery = deliver(queue, push, course, hooks)
        assert [] == load_batches(queue)
    assert (1, ["a"]) == (delivery.batch_count, keys)


def test_ctrl_c_counts_as_no_crash_of_the_batch(path):
    """A user who stops a run five times has no row that crashes the process."""
    stops = 0

    def push(parcel, journal):
        if stops < 5:
            raise KeyboardInterrupt
        return PushResult({key: RowOutcome.parse_status("ok") for key in parcel.result_keys})

    course = DeliverySettings(
        run_id="r", journal_path=path.with_suffix(".journal"), push=PushSettings(batch_size=10, max_attempts=3)
    )
    with open_queue(path, shape=UnitKind.ROW) as queue:
        enqueue_segment(queue, a_segment(a_change("a", 1)), now=1.0)
    for stops in range(6):  # noqa: B007 - push reads it
        with open_queue(path, shape=UnitKind.ROW) as queue, contextlib.suppress(KeyboardInterrupt):
            deliver(queue, push, course, DeliveryHooks(clock=lambda: 1.0, on_settled=lambda batch, settled: None))
    with open_queue(path, shape=UnitKind.ROW) as queue:
        assert [] == queue.store.fetch_rows("select * from unit")
