"""A sync run as its user sees it: what the API gets, what is recorded, what is left for the next run."""

import shutil

import pytest

from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import replay_dead_letters
from ondatra_dagster.delivery.queue.queue_status import read_status_of_file
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.errors import ResyncNeededError, WarehouseError
from ondatra_dagster.sync.dead_letter_listing import list_dead_letters
from ondatra_dagster.sync.run_summary import GridRow
from ondatra_dagster.sync.sync_checks import Severity, run_sync_checks

HOUR = 3600


@pytest.fixture
def harness(harness_at_each_location):
    """Return a sync at each location: a bucket must do what a folder does."""
    return harness_at_each_location


def verdicts(harness, summary):
    return {verdict.name: verdict.severity for verdict in run_sync_checks(summary, harness.sync.limits)}


def test_the_first_run_sends_the_table_and_the_second_nothing(harness):
    """A run with nothing to do must make no calls, because users run it on a schedule."""
    harness.contacts.write(a1="Ada", a2="Ben")
    first = harness.run()
    assert [("insert", 1, "Ada"), ("insert", 2, "Ben")] == harness.api.pop_received()
    assert 2 == first.grid.total(GridRow.SUCCEEDED) == first.grid.total(GridRow.PLANNED)
    second = harness.run()
    assert [] == harness.api.pop_received()
    assert not second.has_run
    assert {Severity.PASS} == set(verdicts(harness, first).values())


def test_a_change_is_sent_with_the_image_before_and_the_image_after(harness):
    """push() may need the old values."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.run()
    harness.api.pop_received()
    harness.contacts.write(a2="Bea")
    harness.run()
    assert [("update_preimage", 2, "Ben"), ("update_postimage", 2, "Bea")] == harness.api.pop_received()
    assert ("2", "update_postimage", "succeeded") in harness.record_statuses()
    assert 3 == len(harness.record_statuses())  # the image before has no record


@pytest.mark.parametrize(
    ("before", "after", "recorded"),
    [("reject: no", "ok", "succeeded"), ("ok", "reject: no", "rejected"), ("reject: no", "reject: no", "rejected")],
)
def test_an_update_is_recorded_once_with_the_outcome_of_its_image_after(harness, before, after, recorded):
    """Two records of one change would be two outcomes, and a lost queue would use the worse one."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.contacts.write(a1="Ann")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status(
        {"update_preimage": before, "update_postimage": after}[row["__ondatra_change_type"]]
    )
    summary = harness.run()
    assert [("1", "insert", "succeeded"), ("1", "update_postimage", recorded)] == harness.record_statuses()
    assert (recorded == "rejected") == summary.grid.total(GridRow.REJECTED) == summary.queue.dead_units


def test_a_bad_row_does_not_affect_the_other_rows(harness):
    """In other tools, one rejected row among good ones was a hundred lost rows."""
    harness.contacts.write(a1="Ada", a2="", a3="Cyn")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["name"] else "reject: no name")
    summary = harness.run()
    assert [
        ("1", "insert", "succeeded"),
        ("2", "insert", "rejected"),
        ("3", "insert", "succeeded"),
    ] == harness.record_statuses()
    assert "no name" == summary.reject_reasons[0].message
    assert Severity.WARN == verdicts(harness, summary)["rejects"]
    assert 1 == summary.queue.dead_units


def test_a_row_delivered_with_a_warning_is_in_the_log_and_the_check(harness, caplog):
    """Users don't look at the records of rows that arrived."""
    harness.contacts.write(a1="Ada", a2="Ben", a3="Cyn")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["id"] == 1 else "warn: phone dropped")
    summary = harness.run()
    verdict = next(verdict for verdict in run_sync_checks(summary, harness.sync.limits) if verdict.name == "rejects")
    assert (Severity.WARN, "2 rows delivered with a warning") == (verdict.severity, verdict.description)
    assert (2, 0) == (verdict.counts["warned"], verdict.counts["rejected"])
    assert ({"reason": "phone dropped", "units": 2, "keys": "2, 3"},) == verdict.samples
    (message,) = [record.getMessage() for record in caplog.records if "phone" in record.getMessage()]
    assert "sync=sync.contacts batch=1 rows=2 first=2 delivered with a warning: phone dropped" == message


def test_a_rejected_row_that_changes_is_sent_as_an_insert_of_its_new_values(harness):
    """The API never had the row, so there is nothing to update."""
    harness.contacts.write(a1="")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["name"] else "reject: no name")
    harness.run()
    harness.api.pop_received()
    harness.contacts.write(a1="Ada")
    summary = harness.run()
    assert [("insert", 1, "Ada")] == harness.api.pop_received()
    assert 0 == summary.queue.dead_units


def test_a_run_whose_rows_were_all_rejected_is_an_error(harness):
    """A run that delivered nothing must not look like one that did."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("reject: no")
    assert Severity.ERROR == verdicts(harness, harness.run())["rejects"]


def test_an_error_is_retried_when_it_is_due_and_not_before(harness):
    """A row that fails must not be sent all the time, and must not be forgotten."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["id"] == 1 else "error: later")
    summary = harness.run()
    assert Severity.WARN == verdicts(harness, summary)["undelivered"]
    harness.api.pop_received()
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    harness.run()
    assert [] == harness.api.pop_received()
    harness.now += HOUR
    harness.run()
    assert [("insert", 2, "Ben")] == harness.api.pop_received()


