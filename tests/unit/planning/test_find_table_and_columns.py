"""The columns of the tables that a query reads."""

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.planning.find_table_and_columns import current_columns_lookup, table_path
from ondatra_dagster.project.model import FileInput, ModelInput, SourceInput
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.project_loader import load_project
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "models" / "raw").mkdir(parents=True)
    (tmp_path / "models" / "raw" / "a.sql").write_text("select * from csv.`x`")
    (tmp_path / "pyproject.toml").write_text('[tool.ondatra.sources]\ncrm = "lake/crm"\n')
    return load_project(tmp_path, read_settings(tmp_path, {}))


def write_log(folder: Path, columns: tuple[str, ...], *, definition: str) -> None:
    """Write a Delta table that has only a log."""
    fields = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in columns]
    note = CommitMetadata(definition=definition, inputs={}, run_id="r")
    actions = [
        {"commitInfo": {"userMetadata": note.dump()}},
        {"metaData": {"id": "t", "schemaString": orjson.dumps({"type": "struct", "fields": fields}).decode()}},
    ]
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "_delta_log" / f"{0:020}.json").write_bytes(b"\n".join(map(orjson.dumps, actions)))


@pytest.mark.parametrize(("is_current", "expected"), [(True, ["id", "odd name"]), (False, None)])
def test_a_models_table_gives_its_columns_while_the_query_is_the_same(project, is_current, expected):
    """After a change of the query the table's columns may no longer exist."""
    definition = project.models["raw.a"].definition if is_current else "another"
    columns = ("id", "odd name", "__ondatra_rowid")
    write_log(Path(table_path(project.settings, "raw.a")), columns, definition=definition)
    assert expected == current_columns_lookup(project)(ModelInput(model="raw.a"))


def test_a_delta_source_gives_its_columns(project: Project) -> None:
    write_log(project.root / "lake" / "crm" / "deals", ("id",), definition="theirs")
    lookup: Callable[[SourceInput | FileInput | ModelInput], object] = current_columns_lookup(project)
    assert ["id"] == lookup(SourceInput(source="crm", table="deals", location="lake/crm"))
    assert lookup(SourceInput(source="crm", table="none", location="lake/crm")) is None
    assert lookup(SourceInput(source="crm", table="deals", location="main.crm")) is None


def test_the_columns_of_files_and_of_models_that_never_ran_are_unknown(project: Project) -> None:
    assert current_columns_lookup(project)(FileInput(format="csv", path="x")) is None
    assert current_columns_lookup(project)(ModelInput(model="raw.a")) is None
