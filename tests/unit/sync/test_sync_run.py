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
    """A bucket has to do what a folder does."""
    return harness_at_each_location


def verdicts(harness, summary):
    return {verdict.name: verdict.severity for verdict in run_sync_checks(summary, harness.sync.limits)}


def test_the_first_run_sends_the_table_and_the_second_nothing(harness):
    """A no-op must be free of calls: users run it on a schedule."""
    harness.contacts.write(a1="Ada", a2="Ben")
    first = harness.run()
    assert [("insert", 1, "Ada"), ("insert", 2, "Ben")] == harness.api.pop_received()
    assert 2 == first.grid.total(GridRow.SUCCEEDED) == first.grid.total(GridRow.PLANNED)
    second = harness.run()
    assert [] == harness.api.pop_received()
    assert not second.has_run
    assert {Severity.PASS} == set(verdicts(harness, first).values())


def test_a_change_goes_out_as_the_pair_of_its_images(harness):
    """Push may want to see what was there before."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.run()
    harness.api.pop_received()
    harness.contacts.write(a2="Bea")
    harness.run()
    assert [("update_preimage", 2, "Ben"), ("update_postimage", 2, "Bea")] == harness.api.pop_received()
    assert ("2", "update_postimage", "succeeded") in harness.record_statuses()
    assert 3 == len(harness.record_statuses())  # the image before has no record of its own


@pytest.mark.parametrize(
    ("before", "after", "recorded"),
    [("reject: no", "ok", "succeeded"), ("ok", "reject: no", "rejected"), ("reject: no", "reject: no", "rejected")],
)
def test_an_update_is_recorded_once_as_its_image_after_ends(harness, before, after, recorded):
    """Two records of one change would be two ends of it; a lost queue would believe the worse one."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.contacts.write(a1="Ann")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status(
        {"update_preimage": before, "update_postimage": after}[row["__ondatra_change_type"]]
    )
    summary = harness.run()
    assert [("1", "insert", "succeeded"), ("1", "update_postimage", recorded)] == harness.record_statuses()
    assert (recorded == "rejected") == summary.grid.total(GridRow.REJECTED) == summary.queue.dead_units


def test_a_bad_row_takes_no_other_with_it(harness):
    """One reject among good rows was a hundred lost rows elsewhere."""
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


def test_a_row_delivered_with_a_warning_is_in_log_and_check(harness, caplog):
    """Nobody looks at the records of what arrived."""
    harness.contacts.write(a1="Ada", a2="Ben", a3="Cyn")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["id"] == 1 else "warn: phone dropped")
    summary = harness.run()
    verdict = next(verdict for verdict in run_sync_checks(summary, harness.sync.limits) if verdict.name == "rejects")
    assert (Severity.WARN, "2 rows delivered with a warning") == (verdict.severity, verdict.description)
    assert (2, 0) == (verdict.counts["warned"], verdict.counts["rejected"])
    assert ({"reason": "phone dropped", "units": 2, "keys": "2, 3"},) == verdict.samples
    (told,) = [record.getMessage() for record in caplog.records if "phone" in record.getMessage()]
    assert "sync=sync.contacts batch=1 rows=2 first=2 delivered with a warning: phone dropped" == told


def test_a_rejected_row_that_changes_arrives_as_an_insert_with_its_new_values(harness):
    """The API never had it, so an update would go nowhere."""
    harness.contacts.write(a1="")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["name"] else "reject: no name")
    harness.run()
    harness.api.pop_received()
    harness.contacts.write(a1="Ada")
    summary = harness.run()
    assert [("insert", 1, "Ada")] == harness.api.pop_received()
    assert 0 == summary.queue.dead_units


def test_all_rows_rejected_is_never_green(harness):
    """A run that delivered nothing mustn't look like one that did."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("reject: no")
    assert Severity.ERROR == verdicts(harness, harness.run())["rejects"]


def test_an_error_is_tried_again_when_it_is_due_and_not_before(harness):
    """A row that fails shouldn't be hammered, nor forgotten."""
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


