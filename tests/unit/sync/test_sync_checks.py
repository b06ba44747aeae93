"""The checks of a sync: which results are a warning, and which ones fail the run."""

import dataclasses
from decimal import Decimal

import pytest

from ondatra_dagster.delivery.row_outcome import RowOutcome
from ondatra_dagster.project.model import RowLimit
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.sync_checks import Severity, SyncCheckResult, SyncLimits, run_sync_checks
from ondatra_dagster.sync.sync_run import run_sync

HOUR = 3600
ONE_OF_FOUR = {"a1": "x", "a2": "x", "a3": "x", "a4": "x"}


def verdict(harness, summary, check: str, limits: SyncLimits | None = None) -> SyncCheckResult:
    return {result.name: result for result in run_sync_checks(summary, limits or harness.sync.limits)}[check]


def all_but_the_first(status: str):
    return lambda row: RowOutcome.parse_status(status if row["id"] == 1 else "ok")


@pytest.mark.parametrize(
    ("limit", "is_over"),
    [
        (RowLimit(Decimal(0)), True),
        (RowLimit(Decimal(1)), False),
        (RowLimit(Decimal("24.9"), is_percentage=True), True),
        (RowLimit(Decimal(25), is_percentage=True), False),
    ],
)
def test_more_rejects_than_max_rejects_fail_the_run(harness, limit, *, is_over):
    """A few bad rows are normal, but many are a mistake upstream."""
    harness.contacts.write(**ONE_OF_FOUR)
    harness.api.choose_outcome = all_but_the_first("reject: no")
    check = verdict(harness, harness.run(), "rejects", SyncLimits(max_rejects=limit))
    expected = (
        (Severity.ERROR, "1 of 4 rows rejected: over @max_rejects")
        if is_over
        else (Severity.WARN, "1 row rejected now; 1 dead letter: see `ondatra dead sync.contacts`")
    )
    assert expected == (check.severity, check.description)


def test_rows_that_were_never_tried_are_pending_and_not_to_be_retried(harness):
    """While a sync is paused they wait for the user, not for a retry."""
    harness.contacts.write(a1="x")
    harness.api.choose_outcome = all_but_the_first("error: later")
    harness.run()
    harness.contacts.write(a2="x", a3="x")
    ports = dataclasses.replace(harness.build_ports(), find_hold_reason=lambda: "it is paused")
    check = verdict(harness, run_sync(harness.sync, ports, RunOptions(trigger="test")), "undelivered")
    assert (Severity.WARN, "2 rows pending and 1 row to be retried") == (check.severity, check.description)


def test_a_row_that_waits_longer_than_max_lag_fails_the_run(harness):
    """Waiting rows are normal too, until the user misses them."""
    harness.contacts.write(**ONE_OF_FOUR)
    harness.api.choose_outcome = all_but_the_first("error: later")
    limits = SyncLimits(max_lag_seconds=2 * HOUR)
    check = verdict(harness, harness.run(), "undelivered", limits)
    assert (Severity.WARN, "1 row to be retried") == (check.severity, check.description)
    harness.now += 2 * HOUR + 1
    harness.contacts.write(a5="x")
    check = verdict(harness, harness.run(), "undelivered", limits)
    assert (Severity.ERROR, "a row has waited for 2.0 hours, longer than @max_lag") == (
        check.severity,
        check.description,
    )


def test_rows_that_failed_too_often_fail_the_run(harness):
    """From then on they aren't retried automatically."""
    harness.contacts.write(**ONE_OF_FOUR)
    harness.api.choose_outcome = all_but_the_first("error: later")
    for _ in range(3):
        check = verdict(harness, harness.run(), "undelivered")
        harness.now += HOUR
    assert (Severity.ERROR, "1 row given up after too many attempts: see `ondatra dead sync.contacts`") == (
        check.severity,
        check.description,
    )
    harness.contacts.write(a5="x")
    assert Severity.PASS == verdict(harness, harness.run(), "undelivered").severity


def test_a_run_that_delivered_nothing_fails(harness):
    """Each row may be retried, but something is wrong with all of them."""
    harness.contacts.write(**ONE_OF_FOUR)
    harness.api.choose_outcome = lambda row: RowOutcome.parse_status("error: later")
    check = verdict(harness, harness.run(), "undelivered")
    assert (Severity.ERROR, "nothing was delivered of 4 attempted rows") == (check.severity, check.description)
    harness.now += HOUR
    harness.api.is_api_down = True
    check = verdict(harness, harness.run(), "undelivered")
    assert (Severity.ERROR, "the API is down: the rows wait for a later run") == (check.severity, check.description)
