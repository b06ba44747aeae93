"""What the checks of a sink say of runs: what is a warning, and what fails the run."""

import dataclasses
from decimal import Decimal

import pytest

from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.project.model import Limit
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.verdicts import CheckVerdict, Limits, Severity, judge

HOUR = 3600
ONE_OF_FOUR = {"a1": "x", "a2": "x", "a3": "x", "a4": "x"}


def verdict(desk, summary, check: str, limits: Limits | None = None) -> CheckVerdict:
    return {each.check: each for each in judge(summary, limits or desk.sync.limits)}[check]


def all_but_the_first(status: str):
    return lambda row: Outcome.parse(status if row["id"] == 1 else "ok")


@pytest.mark.parametrize(
    ("limit", "is_over"),
    [
        (Limit(Decimal(0)), True),
        (Limit(Decimal(1)), False),
        (Limit(Decimal("24.9"), is_share=True), True),
        (Limit(Decimal(25), is_share=True), False),
    ],
)
def test_more_rejects_than_max_rejects_fail_the_run(desk, limit, *, is_over):
    """A few bad rows are daily life; many are a mistake upstream."""
    desk.contacts.write(**ONE_OF_FOUR)
    desk.api.answer = all_but_the_first("reject: no")
    told = verdict(desk, desk.run(), "rejects", Limits(max_rejects=limit))
    expected = (
        (Severity.ERROR, "1 of 4 rows rejected: over @max_rejects")
        if is_over
        else (Severity.WARN, "1 row rejected now; 1 dead letter: see `ondatra dead sync.contacts`")
    )
    assert expected == (told.severity, told.description)


def test_keys_that_nobody_has_tried_are_to_go_and_not_to_be_tried_again(desk):
    """While a sync is held they wait for somebody, and for no retry."""
    desk.contacts.write(a1="x")
    desk.api.answer = all_but_the_first("error: later")
    desk.run()
    desk.contacts.write(a2="x", a3="x")
    held = dataclasses.replace(desk.ports(), hold=lambda: "it is paused")
    told = verdict(desk, run_sync(desk.sync, held, Occasion(trigger="test")), "undelivered")
    assert (Severity.WARN, "2 rows pending and 1 row to be tried again") == (told.severity, told.description)


def test_a_row_that_waits_longer_than_max_lag_fails_the_run(desk):
    """Rows that wait are daily life, too, until somebody misses them."""
    desk.contacts.write(**ONE_OF_FOUR)
    desk.api.answer = all_but_the_first("error: later")
    limits = Limits(max_lag_seconds=2 * HOUR)
    told = verdict(desk, desk.run(), "undelivered", limits)
    assert (Severity.WARN, "1 row to be tried again") == (told.severity, told.description)
    desk.now += 2 * HOUR + 1
    desk.contacts.write(a5="x")
    told = verdict(desk, desk.run(), "undelivered", limits)
    assert (Severity.ERROR, "a row has waited for 2.0 hours, longer than @max_lag") == (
        told.severity,
        told.description,
    )


def test_rows_that_were_given_up_fail_the_run(desk):
    """From then on nobody tries them by himself."""
    desk.contacts.write(**ONE_OF_FOUR)
    desk.api.answer = all_but_the_first("error: later")
    for _ in range(3):
        told = verdict(desk, desk.run(), "undelivered")
        desk.now += HOUR
    assert (Severity.ERROR, "1 row given up after too many tries: see `ondatra dead sync.contacts`") == (
        told.severity,
        told.description,
    )
    desk.contacts.write(a5="x")
    assert Severity.PASS == verdict(desk, desk.run(), "undelivered").severity


def test_a_run_that_delivered_nothing_fails(desk):
    """Though each row may be tried again, something is wrong with all of them."""
    desk.contacts.write(**ONE_OF_FOUR)
    desk.api.answer = lambda row: Outcome.parse("error: later")
    told = verdict(desk, desk.run(), "undelivered")
    assert (Severity.ERROR, "nothing was delivered of 4 attempted rows") == (told.severity, told.description)
    desk.now += HOUR
    desk.api.is_down = True
    told = verdict(desk, desk.run(), "undelivered")
    assert (Severity.ERROR, "the API is down: the rows wait for a later run") == (
        told.severity,
        told.description,
    )
