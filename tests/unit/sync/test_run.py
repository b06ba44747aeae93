"""A sync run as its user sees it: what the API gets, what is recorded, what is left for the next run."""

import shutil

import pytest

from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.queue.letters import replay
from ondatra_dagster.delivery.queue.states import queue_state
from ondatra_dagster.errors import ResyncNeededError, WarehouseError
from ondatra_dagster.sync.dead_letters import dead_letters
from ondatra_dagster.sync.summary import Cell
from ondatra_dagster.sync.verdicts import Severity, judge

HOUR = 3600


@pytest.fixture
def desk(desk_anywhere):
    """A bucket has to do what a folder does."""
    return desk_anywhere


def verdicts(desk, summary):
    return {verdict.check: verdict.severity for verdict in judge(summary, desk.sync.limits)}


def test_the_first_run_sends_the_table_and_the_second_nothing(desk):
    """A no-op must be free of calls: users run it on a schedule."""
    desk.contacts.write(a1="Ada", a2="Ben")
    first = desk.run()
    assert [("insert", 1, "Ada"), ("insert", 2, "Ben")] == desk.api.take()
    assert 2 == first.grid.count(Cell.SUCCEEDED) == first.grid.count(Cell.PLANNED)
    second = desk.run()
    assert [] == desk.api.take()
    assert not second.has_done_something
    assert {Severity.PASS} == set(verdicts(desk, first).values())


def test_a_change_goes_out_as_the_pair_of_its_images(desk):
    """Push may want to see what was there before."""
    desk.contacts.write(a1="Ada", a2="Ben")
    desk.run()
    desk.api.take()
    desk.contacts.write(a2="Bea")
    desk.run()
    assert [("update_preimage", 2, "Ben"), ("update_postimage", 2, "Bea")] == desk.api.take()
    assert ("2", "update_postimage", "succeeded") in desk.statuses()
    assert 3 == len(desk.statuses())  # the image before has no record of its own


@pytest.mark.parametrize(
    ("before", "after", "recorded"),
    [
        ("reject: no", "ok", "succeeded"),
        ("ok", "reject: no", "rejected"),
        ("reject: no", "reject: no", "rejected"),
    ],
)
def test_an_update_is_recorded_once_as_its_image_after_ends(desk, before, after, recorded):
    """Two records of one change would be two ends of it; a lost queue would believe the worse one."""
    desk.contacts.write(a1="Ada")
    desk.run()
    desk.contacts.write(a1="Ann")
    desk.api.answer = lambda row: Outcome.parse(
        {"update_preimage": before, "update_postimage": after}[row["__ondatra_change_type"]]
    )
    summary = desk.run()
    assert [("1", "insert", "succeeded"), ("1", "update_postimage", recorded)] == desk.statuses()
    assert (recorded == "rejected") == summary.grid.count(Cell.REJECTED) == summary.queue.dead


def test_a_bad_row_takes_no_other_with_it(desk):
    """One reject among good rows was a hundred lost rows elsewhere."""
    desk.contacts.write(a1="Ada", a2="", a3="Cyn")
    desk.api.answer = lambda row: Outcome.parse("ok" if row["name"] else "reject: no name")
    summary = desk.run()
    assert [
        ("1", "insert", "succeeded"),
        ("2", "insert", "rejected"),
        ("3", "insert", "succeeded"),
    ] == desk.statuses()
    assert "no name" == summary.rejects[0].message
    assert Severity.WARN == verdicts(desk, summary)["rejects"]
    assert 1 == summary.queue.dead


def test_a_row_delivered_with_a_warning_is_in_log_and_check(desk, caplog):
    """Nobody looks at the records of what arrived."""
    desk.contacts.write(a1="Ada", a2="Ben", a3="Cyn")
    desk.api.answer = lambda row: Outcome.parse("ok" if row["id"] == 1 else "warn: phone dropped")
    summary = desk.run()
    verdict = next(verdict for verdict in judge(summary, desk.sync.limits) if verdict.check == "rejects")
    assert (Severity.WARN, "2 rows delivered with a warning") == (verdict.severity, verdict.description)
    assert (2, 0) == (verdict.counts["warned"], verdict.counts["rejected"])
    assert ({"reason": "phone dropped", "units": 2, "keys": "2, 3"},) == verdict.samples
    (told,) = [record.getMessage() for record in caplog.records if "phone" in record.getMessage()]
    assert "sync=sync.contacts batch=1 rows=2 first=2 delivered with a warning: phone dropped" == told


