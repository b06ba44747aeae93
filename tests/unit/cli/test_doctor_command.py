"""The `ondatra doctor` command: one line per result, and an exit code for scripts."""

from pathlib import Path

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject

from ondatra_dagster.doctor.check_runner import CHECKS

QUICK = [check.name for check in CHECKS if not check.starts_spark]


def test_each_check_has_a_line_that_begins_with_its_result(shop: ShopProject, ondatra: CommandLine) -> None:
    result = ondatra("doctor", "--no-spark")
    lines = [line.split()[:2] for line in result.stdout.splitlines()]
    assert (0, "") == (result.exit_code, result.stderr)
    assert set(QUICK) == {name for _, name in lines}
    assert {"ok", "warning"} >= {level for level, _ in lines}
    assert ["ok", "variables"] in lines


def test_a_failed_check_gives_exit_code_one(
    shop: ShopProject, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop.root / ".env").unlink()
    monkeypatch.delenv("DEMO_API_KEY", raising=False)
    result = ondatra("doctor", "--no-spark", "--json")
    failed = {
        "check": "variables",
        "level": "failed",
        "what": "DEMO_API_KEY is not set, and lib/crm_push.star needs it",
        "remedy": "set it in .env or the environment",
    }
    assert (1, [failed]) == (result.exit_code, [line for line in result.json_lines if line["level"] == "failed"])


def test_outside_of_a_project_only_the_machine_is_checked(
    ondatra: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who has just installed the package has no project yet."""
    monkeypatch.chdir(tmp_path)
    result = ondatra("doctor", "--no-spark")
    assert 0 == result.exit_code
    assert "warning  settings   " in result.stdout
    assert [] == list(tmp_path.iterdir())
