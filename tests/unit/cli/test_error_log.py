"""The trace of an error that nobody foresaw: a trace on the screen helps nobody who didn't write the code."""

import contextlib
import sqlite3
import stat
import tempfile
from pathlib import Path

import pytest
from support.shop import Shop
from support.terminal import Terminal

from ondatra_dagster.orchestration.traces import keep_trace


def test_it_is_kept_in_the_project_and_its_user_gets_a_sentence(
    shop: Shop, ondatra: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for who stands in a folder below."""
    ondatra.run(shop)
    with contextlib.closing(sqlite3.connect(shop.root / ".ondatra" / "history.sqlite")) as history:
        history.execute("update sync_runs set counts = 'damaged'")
        history.commit()
    monkeypatch.chdir(shop.root / "models")
    said = ondatra("history")
    log = shop.root / ".ondatra" / "logs" / "errors.log"
    assert (1, "", 1) == (said.code, said.out, len(said.err.splitlines()))
    assert said.err.rstrip().endswith(f"; the whole trace is in {log}")
    assert log.read_text().startswith("Traceback")


def test_without_a_project_it_goes_to_a_file_that_only_its_owner_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may tell of rows."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = keep_trace(ValueError("unforeseen"), None)
    (left,) = tmp_path.iterdir()
    assert f"ValueError: unforeseen; the whole trace is in {left}" == said
    assert ("ValueError: unforeseen\n", 0o600) == (left.read_text(), stat.S_IMODE(left.stat().st_mode))
