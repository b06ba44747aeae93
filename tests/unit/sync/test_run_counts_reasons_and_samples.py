"""The reasons why rows didn't arrive: each is shown once, however many rows have it."""

from pathlib import Path

import pytest
from support.syncs.kind_sync_harness import KindSyncHarness

from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import FailureReason
from ondatra_dagster.sync.dead_letter_listing import list_dead_letter_reasons
from ondatra_dagster.sync.run_counts_reasons_and_samples import MAX_MESSAGES, MessageCounter
from ondatra_dagster.sync.run_summary import load_undelivered_reasons
from ondatra_dagster.sync.sync_checks import run_sync_checks


@pytest.mark.parametrize(("kind", "batch_size", "units"), [("tracked", 100, 1), ("partition", 0, 3), ("table", 0, 3)])
def test_a_rejection_of_a_whole_unit_is_one_reason(tmp_path: Path, kind: str, batch_size: int, units: int) -> None:
    """A group of three rows doesn't have three reasons, neither at the end of the run nor later."""
    desk = KindSyncHarness(tmp_path, kind, batch_size=batch_size)
    desk.api.choose_status = lambda row: "reject: the invoice is closed"
    desk.write(a=[1, 2, 3])
    summary = desk.run()
    (reason,) = summary.reject_reasons
    assert ("the invoice is closed", units) == (reason.message, reason.unit_count)
    assert [("the invoice is closed", units)] == [each[:2] for each in list_dead_letter_reasons(desk.sync, limit=20)]
    (verdict,) = [each for each in run_sync_checks(summary, desk.sync.limits) if each.name == "rejects"]
    reasons = [(line["reason"], line["units"]) for line in verdict.samples]
    assert [("the invoice is closed", units)] == reasons


def test_rows_that_are_retried_have_reasons_too(tmp_path: Path) -> None:
    """The run and its history show how many rows and which, next to the rejected ones."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.api.choose_status = lambda row: "error: busy" if row[2] == 1 else "reject: no mail" if row[2] else "ok"
    desk.write(a=[1], b=[2], c=[1], d=[1], e=[0])
    summary = desk.run()
    busy, refused = FailureReason("busy", 3, ("a", "c", "d")), FailureReason("no mail", 1, ("b",))
    assert ((busy,), (refused,)) == (summary.failure_reasons, summary.reject_reasons)
    (past,) = desk.build_ports().history.list_runs(desk.sync.id, limit=1)
    assert (busy, refused) == load_undelivered_reasons(past)


def test_the_most_frequent_reason_comes_first_with_a_few_keys(tmp_path: Path) -> None:
    """Otherwise a thousand rows with one reason would fill the screen, and a single other row would be hidden."""
    desk = KindSyncHarness(tmp_path, "merge")
    desk.api.choose_status = lambda row: "reject: too old" if row[2] == 1 else "reject: no mail" if row[2] else "ok"
    desk.write(a=[1], b=[2], c=[2], d=[2], e=[0], f=[2], g=[1])
    summary = desk.run()
    expected = (FailureReason("no mail", 4, ("b", "c", "d", "f")), FailureReason("too old", 2, ("a", "g")))
    assert expected == summary.reject_reasons
    assert expected == list_dead_letter_reasons(desk.sync, limit=20)
    assert expected[:1] == list_dead_letter_reasons(desk.sync, limit=1)
    descriptions = [reason.describe_units("row") for reason in expected]
    assert ["4 rows (b, c, d and others)", "2 rows (a, g)"] == descriptions


def test_a_sync_that_never_ran_has_no_dead_letters(tmp_path: Path) -> None:
    """There is no queue yet."""
    assert () == list_dead_letter_reasons(KindSyncHarness(tmp_path, "merge").sync, limit=20)


def test_messages_that_all_differ_take_no_more_memory_than_a_few(tmp_path: Path) -> None:
    """Many APIs put the row's values into their messages."""
    reasons = MessageCounter()
    for number in range(MAX_MESSAGES + 5):
        reasons.add_message(f"k{number}", f"no such customer: {number}")
    assert MAX_MESSAGES == len(reasons.most_common(2 * MAX_MESSAGES))
    reasons.add_message("late", "no such customer: 0")
    assert FailureReason("no such customer: 0", 2, ("k0", "late")) == reasons.most_common(1)[0]
