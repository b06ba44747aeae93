"""A clock that was ahead when times were noted, and is right again: nothing waits for it, nothing goes."""

import logging

import pytest

from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.delivery.queue.states import look
from ondatra_dagster.operations.alerts import read_silence
from ondatra_dagster.project.settings.alert_settings import AlertSettings
from ondatra_dagster.sync.dead_letters import dead_letters
from ondatra_dagster.sync.dry_run import dry_run
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.verdicts import Limits, Severity, judge_undelivered
from ondatra_dagster.tracking.history import Result

MINUTE, HOUR, DAY = 60, 3600, 86_400
JUMPS = [pytest.param(DAY, id="a day"), pytest.param(3650 * DAY, id="ten years")]
SENTENCE = "its queue has times up to "


def one_ends_in_a_jump(desk, jump: float, word: str = "error: 500") -> None:
    """The API answers so for a row while the clock is ahead; then the clock is right again."""
    desk.contacts.write(a1="Ada")
    desk.api.answer = lambda row: Outcome.parse(word)
    desk.now += jump
    desk.run()
    desk.now -= jump
    assert [("insert", 1, "Ada")] == desk.api.take()


@pytest.mark.parametrize(
    ("jump", "days"), [(DAY, 0), (DAY, 30), *((3650 * DAY, days) for days in (0, 1, 30, 365))]
)
def test_what_waited_is_due_when_the_clock_is_right_again(desk, jump: int, days: int) -> None:
    one_ends_in_a_jump(desk, jump)
    desk.now += days * DAY
    desk.api.answer = lambda row: Outcome.parse("ok")
    summary = desk.run()
    assert [("insert", 1, "Ada")] == desk.api.take()
    assert (0, None) == (summary.queue.depth, summary.queue.oldest_since)


@pytest.mark.parametrize("jump", JUMPS)
def test_who_looks_sees_that_it_is_due_before_any_run(desk, jump: float) -> None:
    """Sensors ask for a run when something is due."""
    one_ends_in_a_jump(desk, jump)
    with desk.sync.open_queue() as queue:
        state = look(queue.store, now=desk.now)
    assert (1, True, desk.now, desk.now, True) == (
        state.due,
        state.can_deliver,
        state.next_due_at,
        state.oldest_since,
        state.is_clock_behind,
    )


@pytest.mark.parametrize("jump", JUMPS)
def test_rows_get_too_old_from_the_right_clock_on(desk, jump: float) -> None:
    """@max_lag is 24 hours; else nobody would ever hear of them."""
    one_ends_in_a_jump(desk, jump)
    desk.api.is_down = True
    assert 0 == desk.run().queue.oldest_since - desk.now
    desk.now += 25 * HOUR
    desk.api.is_down = False
    desk.contacts.write(a2="Ben")
    desk.api.answer = lambda row: Outcome.parse("error: 500" if row["id"] == 1 else "ok")
    verdict = judge_undelivered(desk.run(), Limits())
    assert (Severity.ERROR, 25 * HOUR + 1) == (verdict.severity, verdict.counts["oldest_seconds"])
    assert "a row has waited for 25.0 hours, longer than @max_lag" == verdict.description


def test_a_wait_that_was_asked_for_stays(desk) -> None:
    """Four minutes are what clocks of two machines may differ by."""
    desk.contacts.write(a1="Ada")
    desk.api.answer = lambda row: Outcome.parse("error: 500")
    due_at = desk.run().queue.next_due_at
    desk.now -= 4 * MINUTE
    desk.api.take()
    summary = desk.run()
    assert ([], due_at) == (desk.api.take(), summary.queue.next_due_at)


def test_a_clock_that_was_behind_makes_nothing_wait_longer(desk) -> None:
    """It was set back ten years while a row failed."""
    one_ends_in_a_jump(desk, -3650 * DAY)
    desk.run()
    assert [("insert", 1, "Ada")] == desk.api.take()


def test_it_is_said_once(desk, caplog: pytest.LogCaptureFixture) -> None:
    """In one sentence for all rows, by the run that corrects it."""
    desk.contacts.write(**{f"a{number}": "Ben" for number in range(2, 20)})
    desk.run()
    desk.api.take()
    one_ends_in_a_jump(desk, 3650 * DAY)
    with caplog.at_level(logging.WARNING):
        desk.run()
        desk.run()
    (told,) = [record.getMessage() for record in caplog.records if SENTENCE in record.getMessage()]
    assert told.startswith("sync.contacts: its queue has times up to 2037-01-1")
    assert told.endswith("What waited counts as due now. If the clock is wrong now, set it right")


def test_dead_letters_have_an_age_again(desk) -> None:
    one_ends_in_a_jump(desk, 3650 * DAY, "reject: no")
    desk.run()
    (letter,) = dead_letters(desk.sync)
    assert desk.now == letter.died_at.timestamp()


def test_a_lost_queue_brings_no_wait_of_a_wrong_clock_back(desk) -> None:
    """The frontier has the moment at which each wait was set."""
    one_ends_in_a_jump(desk, 3650 * DAY)
    desk.sync.queue.unlink()
    desk.api.answer = lambda row: Outcome.parse("ok")
    assert 0 == desk.run().queue.depth
    assert [("insert", 1, "Ada")] == desk.api.take()


def test_a_dry_run_tells_what_the_next_run_does(desk) -> None:
    one_ends_in_a_jump(desk, 3650 * DAY)
    forecast = dry_run(desk.sync, desk.ports(), Occasion(trigger="test"))
    assert 1 == forecast.outlook.expected.creates


def test_the_history_goes_on_behind_a_run_of_the_wrong_clock(desk) -> None:
    """Checks and alerts judge the newest run, and its time is when it last went well."""
    desk.contacts.write(a1="Ada")
    desk.now += 3650 * DAY
    wrong = desk.run().run_id
    desk.now -= 3650 * DAY
    desk.contacts.write(a1="Ann")
    right = desk.run().run_id
    runs = desk.history.runs("sync.contacts")
    assert [right, wrong] == [run.run_id for run in runs]
    assert [Result.SUCCEEDED] * 2 == [run.result for run in runs]
    totals = desk.history.totals()["sync.contacts"]
    assert desk.now == totals.last_success.timestamp()


@pytest.mark.parametrize(("last_success", "hours"), [(10 * DAY, 30.0), (DAY, 6.0), (None, 30.0)])
def test_a_success_of_a_wrong_clock_hides_no_silence(last_success: float | None, hours: float) -> None:
    now = DAY + 6 * HOUR
    reading = read_silence(
        "sync.crm", waiting_since=0, last_success=last_success, now=now, settings=AlertSettings()
    )
    assert reading
    assert hours == reading.numbers["hours"]
