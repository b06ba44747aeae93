"""The checks of a sync after a run that did nothing: they report what is known now, and of which run it is."""

import dataclasses
from collections.abc import Callable

import dagster as dg
import pytest
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.sync.run_history_store import PastRun, RunResult
from ondatra_dagster.sync.sync_checks import Severity
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

PUSH = dg.AssetKey(["push", "sync", "crm"])
LOST = "its queue is lost: the next run rebuilds it"

Materialize = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def shop_with_rejected_row(materialize: Materialize, shop: ShopProject, api: DemoApi) -> ShopProject:
    """Return a shop after a run in which the API rejected one of two rows."""
    write_contacts(shop.root, a1="ada@example.com", b2="nonsense")
    assert materialize(shop).success
    return shop


def told(result: dg.ExecuteInProcessResult, check: str) -> tuple[bool, str]:
    (evaluation,) = [
        candidate
        for candidate in result.get_asset_check_evaluations()
        if (candidate.asset_key, candidate.check_name) == (PUSH, check)
    ]
    return evaluation.passed, evaluation.description or ""


def counted(result: dg.ExecuteInProcessResult, check: str) -> set[str]:
    (evaluation,) = [candidate for candidate in result.get_asset_check_evaluations() if candidate.check_name == check]
    return set(evaluation.metadata)


def going_on(past: PastRun) -> PastRun:
    """Return a run that follows the past one, as it begins."""
    return dataclasses.replace(past, run_id=f"{past.run_id}z", counts={}, result=RunResult.RUNNING)


def test_rejects_of_an_earlier_run_are_not_reported_as_rejected_now(
    shop_with_rejected_row: ShopProject, materialize: Materialize
) -> None:
    """Otherwise the user would look for an error in a run that attempted nothing."""
    passed, description = told(materialize(shop_with_rejected_row, PUSH), "rejects")
    assert not passed
    assert "1 row rejected by the newest run; 1 dead letter: see `ondatra dead sync.crm`" == description


def test_a_run_that_finds_the_sync_locked_reports_what_the_queue_says(
    shop_with_rejected_row: ShopProject, materialize: Materialize
) -> None:
    """It reads the queue that the other run writes, and nothing in it makes this run fail."""
    with FileLock(shop_with_rejected_row.workspace.sync("sync.crm").lock_file, purpose="delivers"):
        result = materialize(shop_with_rejected_row, PUSH)
    assert result.success
    kept_out = shop_with_rejected_row.progress.sync_results[-1]
    assert "is held by process" in kept_out.summary.message
    assert Severity.ERROR not in [verdict.severity for verdict in kept_out.verdicts]
    passed, description = told(result, "rejects")
    assert (False, True) == (passed, "1 dead letter" in description)


def test_a_run_that_finds_the_sync_locked_reports_a_lost_queue_as_lost(
    shop_with_rejected_row: ShopProject, materialize: Materialize
) -> None:
    """The number of its dead letters is unknown until the queue is rebuilt."""
    workspace = shop_with_rejected_row.workspace
    (past,) = workspace.history.list_runs("sync.crm")
    with FileLock(workspace.sync("sync.crm").lock_file, purpose="delivers"):
        workspace.history.begin_run(going_on(past))
        workspace.sync("sync.crm").queue_file.unlink()
        result = materialize(shop_with_rejected_row, PUSH)
    for check in ("rejects", "undelivered"):
        passed, description = told(result, check)
        assert (False, True) == (passed, description.startswith(LOST))
    assert "dead_letters" not in counted(result, "rejects")
    assert not {"waiting", "in_jobs", "oldest_seconds"} & counted(result, "undelivered")


def test_during_another_run_the_check_reports_only_what_the_queue_says(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """The rows of that run have not been counted yet."""
    materialize(shop)
    workspace = shop.workspace
    (past,) = workspace.history.list_runs("sync.crm")
    with FileLock(workspace.sync("sync.crm").lock_file, purpose="delivers"):
        workspace.history.begin_run(going_on(past))
        result = materialize(shop, PUSH)
    assert (True, "there are no dead letters") == told(result, "rejects")


def test_a_run_that_is_refused_for_a_lost_queue_says_so_in_both_checks(
    shop_with_rejected_row: ShopProject, materialize: Materialize
) -> None:
    """If a check said only that no row was rejected, the user would think that there is just one problem."""
    for snapshot in (shop_with_rejected_row.root / ".ondatra" / "tracking" / "queue_snapshots").rglob("*.parquet"):
        snapshot.unlink()
    shop_with_rejected_row.workspace.sync("sync.crm").queue_file.unlink()
    result = materialize(shop_with_rejected_row, PUSH)
    assert not result.success
    for check in ("rejects", "undelivered"):
        assert "run `ondatra resync sync.crm`" in told(result, check)[1]
