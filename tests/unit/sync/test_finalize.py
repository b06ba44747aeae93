"""finalize() is told once, at the end of all, how much came through; until then it is owed."""

import shutil

import pytest

from ondatra_dagster.delivery.finalize_call import load_pending_finalize
from ondatra_dagster.delivery.queue.queue_status import read_status_of_file
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.sync.recovery.queue_recovery import recover_queue
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import ResyncOptions, resync_queue
from ondatra_dagster.sync.sync_checks import Severity, run_sync_checks

HOUR = 3600


class FinalizeCrash(BaseException):
    """The process ends here."""


def undelivered(harness, summary):
    return next(each for each in run_sync_checks(summary, harness.sync.limits) if each.name == "undelivered")


def test_it_is_called_at_the_end_of_a_run_that_sent_something(harness):
    """And not by a run that found nothing to do."""
    harness.contacts.write(a1="Ada", a2="")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["name"] else "reject: no name")
    harness.run()
    assert [(1, 1)] == harness.api.finalize_counts
    harness.run()
    harness.contacts.write(a1="Ann", a3="Cyn")
    harness.run()
    assert [(1, 1), (2, 0)] == harness.api.finalize_counts  # an update is one row


def test_while_rows_wait_it_is_owed_with_all_that_came_since(harness):
    """Told too early, whoever listens reads half of it."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["id"] == 1 else "error: later")
    harness.run()
    harness.contacts.write(a3="Cyn")
    harness.run()
    assert [] == harness.api.finalize_counts
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    harness.now += HOUR
    harness.run()
    assert [(3, 0)] == harness.api.finalize_counts


def test_rows_that_were_given_up_count_as_failed(harness):
    """They never will arrive by themselves, so the end has come."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["id"] == 1 else "error: later")
    for _ in range(3):
        harness.run()
        harness.now += HOUR
    assert [(1, 1)] == harness.api.finalize_counts


def test_one_that_raises_is_owed_to_the_next_run_with_its_numbers(harness):
    """The plan knows of it, and the check says so."""
    harness.contacts.write(a1="Ada")
    harness.api.finalize_fails = True
    summary = harness.run()
    assert ("lib/crm.star:9: no",) == summary.first_errors
    check = undelivered(harness, summary)
    assert (Severity.WARN, "finalize() failed, and the next run calls it again") == (check.severity, check.description)
    state = read_status_of_file(harness.sync.queue_file, now=harness.now)
    assert state.can_send
    harness.api.finalize_fails = False
    assert harness.run().has_run
    assert [(1, 0), (1, 0)] == harness.api.finalize_counts
    assert not read_status_of_file(harness.sync.queue_file, now=harness.now).can_send


def test_rows_that_come_meanwhile_are_added_to_what_is_owed(harness):
    """The sums are of everything since the last time."""
    harness.contacts.write(a1="Ada")
    harness.api.finalize_fails = True
    harness.run()
    harness.api.finalize_fails = False
    harness.contacts.write(a2="Ben")
    harness.run()
    assert (2, 0) == harness.api.finalize_counts[-1]


def test_a_lost_queue_owes_on(harness):
    """By its frontier; the call is another one, as nobody knows what became of the one before."""
    harness.contacts.write(a1="Ada")
    harness.api.finalize_fails = True
    harness.run()
    with harness.sync.open_queue() as queue:
        before = load_pending_finalize(queue)
    shutil.rmtree(harness.state / "queue")
    harness.run()
    with harness.sync.open_queue() as queue:
        assert before.journal_key != load_pending_finalize(queue).journal_key
    harness.api.finalize_fails = False
    harness.contacts.write(a2="Ben")
    harness.run()
    assert [(1, 0), (1, 0), (2, 0)] == harness.api.finalize_counts


def test_a_lost_queue_owes_on_though_its_table_counts_as_delivered(harness):
    """That nothing is sent again is one thing; what the API's side is to be told of, another."""
    harness.contacts.write(a1="Ada")
    harness.api.finalize_fails = True
    harness.run()
    shutil.rmtree(harness.state / "queue")
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions(assumes_delivered=True))
    harness.api.finalize_fails = False
    harness.run()
    assert [(1, 0), (1, 0)] == harness.api.finalize_counts


def test_a_call_of_which_the_journal_is_left_is_gone_on_with(harness):
    """Only the queue's file is gone: what was answered isn't asked again."""
    harness.contacts.write(a1="Ada")
    harness.api.finalize_fails = True
    harness.run()
    with harness.sync.open_queue() as queue:
        before = load_pending_finalize(queue)
    journal = harness.sync.journal_file.with_name(f"{harness.sync.journal_file.name}-finalize")
    ResponseJournal.open(journal, before.journal_key).close()
    harness.sync.queue_file.unlink()
    with harness.sync.open_queue() as queue:
        recover_queue(queue, harness.sync, harness.build_ports(), harness.contacts.source())
        assert before == load_pending_finalize(queue)


def test_a_lost_queue_owes_what_the_records_tell_beside_its_frontier(harness):
    """The run that was killed may not have come to its end; told twice is better than never."""
    harness.batch_size = 1
    harness.contacts.write(a1="Ada", a2="", a3="Cyn")

    def answer(row):
        if row["id"] == 3:
            raise FinalizeCrash
        return RowOutcome.parse_status("ok" if row["name"] else "reject: no name")

    harness.api.choose_outcome = answer
    for _ in range(2):  # the second one publishes what the first had settled
        with pytest.raises(FinalizeCrash):
            harness.run()
    shutil.rmtree(harness.state / "queue")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    harness.run()
    assert [(2, 1)] == harness.api.finalize_counts
    harness.run()
    assert [(2, 1)] == harness.api.finalize_counts


def test_a_file_without_it_owes_nothing(harness):
    """Also when it had one before."""
    harness.contacts.write(a1="Ada")
    harness.api.finalize_fails = True
    harness.run()
    harness.functions = frozenset({"push"})
    harness.run()
    assert not read_status_of_file(harness.sync.queue_file, now=harness.now).can_send
    assert [(1, 0)] == harness.api.finalize_counts