def test_a_row_is_given_up_after_its_last_attempt_and_says_why(harness):
    """Retries without end hide a row that will never arrive."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["id"] == 1 else "error: later")
    for _ in range(3):
        summary = harness.run()
        harness.now += HOUR
    assert Severity.ERROR == verdicts(harness, summary)["undelivered"]
    assert 1 == summary.dead_units
    assert ("2", "insert", "rejected") in harness.record_statuses()
    assert "later (gave up after 3 attempts)" == summary.reject_reasons[0].message


def test_an_outage_uses_up_no_attempt_and_stops_after_three_batches(harness):
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
    """Three bad batches at the head must not keep the others back for ever."""
    harness.batch_size = 1
    harness.contacts.write(a1="x", a2="x", a3="x", a4="x")
    harness.api.is_api_down = True
    harness.run()
    harness.api.pop_received()
    harness.now += HOUR
    harness.run()
    assert 4 == harness.api.pop_received()[0][1]


def test_a_newer_change_goes_out_instead_of_the_one_that_waits(harness):
    """A retry must not overwrite new data with old."""
    harness.contacts.write(a1="Ada", a2="Ben")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok" if row["id"] == 1 else "error: later")
    harness.run()
    harness.api.pop_received()
    harness.contacts.write(a2="Bea")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    harness.run()
    assert [("insert", 2, "Bea")] == harness.api.pop_received()


def test_a_deleted_queue_folder_loses_nothing_and_resends_nothing(harness):
    """The queue is the one file that a person might delete to 'start clean'."""
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
    """The process ends here."""


def test_a_queue_lost_after_a_kill_goes_on_from_the_records(harness):
    """Frontiers are written at the end of a run; what a killed run recorded counts all the same."""
    harness.batch_size = 1
    harness.contacts.write(a1="Ada", a2="Ben", a3="Cyn")

    def answer(row):
        if row["id"] == 3:
            raise RunCrash
        return RowOutcome.parse_status("ok" if row["id"] == 1 else "reject: no")

    harness.api.choose_outcome = answer
    with pytest.raises(RunCrash):
        harness.run()
    # the next run publishes what the killed one had settled, and is killed in its turn
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
def test_a_takeover_that_is_cut_off_is_begun_again(harness, dies):
    """What the records say is in memory until all changes are taken in."""
    harness.batch_size = 1
    harness.contacts.write(a1="Ada", a2="Ben", a3="Cyn")

    def answer(row):
        if row["id"] == 3:
            raise RunCrash
        return RowOutcome.parse_status("ok" if row["id"] == 1 else "reject: no")

    harness.api.choose_outcome = answer
    for _ in range(2):  # the second one publishes what the first had settled
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


def test_a_lost_queue_is_taken_over_once(harness):
    """Else each run that does nothing undoes a replay, and dead letters die anew."""
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


def test_what_the_records_refuse_is_dead_also_when_nothing_is_new(harness):
    """A row that waits in the frontier may have been refused since."""
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
    """To send everything again would double it; only the user can say what the API holds."""
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
        (lambda harness: setattr(harness.contacts, "table_id", "another"), "was made anew"),
        (lambda harness: setattr(harness.contacts, "version", 0), "it was put back"),
        (lambda harness: setattr(harness, "base_url", "https://other.example.com"), "now sends to"),
    ],
)
def test_what_can_not_be_compared_is_not_sent(harness, change, why):
    """Another table, an older one, another API: base and target would be strangers."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.api.pop_received()
    change(harness)
    with pytest.raises(ResyncNeededError, match=why):
        harness.run()
    assert [] == harness.api.pop_received()


def test_two_runs_at_once_send_each_row_once(harness):
    """A click in the UI beside a run in a shell is no accident."""
    harness.contacts.write(a1="Ada")
    with harness.sync.open_queue():
        summary = harness.run()
    assert not summary.has_run
    assert "is held by process" in summary.message
    assert [] == harness.api.pop_received()


def test_invalid_rows_are_recorded_once_and_counted(harness, tracking_location):
    """Rows that were set aside belong to the picture, but only when they newly appear."""
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


def test_the_check_warns_while_rows_are_set_aside_new_or_not(harness):
    """It is the model's check by the same name: one passing beside the other's warning would be a riddle."""
    harness.contacts.write(a1="Ada")
    harness.contacts.add_invalid_row("NULL")
    harness.run()
    harness.contacts.write(a1="Ada L.")
    summary = harness.run()
    assert 0 == summary.grid.total(GridRow.INVALID)
    (check,) = [each for each in run_sync_checks(summary, harness.sync.limits) if each.name == "invalid_records"]
    assert (Severity.WARN, "1 row is invalid: a null or repeated key (0 of them newly)") == (
        check.severity,
        check.description,
    )
    assert ({"key": "", "reason": "NULL"},) == check.samples


def test_the_history_tells_each_run_and_why_it_was_what_it_was(harness):
    """`ondatra history` is where an operator looks first."""
    harness.contacts.write(a1="Ada")
    harness.run()
    harness.contacts.write(a1="Ann")
    harness.run()
    runs = harness.history.list_runs("sync.contacts")
    assert ["incremental", "full"] == [run.mode.value for run in runs]
    assert ["succeeded", "succeeded"] == [run.result.value for run in runs]
    assert "version 2 is new" == runs[0].reason
