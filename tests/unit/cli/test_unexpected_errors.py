"""The traceback of an unexpected error. It goes to a file, because on the screen it helps only ondatra's developers."""

import contextlib
import errno
import re
import sqlite3
import stat
import tempfile
from pathlib import Path

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject

from ondatra_dagster.app.error_traces import store_trace
from ondatra_dagster.planning.unchanged_run_cache import UnchangedRun, UnchangedRunCache

UNCHANGED = UnchangedRun(definition="d", inputs={}, table_version="t@1", checks="", warned={}, at=1.0)


def test_the_traceback_is_stored_in_the_project_and_the_user_gets_a_sentence(
    shop: ShopProject, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is also true in a subfolder of the project."""
    ondatra.run_project(shop)
    cache = shop.root / ".ondatra" / "cache.sqlite"
    UnchangedRunCache(cache).store_run("raw.contacts", UNCHANGED)
    with contextlib.closing(sqlite3.connect(cache)) as connection, connection:
        connection.execute("update unchanged set inputs = 'damaged'")
    monkeypatch.chdir(shop.root / "models")
    result = ondatra("status")
    log = shop.root / ".ondatra" / "logs" / "errors.log"
    assert (1, "", 1) == (result.exit_code, result.stdout, len(result.stderr.splitlines()))
    assert result.stderr.rstrip().endswith(f"; the whole trace is in {log}")
    assert log.read_text().startswith("Traceback")


def test_without_a_project_the_traceback_goes_to_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may contain rows."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    message = store_trace(ValueError("unforeseen"), None)
    (trace_file,) = tmp_path.iterdir()
    assert f"ValueError: unforeseen; the whole trace is in {trace_file}" == message
    assert ("ValueError: unforeseen\n", 0o600) == (trace_file.read_text(), stat.S_IMODE(trace_file.stat().st_mode))


def test_on_a_full_disk_the_traceback_goes_to_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors on a full disk are the ones that the user wants to know."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    state = tmp_path / ".ondatra"
    (state / "logs").mkdir(parents=True)
    (state / "logs" / "errors.log").symlink_to("/dev/full")
    message = store_trace(ValueError("unforeseen"), state)
    (trace_file,) = tmp_path.glob("ondatra-*.log")
    assert f"ValueError: unforeseen; the whole trace is in {trace_file}" == message
    assert trace_file.read_text().startswith("ValueError: unforeseen")


def test_without_any_space_only_the_sentence_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "errors.log").symlink_to("/dev/full")
    message = store_trace(ValueError("unforeseen"), tmp_path)
    assert re.fullmatch(r"ValueError: unforeseen; its trace couldn't be written \(.*No such file.*\)", message)


def test_the_error_of_a_full_disk_has_no_traceback(tmp_path: Path) -> None:
    """This is true wherever the error was raised."""
    message = store_trace(OSError(errno.ENOSPC, "No space left on device"), tmp_path)
    assert re.fullmatch(rf"{tmp_path} can't be written: the disk at /\S* is full; make room there.*", message)
    assert [] == list(tmp_path.iterdir())
