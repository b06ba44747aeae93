"""finalize() is told once, at the end of all, how much came through; until then it is owed."""

import shutil

import pytest

from ondatra_dagster.delivery.finalizing import owed
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.queue.states import queue_state
from ondatra_dagster.sync.cross_check import cross_check
from ondatra_dagster.sync.resync import Way, resync
from ondatra_dagster.sync.verdicts import Severity, judge

HOUR = 3600


class Killed(BaseException):
    """The process ends here."""


def undelivered(desk, summary):
    return next(each for each in judge(summary, desk.sync.limits) if each.check == "undelivered")


def test_it_is_called_at_the_end_of_a_run_that_sent_something(desk):
    """And not by a run that found nothing to do."""
    desk.contacts.write(a1="Ada", a2="")
    desk.api.answer = lambda row: Outcome.parse("ok" if row["name"] else "reject: no name")
    desk.run()
    assert [(1, 1)] == desk.api.ends
    desk.run()
    desk.contacts.write(a1="Ann", a3="Cyn")
    desk.run()
    assert [(1, 1), (2, 0)] == desk.api.ends  # an update is one row


def test_while_rows_wait_it_is_owed_with_all_that_came_since(desk):
    """Told too early, whoever listens reads half of it."""
    desk.contacts.write(a1="Ada", a2="Ben")
    desk.api.answer = lambda row: Outcome.parse("ok" if row["id"] == 1 else "error: later")
    desk.run()
    desk.contacts.write(a3="Cyn")
    desk.run()
    assert [] == desk.api.ends
    desk.api.answer = lambda row: Outcome.parse("ok")
    desk.now += HOUR
    desk.run()
    assert [(3, 0)] == desk.api.ends


def test_rows_that_were_given_up_count_as_failed(desk):
    """They never will arrive by themselves, so the end has come."""
    desk.contacts.write(a1="Ada", a2="Ben")
    desk.api.answer = lambda row: Outcome.parse("ok" if row["id"] == 1 else "error: later")
    for _ in range(3):
        desk.run()
        desk.now += HOUR
    assert [(1, 1)] == desk.api.ends


def test_one_that_raises_is_owed_to_the_next_run_with_its_numbers(desk):
    """The plan knows of it, and the check says so."""
    desk.contacts.write(a1="Ada")
    desk.api.end_fails = True
    summary = desk.run()
    assert ("lib/crm.star:9: no",) == summary.errors
    check = undelivered(desk, summary)
    assert (Severity.WARN, "finalize() failed, and is owed to the next run") == (
        check.severity,
        check.description,
    )
    state = queue_state(desk.sync.queue, now=desk.now)
    assert state.can_send
    desk.api.end_fails = False
    assert desk.run().has_done_something
    assert [(1, 0), (1, 0)] == desk.api.ends
    assert not queue_state(desk.sync.queue, now=desk.now).can_send


def test_rows_that_come_meanwhile_are_added_to_what_is_owed(desk):
    """The sums are of everything since the last time."""
    desk.contacts.write(a1="Ada")
    desk.api.end_fails = True
    desk.run()
    desk.api.end_fails = False
    desk.contacts.write(a2="Ben")
    desk.run()
    assert (2, 0) == desk.api.ends[-1]


def test_a_lost_queue_owes_on(desk):
    """By its frontier; the call is another one, as nobody knows what became of the one before."""
    desk.contacts.write(a1="Ada")
    desk.api.end_fails = True
    desk.run()
    with desk.sync.open_queue() as queue:
        before = owed(queue)
    shutil.rmtree(desk.state / "queue")
    desk.run()
    with desk.sync.open_queue() as queue:
        assert before.seed != owed(queue).seed
    desk.api.end_fails = False
    desk.contacts.write(a2="Ben")
    desk.run()
    assert [(1, 0), (1, 0), (2, 0)] == desk.api.ends


def test_a_lost_queue_owes_on_though_its_table_counts_as_delivered(desk):
    """That nothing is sent again is one thing; what the API's side is to be told of, another."""
    desk.contacts.write(a1="Ada")
    desk.api.end_fails = True
    desk.run()
    shutil.rmtree(desk.state / "queue")
    resync(desk.sync, desk.ports(), Way(assume_delivered=True))
    desk.api.end_fails = False
    desk.run()
    assert [(1, 0), (1, 0)] == desk.api.ends


def test_a_call_of_which_the_journal_is_left_is_gone_on_with(desk):
    """Only the queue's file is gone: what was answered isn't asked again."""
    desk.contacts.write(a1="Ada")
    desk.api.end_fails = True
    desk.run()
    with desk.sync.open_queue() as queue:
        before = owed(queue)
    journal = desk.sync.journal.with_name(f"{desk.sync.journal.name}-finalize")
    Journal.open(journal, before.seed).close()
    desk.sync.queue.unlink()
    with desk.sync.open_queue() as queue:
        cross_check(queue, desk.sync, desk.ports(), desk.contacts.source())
        assert before == owed(queue)


def test_a_lost_queue_owes_what_the_records_tell_beside_its_frontier(desk):
    """The run that was killed may not have come to its end; told twice is better than never."""
    desk.batch_size = 1
    desk.contacts.write(a1="Ada", a2="", a3="Cyn")

    def answer(row):
        if row["id"] == 3:
            raise Killed
        return Outcome.parse("ok" if row["name"] else "reject: no name")

    desk.api.answer = answer
    for _ in range(2):  # the second one publishes what the first had settled
        with pytest.raises(Killed):
            desk.run()
    shutil.rmtree(desk.state / "queue")
    desk.api.answer = lambda row: Outcome.parse("ok")
    desk.run()
    assert [(2, 1)] == desk.api.ends
    desk.run()
    assert [(2, 1)] == desk.api.ends


def test_a_file_without_it_owes_nothing(desk):
    """Also when it had one before."""
    desk.contacts.write(a1="Ada")
    desk.api.end_fails = True
    desk.run()
    desk.functions = frozenset({"push"})
    desk.run()
    assert not queue_state(desk.sync.queue, now=desk.now).can_send
    assert [(1, 0)] == desk.api.ends
