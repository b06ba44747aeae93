"""The format, lint and types of all code. They are tests, so that `make test` and CI check them too."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECKS = {"format": ("ruff", "format", "--check"), "lint": ("ruff", "check"), "types": ("mypy",)}
FAULTS = {"format": "count  = 1\n", "lint": "import os\n", "types": 'count: int = "one"\n'}


def run_check(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one of the checks over all code below a folder, with the settings of its pyproject.toml."""
    command = [sys.executable, "-m", *CHECKS[name]]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", CHECKS)
def test_the_code_passes(name: str) -> None:
    """`make check` reports a fault sooner than CI does."""
    completed = run_check(name, ROOT)
    assert 0 == completed.returncode, completed.stdout + completed.stderr


@pytest.mark.parametrize("name", CHECKS)
def test_a_fault_fails_its_check_and_no_other(name: str, tmp_path: Path) -> None:
    """A check that is configured to read no file would always pass."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in ("ondatra_dagster", "ondatra_project"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    user_code = tmp_path / "tests" / "support" / "projects" / "typed_user_code.py"
    user_code.parent.mkdir(parents=True)
    user_code.touch()
    (tmp_path / "ondatra_dagster" / "fault.py").write_text(FAULTS[name])
    completed_by_name = {check: run_check(check, tmp_path) for check in CHECKS}
    assert [name] == [check for check in CHECKS if completed_by_name[check].returncode]
    assert "fault.py" in completed_by_name[name].stdout
