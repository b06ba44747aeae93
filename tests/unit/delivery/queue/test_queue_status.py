"""The status of a queue file, read without a run."""

import contextlib
import functools
import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue import queue_database
from ondatra_dagster.delivery.queue.queue_database import Queue, open_queue
from ondatra_dagster.delivery.queue.queue_status import read_status_of_file
from ondatra_dagster.errors import BusyError, StateError
from ondatra_dagster.storage.sqlite_database import open_database


def test_a_file_without_tables_has_no_status(tmp_path: Path) -> None:
    """After a kill between creating the file and its tables, the file stays empty. Each plan of a run reads it."""
    path = tmp_path / "crm.sqlite"
    path.touch()
    assert read_status_of_file(path, now=1.0) is None
    with open_queue(path, shape=UnitKind.ROW):
        state = read_status_of_file(path, now=1.0)
    assert state is not None
    assert (0, -1) == (state.depth, state.watermark)


def test_the_error_about_a_damaged_queue_says_what_to_do(tmp_path: Path) -> None:
    """SQLite's own message doesn't name the file."""
    path = tmp_path / "crm.sqlite"
    path.write_text("not a database" * 100)
    with pytest.raises(StateError, match=r"crm\.sqlite is damaged \(file is not a database\); move it"):
        read_status_of_file(path, now=1.0)


def test_a_queue_that_another_program_has_open_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run would deliver the rows, but a backup tool delivers nothing."""
    path = tmp_path / "crm.sqlite"
    with open_queue(path, shape=UnitKind.ROW):
        pass
    monkeypatch.setattr(queue_database, "open_database", functools.partial(open_database, wait_seconds=0))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
        tool.execute("pragma locking_mode = exclusive")
        tool.execute("begin exclusive")
        with pytest.raises(StateError, match="written by another process") as failure, _opened(path):
            pass
    assert not isinstance(failure.value, BusyError)


def _opened(path: Path) -> AbstractContextManager[Queue]:
    return open_queue(path, shape=UnitKind.ROW)