def test_a_rejected_row_that_changes_arrives_as_an_insert_with_its_new_values(desk):
    """The API never had it, so an update would go nowhere."""
    desk.contacts.write(a1="")
    desk.api.answer = lambda row: Outcome.parse("ok" if row["name"] else "reject: no name")
    desk.run()
    desk.api.take()
    desk.contacts.write(a1="Ada")
    summary = desk.run()
    assert [("insert", 1, "Ada")] == desk.api.take()
    assert 0 == summary.queue.dead


def test_all_rows_rejected_is_never_green(desk):
    """A run that delivered nothing mustn't look like one that did."""
    desk.contacts.write(a1="Ada", a2="Ben")
    desk.api.answer = lambda row: Outcome.parse("reject: no")
    assert Severity.ERROR == verdicts(desk, desk.run())["rejects"]


def test_an_error_is_tried_again_when_it_is_due_and_not_before(desk):
    """A row that fails shouldn't be hammered, nor forgotten."""
    desk.contacts.write(a1="Ada", a2="Ben")
    desk.api.answer = lambda row: Outcome.parse("ok" if row["id"] == 1 else "error: later")
    summary = desk.run()
    assert Severity.WARN == verdicts(desk, summary)["undelivered"]
    desk.api.take()
    desk.api.answer = lambda row: Outcome.parse("ok")
    desk.run()
    assert [] == desk.api.take()
    desk.now += HOUR
    desk.run()
    assert [("insert", 2, "Ben")] == desk.api.take()


def test_a_row_is_given_up_after_its_last_attempt_and_says_why(desk):
    """Retries without end hide a row that will never arrive."""
    desk.contacts.write(a1="Ada", a2="Ben")
    desk.api.answer = lambda row: Outcome.parse("ok" if row["id"] == 1 else "error: later")
    for _ in range(3):
        summary = desk.run()
        desk.now += HOUR
    assert Severity.ERROR == verdicts(desk, summary)["undelivered"]
    assert 1 == summary.died
    assert ("2", "insert", "rejected") in desk.statuses()
    assert "later (gave up after 3 attempts)" == summary.rejects[0].message


def test_an_outage_uses_up_no_attempt_and_stops_after_three_batches(desk):
    """An API that is down for a day must not turn a table into dead letters."""
    desk.batch_size = 1
    desk.contacts.write(**{f"a{n}": "x" for n in range(1, 8)})
    desk.api.is_down = True
    for _ in range(5):
        summary = desk.run()
        assert 3 == len(desk.api.take())
        assert summary.is_outage
        assert Severity.ERROR == verdicts(desk, summary)["undelivered"]
        desk.now += HOUR
    desk.api.is_down = False
    summary = desk.run()
    assert list(range(1, 8)) == sorted(number for _, number, _ in desk.api.take())
    assert 0 == summary.queue.depth + summary.queue.dead


def test_the_run_after_an_outage_begins_with_rows_that_were_not_in_it(desk):
    """Three bad batches at the head must not keep the others back for ever."""
    desk.batch_size = 1
    desk.contacts.write(a1="x", a2="x", a3="x", a4="x")
    desk.api.is_down = True
    desk.run()
    desk.api.take()
    desk.now += HOUR
    desk.run()
    assert 4 == desk.api.take()[0][1]


def test_a_newer_change_goes_out_instead_of_the_one_that_waits(desk):
    """A retry must not overwrite new data with old."""
    desk.contacts.write(a1="Ada", a2="Ben")
    desk.api.answer = lambda row: Outcome.parse("ok" if row["id"] == 1 else "error: later")
    desk.run()
    desk.api.take()
    desk.contacts.write(a2="Bea")
    desk.api.answer = lambda row: Outcome.parse("ok")
    desk.run()
    assert [("insert", 2, "Bea")] == desk.api.take()


