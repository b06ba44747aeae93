"""A clock that was ahead when times were stored, and is right again: no row waits because of it, and none is lost."""

import logging

import pytest

from ondatra_dagster.delivery.queue.queue_status import read_status
from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.operations.alert_rules import evaluate_no_success
from ondatra_dagster.project.settings.read_settings_and_defaults import AlertSettings
from ondatra_dagster.sync.dead_letter_listing import list_dead_letters
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.run_history_store import RunResult
from ondatra_dagster.sync.sync_checks import Severity, SyncLimits, check_undelivered
from ondatra_dagster.sync.sync_run import dry_run_sync

MINUTE, HOUR, DAY = 60, 3600, 86_400
JUMPS = [pytest.param(DAY, id="a day"), pytest.param(3650 * DAY, id="ten years")]
SENTENCE = "its queue has times up to "


def one_ends_in_a_jump(harness, jump: float, word: str = "error: 500") -> None:
    """Deliver a row to an API that answers `word` while the clock is ahead; then set the clock right."""
    harness.contacts.write(a1="Ada")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status(word)
    harness.now += jump
    harness.run()
    harness.now -= jump
    assert [("insert", 1, "Ada")] == harness.api.pop_received()


@pytest.mark.parametrize(("jump", "days"), [(DAY, 0), (DAY, 30), *((3650 * DAY, days) for days in (0, 1, 30, 365))])
def test_a_row_that_waited_is_due_when_the_clock_is_right_again(harness, jump: int, days: int) -> None:
    one_ends_in_a_jump(harness, jump)
    harness.now += days * DAY
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    summary = harness.run()
    assert [("insert", 1, "Ada")] == harness.api.pop_received()
    assert (0, None) == (summary.queue.depth, summary.queue.oldest_since)


@pytest.mark.parametrize("jump", JUMPS)
def test_the_queue_status_shows_the_row_as_due_before_any_run(harness, jump: float) -> None:
    """Sensors request a run when something is due."""
    one_ends_in_a_jump(harness, jump)
    with harness.sync.open_queue() as queue:
        state = read_status(queue.store, now=harness.now)
    assert (1, True, harness.now, harness.now, True) == (
        state.due_units,
        state.can_deliver,
        state.next_due_at,
        state.oldest_since,
        state.is_clock_behind,
    )


@pytest.mark.parametrize("jump", JUMPS)
def test_the_age_of_rows_counts_from_the_right_clock_on(harness, jump: float) -> None:
    """@max_lag is 24 hours. Otherwise no check would ever report the rows."""
    one_ends_in_a_jump(harness, jump)
    harness.api.is_api_down = True
    assert 0 == harness.run().queue.oldest_since - harness.now
    harness.now += 25 * HOUR
    harness.api.is_api_down = False
    harness.contacts.write(a2="Ben")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("error: 500" if row["id"] == 1 else "ok")
    verdict = check_undelivered(harness.run(), SyncLimits())
    assert (Severity.ERROR, 25 * HOUR + 1) == (verdict.severity, verdict.counts["oldest_seconds"])
    assert "a row has waited for 25.0 hours, longer than @max_lag" == verdict.description


def test_a_row_still_waits_when_the_clock_is_set_back_four_minutes(harness) -> None:
    """The clocks of two machines may differ by that much."""
    harness.contacts.write(a1="Ada")
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("error: 500")
    due_at = harness.run().queue.next_due_at
    harness.now -= 4 * MINUTE
    harness.api.pop_received()
    summary = harness.run()
    assert ([], due_at) == (harness.api.pop_received(), summary.queue.next_due_at)


def test_a_clock_that_was_behind_makes_no_row_wait_longer(harness) -> None:
    """The clock was ten years behind when a row failed."""
    one_ends_in_a_jump(harness, -3650 * DAY)
    harness.run()
    assert [("insert", 1, "Ada")] == harness.api.pop_received()


def test_a_clock_that_was_ahead_is_reported_once(harness, caplog: pytest.LogCaptureFixture) -> None:
    """The run that corrects the times reports it in one sentence for all rows."""
    harness.contacts.write(**{f"a{number}": "Ben" for number in range(2, 20)})
    harness.run()
    harness.api.pop_received()
    one_ends_in_a_jump(harness, 3650 * DAY)
    with caplog.at_level(logging.WARNING):
        harness.run()
        harness.run()
    (message,) = [record.getMessage() for record in caplog.records if SENTENCE in record.getMessage()]
    assert message.startswith("sync.contacts: its queue has times up to 2037-01-1")
    assert message.endswith("All waiting rows count as due now. If the clock is wrong, correct it")


def test_dead_letters_have_the_right_age_again(harness) -> None:
    one_ends_in_a_jump(harness, 3650 * DAY, "reject: no")
    harness.run()
    (letter,) = list_dead_letters(harness.sync)
    assert harness.now == letter.died_at.timestamp()


def test_a_lost_queue_does_not_bring_back_the_waits_of_a_wrong_clock(harness) -> None:
    """The queue snapshot has the time at which each wait was set."""
    one_ends_in_a_jump(harness, 3650 * DAY)
    harness.sync.queue_file.unlink()
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("ok")
    assert 0 == harness.run().queue.depth
    assert [("insert", 1, "Ada")] == harness.api.pop_received()


def test_a_dry_run_shows_what_the_next_run_does(harness) -> None:
    one_ends_in_a_jump(harness, 3650 * DAY)
    forecast = dry_run_sync(harness.sync, harness.build_ports(), RunOptions(trigger="test"))
    assert 1 == forecast.expected_changes.change_counts.creates


def test_the_newest_run_is_found_after_a_run_with_a_wrong_clock(harness) -> None:
    """Checks and alerts judge the newest run, and its time is the time of the last success."""
    harness.contacts.write(a1="Ada")
    harness.now += 3650 * DAY
    wrong = harness.run().run_id
    harness.now -= 3650 * DAY
    harness.contacts.write(a1="Ann")
    right = harness.run().run_id
    runs = harness.history.list_runs("sync.contacts")
    assert [right, wrong] == [run.run_id for run in runs]
    assert [RunResult.SUCCEEDED] * 2 == [run.result for run in runs]
    totals = harness.history.read_totals()["sync.contacts"]
    assert harness.now == totals.last_success.timestamp()


@pytest.mark.parametrize(("last_success", "hours"), [(10 * DAY, 30.0), (DAY, 6.0), (None, 30.0)])
def test_a_success_with_a_wrong_clock_does_not_hide_a_missing_success(last_success: float | None, hours: float) -> None:
    now = DAY + 6 * HOUR
    reading = evaluate_no_success(
        "sync.crm", waiting_since=0, last_success=last_success, now=now, settings=AlertSettings()
    )
    assert reading
    assert hours == reading.numbers["hours"]
