"""The cache of unchanged runs: a file next to the tables, which may be missing, old or unfinished."""

from pathlib import Path

import pytest

from ondatra_dagster.planning.unchanged_run_cache import UnchangedRun, UnchangedRunCache


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".ondatra" / "cache.sqlite"


def an_entry(*, version: str = "t@1") -> UnchangedRun:
    return UnchangedRun(
        definition="d", inputs={"raw.x": version}, table_version="me@4", at=1.5, checks="c", warned={"warning_a": 2}
    )


def test_a_stored_run_is_read_by_another_process(path: Path) -> None:
    """The next run is another process."""
    UnchangedRunCache(path).store_run("mart.a", an_entry())
    UnchangedRunCache(path).store_run("mart.b", an_entry(version="t@2"))
    assert {"mart.a": an_entry(), "mart.b": an_entry(version="t@2")} == UnchangedRunCache(path).read_runs()


def test_the_newest_run_counts(path: Path) -> None:
    """An older run doesn't show the current inputs."""
    UnchangedRunCache(path).store_run("mart.a", an_entry())
    UnchangedRunCache(path).store_run("mart.a", an_entry(version="t@2"))
    assert {"mart.a": an_entry(version="t@2")} == UnchangedRunCache(path).read_runs()


def test_a_missing_cache_is_empty_and_is_not_created(path: Path) -> None:
    """Planning writes nothing."""
    assert {} == UnchangedRunCache(path).read_runs()
    assert not path.exists()


def test_a_cache_without_its_table_is_empty(path: Path) -> None:
    """Another process has created the file, but not yet its table."""
    path.parent.mkdir()
    path.touch()
    assert {} == UnchangedRunCache(path).read_runs()
