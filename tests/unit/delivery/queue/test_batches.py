"""Which units go out together, and what a crash makes of a batch."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from ondatra_dagster.changes import Change, ChangeType, Column, FeedPage, Layout, Segment
from ondatra_dagster.delivery.deliver import Course, deliver
from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.push.push_port import Pushed
from ondatra_dagster.delivery.queue.claim import claim, frozen_batches
from ondatra_dagster.delivery.queue.enqueue import enqueue
from ondatra_dagster.delivery.queue.letters import dead_letters
from ondatra_dagster.delivery.queue.tables import Queue, open_queue
from ondatra_dagster.delivery.target import Shape

LAYOUT = Layout((Column("id", "string"), Column("value", "int")))


def a_change(key: str, rowid: int, change_type: ChangeType = ChangeType.INSERT, version: int = 1) -> Change:
    value = rowid + 100 * (change_type is ChangeType.UPDATE_POSTIMAGE)
    return Change(key, rowid, change_type, version, orjson.dumps([key, value]).decode())


def a_segment(*changes: Change, upto: int = 1) -> Segment:
    return Segment(upto - 1, upto, [FeedPage(LAYOUT, list(changes))])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue" / "sync.sqlite"


@pytest.fixture
def groups(path: Path) -> Iterator[Queue]:
    with open_queue(path, shape=Shape.GROUP) as queue:
        yield queue


def sizes(queue: Queue, size: int) -> list[int]:
    batches = []
    while batch := claim(queue, size=size, number=1):
        batches.append(len(batch))
    return batches


def test_a_group_is_never_split(groups):
    """An API that gets half an invoice deletes the other half."""
    rows = [("a", 3), ("b", 2), ("c", 2), ("d", 1)]
    changes = [a_change(key, 10 * n + i) for n, (key, count) in enumerate(rows) for i in range(count)]
    enqueue(groups, a_segment(*changes), now=1.0)
    assert [3, 4, 1] == sizes(groups, 4)


def test_a_group_larger_than_a_batch_is_a_batch_by_itself(groups):
    """It can't wait for a batch that would hold it."""
    changes = [a_change("a", n) for n in range(5)] + [a_change("b", 9)]
    enqueue(groups, a_segment(*changes), now=1.0)
    assert [5, 1] == sizes(groups, 2)


def test_an_update_s_pair_goes_in_one_batch(path):
    """Push can't compare images that come in different calls."""
    with open_queue(path, shape=Shape.ROW) as queue:
        changes = [
            a_change(key, n, change)
            for n, key in enumerate("abc")
            for change in (ChangeType.UPDATE_PREIMAGE, ChangeType.UPDATE_POSTIMAGE)
        ]
        enqueue(queue, a_segment(*changes), now=1.0)
        assert [2, 2, 2] == sizes(queue, 3)


def test_replaced_rows_are_deleted_before_new_ones_are_inserted(path):
    """A sheet that gets the new rows first has them twice for a while, or for ever."""
    with open_queue(path, shape=Shape.ROW, replaces_rows=True) as queue:
        changes = [
            a_change("1", 1, ChangeType.DELETE),
            a_change("2", 2, ChangeType.INSERT),
            a_change("3", 3, ChangeType.DELETE),
        ]
        enqueue(queue, a_segment(*changes), now=1.0)
        first = claim(queue, size=10, number=1)
        assert ["1:delete", "3:delete"] == [row.result_key for row in first.rows()]
        assert claim(queue, size=10, number=2) is None  # while they are on their way


def test_a_second_enqueue_of_the_same_versions_changes_nothing(groups):
    """A crash after the commit makes it happen."""
    enqueue(groups, a_segment(a_change("a", 1)), now=1.0)
    before = groups.store.rows("select * from unit")
    assert 0 == enqueue(groups, a_segment(a_change("a", 1)), now=2.0)
    assert before == groups.store.rows("select * from unit")


