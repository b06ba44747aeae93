"""Which units go out together, and what a crash makes of a batch."""

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
    """It can't wait for a batch that would hold it."""
    changes = [a_change("a", n) for n in range(5)] + [a_change("b", 9)]
    enqueue_segment(groups, a_segment(*changes), now=1.0)
    assert [5, 1] == sizes(groups, 2)


def test_an_update_s_pair_goes_in_one_batch(path):
    """Push can't compare images that come in different calls."""
    with open_queue(path, shape=UnitKind.ROW) as queue:
        changes = [
            a_change(key, n, change)
            for n, key in enumerate("abc")
            for change in (ChangeType.UPDATE_PREIMAGE, ChangeType.UPDATE_POSTIMAGE)
        ]
        enqueue_segment(queue, a_segment(*changes), now=1.0)
        assert [2, 2, 2] == sizes(queue, 3)


def test_replaced_rows_are_deleted_before_new_ones_are_inserted(path):
    """A sheet that gets the new rows first has them twice for a while, or for ever."""
    with open_queue(path, shape=UnitKind.ROW, replaces_rows=True) as queue:
        changes = [
            a_change("1", 1, ChangeType.DELETE),
            a_change("2", 2, ChangeType.INSERT),
            a_change("3", 3, ChangeType.DELETE),
        ]
        enqueue_segment(queue, a_segment(*changes), now=1.0)
        first = claim_batch(queue, size=10, number=1)
        assert ["1:delete", "3:delete"] == first.result_keys
        assert claim_batch(queue, size=10, number=2) is None  # while they are on their way


def test_a_second_enqueue_of_the_same_versions_changes_nothing(groups):
    """A crash after the commit makes it happen."""
    enqueue_segment(groups, a_segment(a_change("a", 1)), now=1.0)
    before = groups.store.fetch_rows("select * from unit")
    assert 0 == enqueue_segment(groups, a_segment(a_change("a", 1)), now=2.0)
    assert before == groups.store.fetch_rows("select * from unit")


def test_a_row_that_came_and_went_before_it_was_sent_is_not_sent(groups):
    """The API never had it."""
    enqueue_segment(
        groups, a_segment(a_change("a", 1), a_change("a", 1, ChangeType.DELETE, version=2), upto=2), now=1.0
    )
    assert [] == sizes(groups, 10)


def test_what_a_cut_off_enqueue_left_is_invisible_and_then_replaced(groups):
    """Rows come in before their version becomes visible; a crash in between must not show half of it."""

    class CutError(Exception):
        """The feed ends here."""

    def pages() -> Iterator[FeedPage]:
        # more keys than one transaction takes
        yield FeedPage(LAYOUT, [a_change(f"{n:05}", n) for n in range(6000)])
        raise CutError

    with pytest.raises(CutError):
        enqueue_segment(groups, FeedSegment(0, 1, pages()), now=1.0)
    assert 0 < groups.store.fetch_rows("select count(*) from unit")[0][0]
    assert claim_batch(groups, size=10, number=1) is None
    enqueue_segment(groups, a_segment(a_change("x", 7)), now=2.0)
    assert [("x",)] == groups.store.fetch_rows("select key from unit")


def test_a_frozen_batch_comes_back_as_it_was(path):
    """The journal can answer only for the very same calls."""
    with open_queue(path, shape=UnitKind.GROUP) as queue:
        enqueue_segment(queue, a_segment(a_change("a", 1), a_change("a", 2), a_change("b", 3)), now=1.0)
        claimed = claim_batch(queue, size=10, number=4)
    with open_queue(path, shape=UnitKind.GROUP) as queue:
        newer = (a_change("a", 1, ChangeType.DELETE, 2), a_change("a", 2, ChangeType.DELETE, 2))
        enqueue_segment(queue, a_segment(*newer, upto=2), now=2.0)
        assert [claimed] == load_batches(queue)


class CrashError(Exception):
    """The process ends here."""


def test_the_row_that_ends_the_process_is_found_and_the_others_arrive(path, caplog):
    """One poisonous row must not hold up a table for ever."""
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
    assert 3 + 3 == crashes  # as a batch, then alone
    assert ["a", "b", "d"] == arrived
    with open_queue(path, shape=UnitKind.ROW) as queue:
        letters = list(read_dead_letters(queue.store, UnitKind.ROW))
    assert ["c"] == [letter.key for letter in letters]
    assert "alone ended the process 3 times" in letters[0].error
    assert "its keys go out one by one" in caplog.text


def test_a_process_that_ends_between_batches_holds_none_of_them_up(path):
    """Publishing records may be what it dies of each time; the batches on their way are not to blame."""
    course = DeliverySettings(
        run_id="r", journal_path=path.with_suffix(".journal"), push=PushSettings(batch_size=1, max_attempts=3)
    )
    sent: list[str] = []
    worst: list[int] = []
    ends = 0

    def push(parcel, journal):
        sent.append(parcel.units[0].key)
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
    assert ends <= 8 + 1  # each of them got further, by one batch or more, and the last had nothing to do
    with open_queue(path, shape=UnitKind.ROW) as queue:
        assert ([], []) == (load_batches(queue), queue.store.fetch_rows("select * from unit"))
    assert set("abcdefgh") == set(sent)
    assert max(worst) <= 1  # each went alone after that, and so came to its end


def test_a_sync_that_may_not_go_on_claims_nothing(path):
    """What is paused isn't frozen: newer changes of its rows take its place."""
    course = DeliverySettings(
        run_id="r", journal_path=path.with_suffix(".journal"), push=PushSettings(batch_size=1, max_attempts=3)
    )
    seen: list[str] = []

    def push(parcel, journal):
        seen.extend(row[0] for row in orjson.loads(parcel.rows_json)["rows"])
        return PushResult({key: RowOutcome.parse_status("ok") for key in parcel.result_keys})

    with open_queue(path, shape=UnitKind.ROW) as queue:
        enqueue_segment(queue, a_segment(a_change("a", 1), a_change("b", 2)), now=1.0)
        hooks = DeliveryHooks(clock=lambda: 1.0, on_settled=lambda *_: None, may_continue=lambda: not seen)
        delivery = deliver(queue, push, course, hooks)
        assert [] == load_batches(queue)
    assert (1, ["a"]) == (delivery.batch_count, seen)


def test_an_interrupted_batch_is_not_held_against_its_rows(path):
    """Who stops a run by hand five times hasn't found a poisonous row."""
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
    for stops in range(6):  # noqa: B007 - push looks at it
        with open_queue(path, shape=UnitKind.ROW) as queue, contextlib.suppress(KeyboardInterrupt):
            deliver(queue, push, course, DeliveryHooks(clock=lambda: 1.0, on_settled=lambda batch, settled: None))
    with open_queue(path, shape=UnitKind.ROW) as queue:
        assert [] == queue.store.fetch_rows("select * from unit")
