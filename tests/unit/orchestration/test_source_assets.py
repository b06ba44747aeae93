"""The inputs that no model makes: files and source tables are in the graph too."""

from pathlib import Path

import dagster as dg
import pytest
from support.projects.shop_project import write_shop_files

from ondatra_dagster.orchestration.asset_keys import file_key, source_key
from ondatra_dagster.orchestration.definitions import build_definitions
from ondatra_dagster.project.model import FileInput, SourceInput

QUERY = """
SELECT * FROM crm.`My Deals` JOIN csv.`data/*.csv` USING (id) JOIN csv.`data/*.csv` WITH ('header' = 'true')
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {"pyproject.toml": '[tool.ondatra.sources]\ncrm = "lake/crm"\n', "models/mart/deals.sql": QUERY}
    return write_shop_files(tmp_path / "shop", url="http://127.0.0.1:9", files=files)


def test_a_file_is_an_asset_without_code_above_its_model(root: Path) -> None:
    """The graph begins where the rows come from."""
    graph = build_definitions(root).resolve_asset_graph()
    key = dg.AssetKey(["csv", "data", "contacts.csv"])
    node = graph.get(key)
    assert {key} == graph.get(dg.AssetKey(["raw", "contacts"])).parent_keys
    assert (False, "files", {"csv"}) == (node.is_materializable, node.group_name, node.kinds)
    assert "Files that models read: data/contacts.csv" == node.description


def test_inputs_with_unusual_names_are_in_the_graph(root: Path) -> None:
    """A pattern that is read in two ways is one asset. Dagster allows few characters in names."""
    graph = build_definitions(root).resolve_asset_graph()
    assert 2 == len(graph.get(dg.AssetKey(["mart", "deals"])).parent_keys)


def test_different_inputs_are_different_assets() -> None:
    keys = {
        *(file_key(FileInput(format="csv", path=path)) for path in ("a/*.csv", "a/?.csv", "a/_.csv", "s3a://a")),
        source_key(SourceInput(source="crm", table="My Deals", location="x")),
        source_key(SourceInput(source="crm", table="My_Deals", location="x")),
    }
    assert 6 == len(keys)
    assert file_key(FileInput(format="csv", path="./a//b-1.csv")) == dg.AssetKey(["csv", "a", "b-1.csv"])