def test_a_row_that_came_and_went_before_it_was_sent_is_not_sent(groups):
    """The API never had it."""
    enqueue(
        groups,
        a_segment(a_change("a", 1), a_change("a", 1, ChangeType.DELETE, version=2), upto=2),
        now=1.0,
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
        enqueue(groups, Segment(0, 1, pages()), now=1.0)
    assert 0 < groups.store.rows("select count(*) from unit")[0][0]
    assert claim(groups, size=10, number=1) is None
    enqueue(groups, a_segment(a_change("x", 7)), now=2.0)
    assert [("x",)] == groups.store.rows("select key from unit")


def test_a_frozen_batch_comes_back_as_it_was(path):
    """The journal can answer only for the very same calls."""
    with open_queue(path, shape=Shape.GROUP) as queue:
        enqueue(queue, a_segment(a_change("a", 1), a_change("a", 2), a_change("b", 3)), now=1.0)
        claimed = claim(queue, size=10, number=4)
    with open_queue(path, shape=Shape.GROUP) as queue:
        newer = (a_change("a", 1, ChangeType.DELETE, 2), a_change("a", 2, ChangeType.DELETE, 2))
        enqueue(queue, a_segment(*newer, upto=2), now=2.0)
        assert [claimed] == frozen_batches(queue)


class CrashError(Exception):
    """The process ends here."""


def test_the_row_that_ends_the_process_is_found_and_the_others_arrive(path, caplog):
    """One poisonous row must not hold up a table for ever."""
    arrived: list[str] = []

    def push(parcel, journal):
        rows = [row[0] for row in orjson.loads(parcel.text)["rows"]]
        if "c" in rows:
            raise CrashError
        arrived.extend(rows)
        return Pushed({key: Outcome.parse("ok") for key in parcel.keys})

    course = Course(run_id="r", batch_size=10, max_attempts=3, journal=path.with_suffix(".journal"))
    with open_queue(path, shape=Shape.ROW) as queue:
        enqueue(queue, a_segment(*(a_change(key, n) for n, key in enumerate("abcd"))), now=1.0)
    crashes = 0
    while True:
        with open_queue(path, shape=Shape.ROW) as queue, caplog.at_level(logging.WARNING):
            try:
                deliver(queue, push, course, clock=lambda: 1.0, on_settled=lambda batch, settled: None)
                break
            except CrashError:
                crashes += 1
    assert 3 + 3 == crashes  # as a batch, then alone
    assert ["a", "b", "d"] == arrived
    with open_queue(path, shape=Shape.ROW) as queue:
        letters = list(dead_letters(queue.store, Shape.ROW))
    assert ["c"] == [letter.key for letter in letters]
    assert "alone ended the process 3 times" in letters[0].error
    assert "its keys go out one by one" in caplog.text


def test_a_process_that_ends_between_batches_holds_none_of_them_up(path):
    """Publishing records may be what it dies of each time; the batches on their way are not to blame."""
    course = Course(run_id="r", batch_size=1, max_attempts=3, journal=path.with_suffix(".journal"))
    sent: list[str] = []
    worst: list[int] = []
    ends = 0

    def push(parcel, journal):
        sent.append(parcel.units[0].key)
        return Pushed({key: Outcome.parse("ok") for key in parcel.keys})

    def on_settled(batch, _settled):
        worst.append(batch.crashes)
        raise CrashError

    with open_queue(path, shape=Shape.ROW) as queue:
        enqueue(queue, a_segment(*(a_change(key, n) for n, key in enumerate("abcdefgh"))), now=1.0)
    while ends < len(worst) + 1:
        with open_queue(path, shape=Shape.ROW) as queue, contextlib.suppress(CrashError):
            deliver(queue, push, course, clock=lambda: 1.0, on_settled=on_settled)
        ends += 1
    assert ends <= 8 + 1  # each of them got further, by one batch or more, and the last had nothing to do
    with open_queue(path, shape=Shape.ROW) as queue:
        assert ([], []) == (frozen_batches(queue), queue.store.rows("select * from unit"))
    assert set("abcdefgh") == set(sent)
    assert max(worst) <= 1  # each went alone after that, and so came to its end


def test_a_sync_that_may_not_go_on_claims_nothing(path):
    """What is paused isn't frozen: newer changes of its rows take its place."""
    course = Course(run_id="r", batch_size=1, max_attempts=3, journal=path.with_suffix(".journal"))
    seen: list[str] = []

    def push(parcel, journal):
        seen.extend(row[0] for row in orjson.loads(parcel.text)["rows"])
        return Pushed({key: Outcome.parse("ok") for key in parcel.keys})

    with open_queue(path, shape=Shape.ROW) as queue:
        enqueue(queue, a_segment(a_change("a", 1), a_change("b", 2)), now=1.0)
        delivery = deliver(
            queue,
            push,
            course,
            clock=lambda: 1.0,
            on_settled=lambda batch, settled: None,
            may_go_on=lambda: not seen,
        )
        assert [] == frozen_batches(queue)
    assert (1, ["a"]) == (delivery.batches, seen)


def test_an_interrupted_batch_is_not_held_against_its_rows(path):
    """Who stops a run by hand five times hasn't found a poisonous row."""
    stops = 0

    def push(parcel, journal):
        if stops < 5:
            raise KeyboardInterrupt
        return Pushed({key: Outcome.parse("ok") for key in parcel.keys})

    course = Course(run_id="r", batch_size=10, max_attempts=3, journal=path.with_suffix(".journal"))
    with open_queue(path, shape=Shape.ROW) as queue:
        enqueue(queue, a_segment(a_change("a", 1)), now=1.0)
    for stops in range(6):  # noqa: B007 - push looks at it
        with open_queue(path, shape=Shape.ROW) as queue, contextlib.suppress(KeyboardInterrupt):
            deliver(queue, push, course, clock=lambda: 1.0, on_settled=lambda batch, settled: None)
    with open_queue(path, shape=Shape.ROW) as queue:
        assert [] == queue.store.rows("select * from unit")
