"""The versions of inputs. A version that stays the same after a change would hide that change forever."""

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


def test_a_models_version_is_the_version_of_its_table(settings: Settings) -> None:
    """Commits that don't change rows, such as OPTIMIZE, don't count."""
    assert "t@3" == version(ModelInput(model="raw.x"), settings, raw_x=a_table())


def test_a_rebuilt_table_has_another_version(settings: Settings) -> None:
    """Its numbers start at 0 again, and may reach the same number."""
    before = version(ModelInput(model="raw.x"), settings, raw_x=a_table(table_id="old"))
    assert before != version(ModelInput(model="raw.x"), settings, raw_x=a_table(table_id="new"))


def test_a_model_without_a_table_is_missing(settings: Settings) -> None:
    """The plan has to report it, before Spark does."""
    assert MODEL_NOT_BUILT == version(ModelInput(model="raw.x"), settings)


def test_a_file_that_is_touched_has_another_version(settings: Settings) -> None:
    """The size alone doesn't show a corrected character."""
    read = FileInput(format="csv", path="data/x.csv")
    file = a_file(settings, "data/x.csv", "a")
    before = version(read, settings)
    assert before == version(read, settings)
    os.utime(file, ns=(1, 1))
    assert before != version(read, settings)


@pytest.mark.parametrize("path", ["data/*.csv", "data"])
def test_a_new_file_changes_the_version_of_a_pattern_or_folder(settings: Settings, path: str) -> None:
    """Most raw data arrives as new files."""
    a_file(settings, "data/1.csv", "a")
    before = version(FileInput(format="csv", path=path), settings)
    a_file(settings, "data/2.csv", "a")
    assert before != version(FileInput(format="csv", path=path), settings)


def test_files_that_spark_does_not_read_do_not_count(settings: Settings) -> None:
    """Markers such as _SUCCESS appear and disappear."""
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
def test_an_input_that_cannot_be_read_counts_as_changed(settings: Settings, read: Input) -> None:
    """It is better to compute a table once too often than never again."""
    assert UNVERSIONED == version(read, settings)


def test_files_that_match_only_with_braces_have_a_version(settings: Settings) -> None:
    """Python's own patterns have no braces."""
    read = FileInput(format="csv", path="data/{a,b}.csv")
    a_file(settings, "data/a.csv", "a")
    before = version(read, settings)
    a_file(settings, "data/b.csv", "a")
    assert before != version(read, settings)


def test_a_change_within_the_same_second_gives_another_version(settings: Settings) -> None:
    read = FileInput(format="csv", path="data/x.csv")
    file = a_file(settings, "data/x.csv", "a")
    os.utime(file, ns=(10**18, 10**18))
    before = version(read, settings)
    os.utime(file, ns=(10**18, 10**18 + 1))
    assert before != version(read, settings)


def test_a_project_folder_that_looks_like_a_pattern_has_file_versions(tmp_path: Path) -> None:
    root = tmp_path / "my [shop]"
    root.mkdir()
    settings = read_settings(root, {})
    file = a_file(settings, "x.csv", "a")
    before = version(FileInput(format="csv", path="x.csv"), settings)
    file.write_text("ab")
    assert before != version(FileInput(format="csv", path="x.csv"), settings)


def test_a_moved_project_has_the_same_versions(tmp_path: Path) -> None:
    """The path inside the project counts."""
    versions = set()
    for name in ("one", "two"):
        settings = read_settings(tmp_path / name, {})
        os.utime(a_file(settings, "x.csv", "a"), ns=(1, 1))
        versions.add(version(FileInput(format="csv", path="x.csv"), settings))
    assert 1 == len(versions)


def test_a_missing_input_is_reported_as_missing(settings: Settings) -> None:
    """It has no version: an empty folder would have the same version as a lost one."""
    assert INPUT_NOT_FOUND == version(FileInput(format="csv", path="x.csv"), settings)
    assert INPUT_NOT_FOUND == version(SourceInput(source="crm", table="x", location="data/tables"), settings)


def test_a_folder_of_plain_files_has_no_version(settings: Settings) -> None:
    """Another program writes there, and doesn't say when a file is complete."""
    a_file(settings, "lake/x/part.parquet", "")
    assert UNVERSIONED == version(SourceInput(source="crm", table="x", location="lake/"), settings)


def test_a_delta_table_at_any_path_has_its_own_version(settings: Settings) -> None:
    metadata = '{"metaData": {"id": "theirs", "schemaString": "{\\"fields\\": []}", "configuration": {}}}'
    a_file(settings, f"lake/Odd Name/_delta_log/{0:020}.json", metadata)
    assert "theirs@0" == version(SourceInput(source="crm", table="Odd Name", location="lake/"), settings)


def test_each_log_is_read_once_per_plan(settings: Settings) -> None:
    """A plan is made from one consistent state."""
    tables = table_state_lookup(settings)
    assert tables("raw.x") is None
    (settings.root / ".ondatra" / "warehouse" / "raw" / "x" / "_delta_log").mkdir(parents=True)
    assert tables("raw.x") is None
