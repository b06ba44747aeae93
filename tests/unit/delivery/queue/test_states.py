"""A queue as those see it who only look."""

from pathlib import Path

import pytest

from ondatra_dagster.delivery.queue.states import queue_state
from ondatra_dagster.delivery.queue.tables import open_queue
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.errors import StateError


def test_a_file_without_tables_is_no_queue_yet(tmp_path: Path) -> None:
    """A kill between making the file and its tables leaves it so, and every plan looks at it."""
    path = tmp_path / "crm.sqlite"
    path.touch()
    assert queue_state(path, now=1.0) is None
    with open_queue(path, shape=Shape.ROW):
        state = queue_state(path, now=1.0)
    assert state is not None
    assert (0, -1) == (state.depth, state.watermark)


def test_a_file_that_is_no_queue_says_what_to_do_with_it(tmp_path: Path) -> None:
    """SQLite's own words don't name the file."""
    path = tmp_path / "crm.sqlite"
    path.write_text("not a database" * 100)
    with pytest.raises(StateError, match=r"crm\.sqlite is damaged \(file is not a database\); move it"):
        queue_state(path, now=1.0)
