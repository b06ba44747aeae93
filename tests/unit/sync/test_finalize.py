"""The call of finalize(): it is made once, at the end of all rows, with their counts. Until then it is pending."""

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
    """A crash: the process ends here."""


def undelivered(harness, summary):
    return next(check for check in run_sync_checks(summary, harness.sync.limits) if check.name == "undelivered")


def test_finalize_is_called_at_the_end_of_a_run_that_sent_something(harness):
    """A run that found nothing to do doesn't call it."""
    harness.contacts.write(a1="Ada", a2="")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["name"] else "reject: no name")
    harness.run()
    assert [(1, 1)] == harness.api.finalize_counts
    harness.run()
    harness.contacts.write(a1="Ann", a3="Cyn")
    harness.run()
    assert [(1, 1), (2, 0)] == harness.api.finalize_counts  # an update is one row


def test_while_rows_wait_finalize_waits_too_and_then_counts_all_rows(harness):
    """If the call came too early, its receiver would read only half of the rows."""
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


def test_rows_that_failed_too_often_count_as_failed(harness):
    """They aren't sent again without the user, so this is the end."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["id"] == 1 else "error: later")
    for _ in range(3):
        harness.run()
        harness.now += HOUR
    assert [(1, 1)] == harness.api.finalize_counts


def test_a_failed_finalize_is_repeated_by_the_next_run_with_its_counts(harness):
    """The plan knows of the pending call, and the check reports it."""
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


def test_rows_that_arrive_meanwhile_are_added_to_the_pending_call(harness):
    """The counts are of all rows since the last call that succeeded."""
    harness.contacts.write(a1="Ada")
    harness.api.finalize_fails = True
    harness.run()
    harness.api.finalize_fails = False
    harness.contacts.write(a2="Ben")
    harness.run()
    assert (2, 0) == harness.api.finalize_counts[-1]


def test_a_lost_queue_still_has_its_pending_call(harness):
    """The queue snapshot has it. The call gets a new journal key, because the result of the last call is unknown."""
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


def test_a_lost_queue_keeps_the_pending_call_if_its_rows_are_assumed_delivered(harness):
    """The rows aren't sent again, but finalize() still has to report them."""
    harness.contacts.write(a1="Ada")
    harness.api.finalize_fails = True
    harness.run()
    shutil.rmtree(harness.state / "queue")
    resync_queue(harness.sync, harness.build_ports(), ResyncOptions(assumes_delivered=True))
    harness.api.finalize_fails = False
    harness.run()
    assert [(1, 0), (1, 0)] == harness.api.finalize_counts


def test_a_call_whose_journal_is_left_is_continued(harness):
    """Only the queue's file is gone. Calls that were answered aren't repeated."""
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


def test_a_lost_queue_counts_the_records_after_its_snapshot_as_well(harness):
    """The killed run may not have reached its end. To report the counts twice is better than never."""
    harness.batch_size = 1
    harness.contacts.write(a1="Ada", a2="", a3="Cyn")

    def answer(row):
        if row["id"] == 3:
            raise FinalizeCrash
        return RowOutcome.parse_status("ok" if row["name"] else "reject: no name")

    harness.api.choose_outcome = answer
    for _ in range(2):  # the second run publishes what the first one settled
        with pytest.raises(FinalizeCrash):
            harness.run()
    shutil.rmtree(harness.state / "queue")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    harness.run()
    assert [(2, 1)] == harness.api.finalize_counts
    harness.run()
    assert [(2, 1)] == harness.api.finalize_counts


def test_a_sink_without_finalize_has_no_pending_call(harness):
    """This holds even if the sink had the function before."""
    harness.contacts.write(a1="Ada")
    harness.api.finalize_fails = True
    harness.run()
    harness.functions = frozenset({"push"})
    harness.run()
    assert not read_status_of_file(harness.sync.queue_file, now=harness.now).can_send
    assert [(1, 0)] == harness.api.finalize_counts