def test_a_deleted_queue_folder_loses_nothing_and_resends_nothing(desk):
    """The queue is the one file that a person might delete to 'start clean'."""
    desk.contacts.write(a1="Ada", a2="Ben", a3="Cyn")
    desk.api.answer = lambda row: Outcome.parse("reject: no" if row["id"] == 3 else "ok")
    desk.run()
    desk.contacts.write(a2="Bea", a4="Dee")
    desk.api.answer = lambda row: Outcome.parse("error: later")
    desk.run()
    desk.api.take()
    shutil.rmtree(desk.state / "queue")
    desk.contacts.write(a5="Eve")
    desk.api.answer = lambda row: Outcome.parse("ok")
    desk.now += HOUR
    summary = desk.run()
    assert [
        ("insert", 4, "Dee"),
        ("insert", 5, "Eve"),
        ("update_postimage", 2, "Bea"),
        ("update_preimage", 2, "Ben"),
    ] == sorted(desk.api.take())
    assert 1 == summary.queue.dead


class Killed(BaseException):
    """The process ends here."""


def test_a_queue_lost_after_a_kill_goes_on_from_the_records(desk):
    """Frontiers are written at the end of a run; what a killed run recorded counts all the same."""
    desk.batch_size = 1
    desk.contacts.write(a1="Ada", a2="Ben", a3="Cyn")

    def answer(row):
        if row["id"] == 3:
            raise Killed
        return Outcome.parse("ok" if row["id"] == 1 else "reject: no")

    desk.api.answer = answer
    with pytest.raises(Killed):
        desk.run()
    # the next run publishes what the killed one had settled, and is killed in its turn
    with pytest.raises(Killed):
        desk.run()
    desk.api.take()
    shutil.rmtree(desk.state / "queue")
    desk.contacts.write(a1="Ann")
    desk.api.answer = lambda row: Outcome.parse("ok")
    summary = desk.run()
    assert [
        ("insert", 3, "Cyn"),
        ("update_postimage", 1, "Ann"),
        ("update_preimage", 1, "Ada"),
    ] == sorted(desk.api.take())
    assert 1 == summary.queue.dead


@pytest.mark.parametrize("dies", [Killed(), WarehouseError("no Spark")])
def test_a_takeover_that_is_cut_off_is_begun_again(desk, dies):
    """What the records say is in memory until all changes are taken in."""
    desk.batch_size = 1
    desk.contacts.write(a1="Ada", a2="Ben", a3="Cyn")

    def answer(row):
        if row["id"] == 3:
            raise Killed
        return Outcome.parse("ok" if row["id"] == 1 else "reject: no")

    desk.api.answer = answer
    for _ in range(2):  # the second one publishes what the first had settled
        with pytest.raises(Killed):
            desk.run()
    desk.api.take()
    shutil.rmtree(desk.state / "queue")
    desk.api.answer = lambda row: Outcome.parse("ok")
    desk.contacts.dies = dies
    for _ in range(2):
        with pytest.raises(type(dies)):
            desk.run()
    desk.contacts.dies = None
    summary = desk.run()
    assert [("insert", 3, "Cyn")] == desk.api.take()
    assert (1, 0) == (summary.queue.dead, summary.queue.depth)
    assert not queue_state(desk.sync.queue, now=desk.now).has_open_run
    assert not desk.run().has_done_something


def test_a_lost_queue_is_taken_over_once(desk):
    """Else each run that does nothing undoes a replay, and dead letters die anew."""
    desk.contacts.write(a1="Ada")
    desk.api.answer = lambda row: Outcome.parse("reject: no")
    desk.run()
    shutil.rmtree(desk.state / "queue")
    desk.run()
    (before,) = dead_letters(desk.sync)
    assert not desk.run().has_done_something
    assert [before] == list(dead_letters(desk.sync))
    with desk.sync.open_queue() as queue:
        replay(queue, now=desk.now)
    desk.api.take()
    desk.api.answer = lambda row: Outcome.parse("ok")
    desk.run()
    assert [("insert", 1, "Ada")] == desk.api.take()