def test_a_row_is_rejected_after_its_last_attempt_and_says_why(harness):
    """Endless retries would hide a row that will never arrive."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["id"] == 1 else "error: later")
    for _ in range(3):
        summary = harness.run()
        harness.now += HOUR
    assert Severity.ERROR == verdicts(harness, summary)["undelivered"]
    assert 1 == summary.dead_units
    assert ("2", "insert", "rejected") in harness.record_statuses()
    assert "later (gave up after 3 attempts)" == summary.reject_reasons[0].message


def test_an_outage_uses_no_attempt_and_stops_a_run_after_three_batches(harness):
    """An API that is down for a day must not turn a table into dead letters."""
    harness.batch_size = 1
    harness.contacts.write(**{f"a{n}": "x" for n in range(1, 8)})
    harness.api.is_api_down = True
    for _ in range(5):
        summary = harness.run()
        assert 3 == len(harness.api.pop_received())
        assert summary.is_outage
        assert Severity.ERROR == verdicts(harness, summary)["undelivered"]
        harness.now += HOUR
    harness.api.is_api_down = False
    summary = harness.run()
    assert list(range(1, 8)) == sorted(number for _, number, _ in harness.api.pop_received())
    assert 0 == summary.queue.depth + summary.queue.dead_units


def test_the_run_after_an_outage_begins_with_rows_that_were_not_in_it(harness):
    """Three bad batches at the start must not block the other rows forever."""
    harness.batch_size = 1
    harness.contacts.write(a1="x", a2="x", a3="x", a4="x")
    harness.api.is_api_down = True
    harness.run()
    harness.api.pop_received()
    harness.now += HOUR
    harness.run()
    assert 4 == harness.api.pop_received()[0][1]


def test_a_newer_change_is_sent_instead_of_the_one_that_waits(harness):
    """A retry must not overwrite new data with old."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["id"] == 1 else "error: later")
    harness.run()
    harness.api.pop_received()
    harness.contacts.write(a2="Bea")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    harness.run()
    assert [("insert", 2, "Bea")] == harness.api.pop_received()


def test_without_its_queue_folder_a_sync_loses_nothing_and_resends_nothing(harness):
    """The queue is the one file that a user might delete to 'start clean'."""
    harness.contacts.write(a1="Ada", a2="Ben", a3="Cyn")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("reject: no" if row["id"] == 3 else "ok")
    harness.run()
    harness.contacts.write(a2="Bea", a4="Dee")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("error: later")
    harness.run()
    harness.api.pop_received()
    shutil.rmtree(harness.state / "queue")
    harness.contacts.write(a5="Eve")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    harness.now += HOUR
    summary = harness.run()
    assert [
        ("insert", 4, "Dee"),
        ("insert", 5, "Eve"),
        ("update_postimage", 2, "Bea"),
        ("update_preimage", 2, "Ben"),
    ] == sorted(harness.api.pop_received())
    assert 1 == summary.queue.dead_units


class RunCrash(BaseException):
    """A crash: the process ends here."""


def test_a_queue_lost_after_a_kill_continues_from_the_records(harness):
    """Snapshots are written at the end of a run, but the records of a killed run count as well."""
    harness.batch_size = 1
    harness.contacts.write(a1="Ada", a2="Ben", a3="Cyn")

    def answer(row):
        if row["id"] == 3:
            raise RunCrash
        return RowOutcome.parse_status("ok" if row["id"] == 1 else "reject: no")

    harness.api.choose_outcome = answer
    with pytest.raises(RunCrash):
        harness.run()
    # the next run publishes what the killed one had settled, and is killed too
    with pytest.raises(RunCrash):
        harness.run()
    harness.api.pop_received()
    shutil.rmtree(harness.state / "queue")
    harness.contacts.write(a1="Ann")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    summary = harness.run()
    assert [("insert", 3, "Cyn"), ("update_postimage", 1, "Ann"), ("update_preimage", 1, "Ada")] == sorted(
        harness.api.pop_received()
    )
    assert 1 == summary.queue.dead_units


@pytest.mark.parametrize("dies", [RunCrash(), WarehouseError("no Spark")])
def test_a_recovery_that_is_interrupted_begins_again(harness, dies):
    """The content of the records is only in memory until all changes are in the queue."""
    harness.batch_size = 1
    harness.contacts.write(a1="Ada", a2="Ben", a3="Cyn")

    def answer(row):
        if row["id"] == 3:
            raise RunCrash
        return RowOutcome.parse_status("ok" if row["id"] == 1 else "reject: no")

    harness.api.choose_outcome = answer
    for _ in range(2):  # the second run publishes what the first one settled
        with pytest.raises(RunCrash):
            harness.run()
    harness.api.pop_received()
    shutil.rmtree(harness.state / "queue")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    harness.contacts.read_error = dies
    for _ in range(2):
        with pytest.raises(type(dies)):
            harness.run()
    harness.contacts.read_error = None
    summary = harness.run()
    assert [("insert", 3, "Cyn")] == harness.api.pop_received()
    assert (1, 0) == (summary.queue.dead_units, summary.queue.depth)
    assert not read_status_of_file(harness.sync.queue_file, now=harness.now).has_open_run
    assert not harness.run().has_run


