"""A version that stays the same over a change would hide that change for ever."""

import os
from pathlib import Path

import pytest

from ondatra_dagster.deltalog.log_reader import TableState
from ondatra_dagster.planning.input_versions import (
    INPUT_NOT_FOUND,
    MODEL_NOT_BUILT,
    UNVERSIONED,
    read_input_versions,
    table_state_lookup,
)
from ondatra_dagster.project.model import FileInput, Input, ModelInput, SourceInput
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings, read_settings


def a_table(*, table_id: str = "t", version: int = 3) -> TableState:
    return TableState(
        table_id=table_id, version=version, log_version=9, commit_metadata=None, columns=(), properties={}, metrics={}
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings(tmp_path, {})


def version(read: Input, settings: Settings, **tables: TableState) -> str:
    return read_input_versions((read,), settings, lambda model: tables.get(model.replace(".", "_")))[read.name]


def a_file(settings: Settings, path: str, text: str) -> Path:
    file = settings.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_models_version_is_its_tables(settings: Settings) -> None:
    """The newest commit of any kind doesn't count: OPTIMIZE changes no rows."""
    assert "t@3" == version(ModelInput(model="raw.x"), settings, raw_x=a_table())


def test_a_rebuilt_table_has_another_version(settings: Settings) -> None:
    """It starts at 0 again, and may come to the same number."""
    before = version(ModelInput(model="raw.x"), settings, raw_x=a_table(table_id="old"))
    assert before != version(ModelInput(model="raw.x"), settings, raw_x=a_table(table_id="new"))


def test_a_model_without_a_table_is_missing(settings: Settings) -> None:
    """The plan has to say so, not Spark."""
    assert MODEL_NOT_BUILT == version(ModelInput(model="raw.x"), settings)


def test_a_file_that_is_touched_has_another_version(settings: Settings) -> None:
    """Size alone doesn't tell a corrected letter."""
    read = FileInput(format="csv", path="data/x.csv")
    file = a_file(settings, "data/x.csv", "a")
    before = version(read, settings)
    assert before == version(read, settings)
    os.utime(file, ns=(1, 1))
    assert before != version(read, settings)


@pytest.mark.parametrize("path", ["data/*.csv", "data"])
def test_a_further_file_changes_the_version_of_a_pattern_and_of_a_folder(settings: Settings, path: str) -> None:
    """New files are how most raw data arrives."""
    a_file(settings, "data/1.csv", "a")
    before = version(FileInput(format="csv", path=path), settings)
    a_file(settings, "data/2.csv", "a")
    assert before != version(FileInput(format="csv", path=path), settings)


def test_files_that_spark_does_not_read_do_not_count(settings: Settings) -> None:
    """Markers such as _SUCCESS come and go."""
    a_file(settings, "data/1.csv", "a")
    before = version(FileInput(format="csv", path="data"), settings)
    a_file(settings, "data/_SUCCESS", "")
    a_file(settings, "data/.tmp/2.csv", "a")
    assert before == version(FileInput(format="csv", path="data"), settings)


@pytest.mark.parametrize(
    "read",
    [
        FileInput(format="csv", path="hdfs://host/x.csv"),
        SourceInput(source="crm", table="x", location="catalog.schema"),
        SourceInput(source="crm", table="x", location="gs://bucket/tables"),
    ],
)
def test_what_cannot_be_looked_at_counts_as_changed(settings: Settings, read: Input) -> None:
    """Better computed once too often than never again."""
    assert UNVERSIONED == version(read, settings)


def test_files_that_only_braces_name_have_a_version(settings: Settings) -> None:
    """Python's own patterns don't know them."""
    read = FileInput(format="csv", path="data/{a,b}.csv")
    a_file(settings, "data/a.csv", "a")
    before = version(read, settings)
    a_file(settings, "data/b.csv", "a")
    assert before != version(read, settings)


def test_a_file_of_the_same_size_in_the_same_second_is_another(settings: Settings) -> None:
    read = FileInput(format="csv", path="data/x.csv")
    file = a_file(settings, "data/x.csv", "a")
    os.utime(file, ns=(10**18, 10**18))
    before = version(read, settings)
    os.utime(file, ns=(10**18, 10**18 + 1))
    assert before != version(read, settings)


def test_a_project_in_a_folder_that_looks_like_a_pattern_sees_its_files_change(tmp_path: Path) -> None:
    root = tmp_path / "my [shop]"
    root.mkdir()
    settings = read_settings(root, {})
    file = a_file(settings, "x.csv", "a")
    before = version(FileInput(format="csv", path="x.csv"), settings)
    file.write_text("ab")
    assert before != version(FileInput(format="csv", path="x.csv"), settings)


def test_a_moved_project_has_the_same_files(tmp_path: Path) -> None:
    """The path that counts is the one within the project."""
    versions = set()
    for name in ("one", "two"):
        settings = read_settings(tmp_path / name, {})
        os.utime(a_file(settings, "x.csv", "a"), ns=(1, 1))
        versions.add(version(FileInput(format="csv", path="x.csv"), settings))
    assert 1 == len(versions)


def test_what_is_not_there_says_so(settings: Settings) -> None:
    """No version: an empty folder's would be the same as a lost one's."""
    assert INPUT_NOT_FOUND == version(FileInput(format="csv", path="x.csv"), settings)
    assert INPUT_NOT_FOUND == version(SourceInput(source="crm", table="x", location="data/tables"), settings)


def test_a_folder_of_plain_files_has_no_version(settings: Settings) -> None:
    """Who writes there promises nothing about when it is whole."""
    a_file(settings, "lake/x/part.parquet", "")
    assert UNVERSIONED == version(SourceInput(source="crm", table="x", location="lake/"), settings)


def test_a_delta_tables_version_is_its_own_wherever_it_is(settings: Settings) -> None:
    metadata = '{"metaData": {"id": "theirs", "schemaString": "{\\"fields\\": []}", "configuration": {}}}'
    a_file(settings, f"lake/Odd Name/_delta_log/{0:020}.json", metadata)
    assert "theirs@0" == version(SourceInput(source="crm", table="Odd Name", location="lake/"), settings)


def test_each_log_is_read_once_for_a_plan(settings: Settings) -> None:
    """A plan is made from one state of the world."""
    tables = table_state_lookup(settings)
    assert tables("raw.x") is None
    (settings.root / ".ondatra" / "warehouse" / "raw" / "x" / "_delta_log").mkdir(parents=True)
    assert tables("raw.x") is None