def test_what_the_records_refuse_is_dead_also_when_nothing_is_new(desk):
    """A row that waits in the frontier may have been refused since."""
    desk.contacts.write(a1="Ada", a2="Ben")
    desk.api.answer = lambda row: Outcome.parse("error: later")
    desk.run()

    def answer(row):
        if row["id"] == 2:
            raise Killed
        return Outcome.parse("reject: no")

    desk.now += HOUR
    desk.batch_size = 1
    desk.api.answer = answer
    for _ in range(2):
        with pytest.raises(Killed):
            desk.run()
    shutil.rmtree(desk.state / "queue")
    desk.now -= HOUR  # nothing is due
    summary = desk.run()
    assert (False, 1, 1) == (summary.has_done_something, summary.queue.dead, summary.queue.waiting)


def test_without_queue_and_records_nothing_is_sent(desk, at):
    """To send everything again would double it; only the user can say what the API holds."""
    desk.contacts.write(a1="Ada")
    desk.run()
    desk.api.take()
    shutil.rmtree(desk.state / "queue")
    at.clear()
    with pytest.raises(
        ResyncNeededError, match=r"both its queue and its frontier in the tracking folder are gone"
    ):
        desk.run()
    assert [] == desk.api.take()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda desk: setattr(desk.contacts, "table_id", "another"), "was made anew"),
        (lambda desk: setattr(desk.contacts, "version", 0), "it was put back"),
        (lambda desk: setattr(desk, "base_url", "https://other.example.com"), "now sends to"),
    ],
)
def test_what_can_not_be_compared_is_not_sent(desk, change, why):
    """Another table, an older one, another API: base and target would be strangers."""
    desk.contacts.write(a1="Ada")
    desk.run()
    desk.api.take()
    change(desk)
    with pytest.raises(ResyncNeededError, match=why):
        desk.run()
    assert [] == desk.api.take()


def test_two_runs_at_once_send_each_row_once(desk):
    """A click in the UI beside a run in a shell is no accident."""
    desk.contacts.write(a1="Ada")
    with desk.sync.open_queue():
        summary = desk.run()
    assert not summary.has_done_something
    assert "is held by process" in summary.message
    assert [] == desk.api.take()


def test_invalid_rows_are_recorded_once_and_counted(desk, at):
    """Rows that were set aside belong to the picture, but only when they newly appear."""
    desk.contacts.write(a1="Ada")
    desk.contacts.set_one_aside("NULL")
    summary = desk.run()
    assert 1 == summary.grid.count(Cell.INVALID)
    assert Severity.WARN == verdicts(desk, summary)["invalid_records"]
    desk.contacts.set_one_aside("DUPLICATE")
    assert 1 == desk.run().grid.count(Cell.INVALID)
    assert not desk.run().has_done_something
    files = [name.rpartition("/")[2] for name in at.names() if "records_invalid" in name]
    assert ["records_invalid.0.parquet", "records_invalid.0.parquet"] == files


def test_the_check_warns_while_rows_are_set_aside_new_or_not(desk):
    """It is the model's check by the same name: one passing beside the other's warning would be a riddle."""
    desk.contacts.write(a1="Ada")
    desk.contacts.set_one_aside("NULL")
    desk.run()
    desk.contacts.write(a1="Ada L.")
    summary = desk.run()
    assert 0 == summary.grid.count(Cell.INVALID)
    (check,) = [each for each in judge(summary, desk.sync.limits) if each.check == "invalid_records"]
    assert (Severity.WARN, "1 row is invalid: a null or repeated key (0 of them newly)") == (
        check.severity,
        check.description,
    )
    assert ({"key": "", "reason": "NULL"},) == check.samples


def test_the_history_tells_each_run_and_why_it_was_what_it_was(desk):
    """`ondatra history` is where an operator looks first."""
    desk.contacts.write(a1="Ada")
    desk.run()
    desk.contacts.write(a1="Ann")
    desk.run()
    runs = desk.history.runs("sync.contacts")
    assert ["incremental", "full"] == [run.mode.value for run in runs]
    assert ["succeeded", "succeeded"] == [run.result.value for run in runs]
    assert "version 2 is new" == runs[0].reason
