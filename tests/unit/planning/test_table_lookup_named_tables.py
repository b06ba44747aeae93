"""The lookup of a table by the name that users know."""

from pathlib import Path

import pyarrow as pa
import pytest
from support.spark.pyarrow_delta_table import write_table

from ondatra_dagster.errors import SelectionError
from ondatra_dagster.planning.find_table_and_columns import find_named_table
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.project_loader import load_project
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings


@pytest.fixture
def project(tmp_path: Path) -> Project:
    for name in ("mart/Orders", "sync/crm"):
        path = tmp_path / "models" / f"{name}.sql"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("SELECT 1 AS id")
    variables = {"ONDATRA_SOURCES": '{"Shop": "lake/", "main": "main.crm"}'}
    return load_project(tmp_path, read_settings(tmp_path, variables))


@pytest.mark.parametrize(
    ("name", "found", "place"),
    [
        ("MART/orders", "mart.Orders", ".ondatra/warehouse/mart/orders"),
        ("mart.orders__INVALID", "mart.Orders__invalid", ".ondatra/warehouse/mart/orders__invalid"),
        ("shop.My Deals", "Shop.My Deals", "lake/My Deals"),
        ("ondatra.sync_log", "ondatra.sync_log", ".ondatra/warehouse/ondatra/sync_log"),
    ],
)
def test_a_table_is_found(project: Project, name: str, found: str, place: str) -> None:
    table = find_named_table(project, name)
    assert (found, str(project.root / place)) == (table.name, table.address)


def test_a_table_in_a_catalog_has_no_folder(project: Project) -> None:
    assert find_named_table(project, "main.deals").address is None


def test_a_wrong_name_is_refused_with_the_nearest_right_one(project: Project) -> None:
    aside = project.settings.root / ".ondatra/warehouse/sync/crm__invalid"
    write_table(aside, pa.table({"id": [1]}))
    with pytest.raises(SelectionError, match=r"there is no table 'mart\.order'; did you mean mart\.Orders\?"):
        find_named_table(project, "mart.order")
    with pytest.raises(SelectionError, match=r"did you mean sync\.crm__invalid\?"):
        find_named_table(project, "sync.crm_invalid")
    with pytest.raises(SelectionError, match=r"there are mart\.Orders, sync\.crm, .*, Shop\.TABLE, main\.TABLE"):
        find_named_table(project, "zzzzzz")
