"""The checks @constraint, @warning and @audit in Dagster: when a model runs, fails or is skipped."""

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from support.projects.shop_project import SHOP_FILES, ShopProject, write_contacts

from ondatra_dagster.orchestration.definitions import build_definitions
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

CRM = dg.AssetKey(["sync", "crm"])
Materialize = Callable[..., dg.ExecuteInProcessResult]


def add_check(shop: ShopProject, line: str) -> None:
    """Add a line above the model's own lines."""
    text = SHOP_FILES["models/sync/crm.sql"]
    (shop.root / "models" / "sync" / "crm.sql").write_text(f"-- {line}\n{text}")


def told(result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
    evaluations = [check for check in result.get_asset_check_evaluations() if check.asset_key == CRM]
    return {check.check_name: (check.passed, check.severity.value) for check in evaluations}


def test_a_check_exists_before_anything_runs(shop: ShopProject) -> None:
    """Dagster shows what it checks, and where it is written."""
    add_check(shop, "@audit: email LIKE '%@%'")
    graph = build_definitions(shop.root).resolve_asset_graph()
    (check,) = (key for key in graph.asset_check_keys if key.name.startswith("audit"))
    spec = graph.get_check_spec(check)
    assert (CRM, "audit_email_like") == (check.asset_key, check.name)
    assert spec.description
    assert spec.description.startswith("email LIKE '%@%'\n\nEach row that the table would have")
    assert "models/sync/crm.sql:1" == spec.metadata["file"]


@pytest.mark.parametrize("word", ["constraint", "audit"])
def test_rows_that_fail_a_check_fail_the_run_and_the_check(
    materialize: Materialize, shop: ShopProject, api: DemoApi, dagster_instance: dg.DagsterInstance, word: str
) -> None:
    """A check that stayed planned would say nothing. No row is sent."""
    add_check(shop, f"@{word}: email LIKE '%@%'")
    write_contacts(shop.root, a1="ada@example.com", b2="nonsense")
    result = materialize(shop)
    assert not result.success
    assert {f"{word}_email_like": (False, "ERROR")} == told(result)
    (check,) = result.get_asset_check_evaluations()
    assert (1, 2) == (check.metadata["failed"].value, check.metadata["rows"].value)
    (sample,) = check.metadata["samples"].records
    assert {"id": "b2", "email": "nonsense"} == sample.data
    key = dg.AssetCheckKey(CRM, f"{word}_email_like")
    stored = dagster_instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert (result.run_id, "FAILED") == (stored.run_id, stored.status.value)
    assert () == api.calls


def test_the_failure_is_shown_with_its_line_and_its_rows(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """The terminal shows the same as Dagster's page."""
    add_check(shop, "@constraint: email LIKE '%@%'")
    write_contacts(shop.root, a1="ada@example.com", b2="nonsense")
    materialize(shop)
    remedy = "nothing was written; correct the rows at their source, or the check"
    what = "1 of 2 rows fails @constraint email LIKE '%@%' (id b2, email nonsense)"
    assert [("sync.crm", f"models/sync/crm.sql:1: {what}; {remedy}")] == shop.progress.failures


def test_a_warning_lets_all_rows_through_and_stays_until_they_are_fixed(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """The next run computes nothing, but its check must not turn green because of that."""
    add_check(shop, "@warning: email LIKE '%@%'")
    write_contacts(shop.root, a1="ada@example.com", b2="nonsense")
    expected = {"warning_email_like": (False, "WARN"), "invalid_records": (True, "ERROR")}
    first, second = materialize(shop), materialize(shop)
    assert expected == told(first) == told(second)
    assert 2 == len(shop.tables.computed_models)
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com")
    assert (True, "ERROR") == told(materialize(shop))["warning_email_like"]


def test_a_new_check_is_evaluated_although_nothing_else_changed(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """The rows exist already, but this check has not seen them. One evaluation is enough."""
    materialize(shop)
    add_check(shop, "@constraint: email LIKE '%@%'")
    assert (True, "ERROR") == told(materialize(shop))["constraint_email_like"]
    assert (True, "ERROR") == told(materialize(shop))["constraint_email_like"]
    assert ["raw.contacts", "sync.crm", "sync.crm"] == shop.tables.computed_models


def test_a_model_below_one_whose_check_failed_does_not_run(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """It would be computed from the old rows, and look as if it were new."""
    path = Path(shop.root, "models", "raw", "contacts.sql")
    path.write_text(f"-- @constraint: email LIKE '%@%'\n{path.read_text()}")
    write_contacts(shop.root, b2="nonsense")
    assert not materialize(shop).success
    assert ["raw.contacts"] == shop.tables.computed_models
