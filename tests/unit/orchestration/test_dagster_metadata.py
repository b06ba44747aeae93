"""The column lineage that Dagster draws."""

from pathlib import Path

import dagster as dg

from ondatra_dagster.app.workspace import load_workspace
from ondatra_dagster.orchestration.asset_keys import file_key, source_key
from ondatra_dagster.orchestration.dagster_metadata import build_column_lineage
from ondatra_dagster.project.model import FileInput, SourceInput


def test_a_column_points_to_the_assets_that_its_model_reads(tmp_path: Path) -> None:
    """These are models, source tables and files. A column that can't be followed is left out."""
    folder = tmp_path / "models" / "mart"
    folder.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.ondatra.sources]\ncrm = "main.crm"\n')
    (folder / "Plans.sql").write_text("select id, name from CRM.Plans")
    (folder / "all.sql").write_text(
        "select p.name, f.v || g.v as v, 1 as n, q.w, 2 as `a b` from mart.plans p "
        "join csv.`data/f.csv` with ('header' = 'true') f on f.id = p.id, csv.`data/f.csv` g, "
        "(select * from csv.`data/h.csv` pivot (max(x) for y in ('a' as w))) q"
    )
    workspace = load_workspace(tmp_path)
    source = source_key(SourceInput(source="crm", table="Plans", location="main.crm"))
    plans, all_ = workspace.project.model("mart.plans"), workspace.project.model("mart.all")
    assert dg.TableColumnLineage(
        {name: [dg.TableColumnDep(asset_key=source, column_name=name)] for name in ("id", "name")}
    ) == build_column_lineage(workspace, plans)
    file = file_key(FileInput(format="csv", path="data/f.csv"))
    assert dg.TableColumnLineage(
        {
            "name": [dg.TableColumnDep(asset_key=dg.AssetKey(["mart", "Plans"]), column_name="name")],
            "v": [dg.TableColumnDep(asset_key=file, column_name="v")],
            "n": [],
            "a b": [],
        }
    ) == build_column_lineage(workspace, all_)
