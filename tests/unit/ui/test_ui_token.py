"""The token of the UI. It outlives the process, and only its owner can read it."""

from pathlib import Path

import pytest

from ondatra_dagster.ui.access_control import read_or_create_token


def test_a_token_remains_the_same(tmp_path: Path) -> None:
    """Otherwise a browser would need the token again after each start."""
    state = tmp_path / ".ondatra"
    token = read_or_create_token(state)
    assert token == read_or_create_token(state)
    assert 43 == len(token)
    assert (0o600, 0o700) == ((state / "ui-token").stat().st_mode & 0o777, state.stat().st_mode & 0o777)
    assert token != read_or_create_token(tmp_path / "another")


@pytest.mark.parametrize("text", ["", "short", "a" * 42 + "\n", "a" * 44, "é" * 43])
def test_a_damaged_token_is_replaced(tmp_path: Path, text: str) -> None:
    """A process may have been killed while it wrote the token. An empty token would give everyone access."""
    (tmp_path / "ui-token").write_text(text, encoding="utf-8")
    (tmp_path / "ui-token").chmod(0o600)
    token = read_or_create_token(tmp_path)
    assert text != token
    assert token == read_or_create_token(tmp_path)


def test_a_token_that_other_users_may_have_read_is_replaced(tmp_path: Path) -> None:
    before = read_or_create_token(tmp_path)
    (tmp_path / "ui-token").chmod(0o644)
    after = read_or_create_token(tmp_path)
    assert before != after
    assert 0o600 == (tmp_path / "ui-token").stat().st_mode & 0o777
