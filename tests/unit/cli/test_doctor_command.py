"""`ondatra doctor`: a line a result, and an exit code for scripts."""

from pathlib import Path

import pytest
from support.shop import Shop
from support.terminal import Terminal

from ondatra_dagster.doctor.checks import CHECKS

QUICK = [check.name for check in CHECKS if not check.starts_spark]


def test_each_check_has_a_line_that_begins_with_how_it_went(shop: Shop, ondatra: Terminal) -> None:
    said = ondatra("doctor", "--no-spark")
    lines = [line.split()[:2] for line in said.out.splitlines()]
    assert (0, "") == (said.code, said.err)
    assert set(QUICK) == {name for _, name in lines}
    assert {"ok", "warning"} >= {level for level, _ in lines}
    assert ["ok", "variables"] in lines


def test_a_check_that_fails_is_exit_code_one(
    shop: Shop, ondatra: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop.root / ".env").unlink()
    monkeypatch.delenv("DEMO_API_KEY", raising=False)
    said = ondatra("doctor", "--no-spark", "--json")
    failed = {
        "check": "variables",
        "level": "failed",
        "what": "DEMO_API_KEY is not set, and lib/crm_push.star needs it",
        "remedy": "set it in .env or the environment",
    }
    assert (1, [failed]) == (said.code, [line for line in said.objects if line["level"] == "failed"])


def test_outside_of_a_project_the_machine_is_checked(
    ondatra: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has just installed the package has no project yet."""
    monkeypatch.chdir(tmp_path)
    said = ondatra("doctor", "--no-spark")
    assert 0 == said.code
    assert "warning  settings   " in said.out
    assert [] == list(tmp_path.iterdir())