def test_a_lost_queue_is_recovered_once(harness):
    """Otherwise each run that does nothing would undo a replay, and dead letters would die again."""
    harness.contacts.write(a1="Ada")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("reject: no")
    harness.run()
    shutil.rmtree(harness.state / "queue")
    harness.run()
    (before,) = list_dead_letters(harness.sync)
    assert not harness.run().has_run
    assert [before] == list(list_dead_letters(harness.sync))
    with harness.sync.open_queue() as queue:
        replay_dead_letters(queue, now=harness.now)
    harness.api.pop_received()
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    harness.run()
    assert [("insert", 1, "Ada")] == harness.api.pop_received()


def test_rows_recorded_as_rejected_are_dead_letters_even_if_nothing_is_new(harness):
    """A row that waits in the queue snapshot may have been rejected since."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("error: later")
    harness.run()

    def answer(row):
        if row["id"] == 2:
            raise RunCrash
        return RowOutcome.parse_status("reject: no")

    harness.now += HOUR
    harness.batch_size = 1
    harness.api.choose_outcome = answer
    for _ in range(2):
        with pytest.raises(RunCrash):
            harness.run()
    shutil.rmtree(harness.state / "queue")
    harness.now -= HOUR  # nothing is due
    summary = harness.run()
    assert (False, 1, 1) == (summary.has_run, summary.queue.dead_units, summary.queue.waiting_units)


def test_without_queue_and_records_nothing_is_sent(harness, tracking_location):
    """If everything were sent again, the API would have it twice. Only the user can say what the API has."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.api.pop_received()
    shutil.rmtree(harness.state / "queue")
    tracking_location.delete_files()
    with pytest.raises(ResyncNeededError, match="both its queue and its queue snapshot in the tracking store are lost"):
        harness.run()
    assert [] == harness.api.pop_received()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda harness: setattr(harness.contacts, "table_id", "another"), "was created again"),
        (lambda harness: setattr(harness.contacts, "version", 0), "it was restored from a backup"),
        (lambda harness: setattr(harness, "base_url", "https://other.example.com"), "now sends to"),
    ],
)
def test_nothing_is_sent_if_table_or_api_cannot_be_compared(harness, change, why):
    """With another table, an older one, or another API, base and target would have nothing in common."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.api.pop_received()
    change(harness)
    with pytest.raises(ResyncNeededError, match=why):
        harness.run()
    assert [] == harness.api.pop_received()


def test_two_runs_at_once_send_each_row_once(harness):
    """It is normal that a user clicks in the UI during a run in a shell."""
    harness.contacts.write(a1="Ada")
    with harness.sync.open_queue():
        summary = harness.run()
    assert not summary.has_run
    assert "is held by process" in summary.message
    assert [] == harness.api.pop_received()


def test_invalid_rows_are_recorded_once_and_counted(harness, tracking_location):
    """Invalid rows belong to the counts, but only when they are new."""
    harness.contacts.write(a1="Ada")
    harness.contacts.add_invalid_row("NULL")
    summary = harness.run()
    assert 1 == summary.grid.total(GridRow.INVALID)
    assert Severity.WARN == verdicts(harness, summary)["invalid_records"]
    harness.contacts.add_invalid_row("DUPLICATE")
    assert 1 == harness.run().grid.total(GridRow.INVALID)
    assert not harness.run().has_run
    files = [name.rpartition("/")[2] for name in tracking_location.list_files() if "records_invalid" in name]
    assert ["records_invalid.0.parquet", "records_invalid.0.parquet"] == files


def test_the_check_warns_while_there_are_invalid_rows_new_or_not(harness):
    """The model's check has the same name. If one passed while the other warned, the user would be confused."""
    harness.contacts.write(a1="Ada")
    harness.contacts.add_invalid_row("NULL")
    harness.run()
    harness.contacts.write(a1="Ada L.")
    summary = harness.run()
    assert 0 == summary.grid.total(GridRow.INVALID)
    (check,) = [result for result in run_sync_checks(summary, harness.sync.limits) if result.name == "invalid_records"]
    assert (Severity.WARN, "1 row is invalid: a null or repeated key (0 of them newly)") == (
        check.severity,
        check.description,
    )
    assert ({"key": "", "reason": "NULL"},) == check.samples


def test_the_history_shows_each_run_and_its_reason(harness):
    """Operators look first at `ondatra history`."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.contacts.write(a1="Ann")
    harness.run()
    runs = harness.history.list_runs("sync.contacts")
    assert ["incremental", "full"] == [run.mode.value for run in runs]
    assert ["succeeded", "succeeded"] == [run.result.value for run in runs]
    assert "version 2 is new" == runs[0].reason
