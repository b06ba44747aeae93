"""The cache is a file beside the tables, which may be lost, old or just being made."""

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


def test_what_is_remembered_is_read_by_another(path: Path) -> None:
    """The next run is another process."""
    UnchangedRunCache(path).store_run("mart.a", an_entry())
    UnchangedRunCache(path).store_run("mart.b", an_entry(version="t@2"))
    assert {"mart.a": an_entry(), "mart.b": an_entry(version="t@2")} == UnchangedRunCache(path).read_runs()


def test_the_newest_run_counts(path: Path) -> None:
    """An older one says nothing of the inputs as they are."""
    UnchangedRunCache(path).store_run("mart.a", an_entry())
    UnchangedRunCache(path).store_run("mart.a", an_entry(version="t@2"))
    assert {"mart.a": an_entry(version="t@2")} == UnchangedRunCache(path).read_runs()


def test_a_cache_that_is_not_there_is_empty_and_stays_so(path: Path) -> None:
    """Planning writes nothing."""
    assert {} == UnchangedRunCache(path).read_runs()
    assert not path.exists()


def test_a_cache_that_is_just_being_made_is_empty(path: Path) -> None:
    """Its file is there before its table."""
    path.parent.mkdir()
    path.touch()
    assert {} == UnchangedRunCache(path).read_runs()
