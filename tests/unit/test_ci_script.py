"""The script of CI. It runs the test command of the README, and has its last line and its exit code."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAKE_MAKE = """#!/bin/sh
echo "$PWD: make $*"
echo "12 passed in 3.4s"
[ "$CODE" = 0 ] || echo "make: *** [Makefile:18: test] Error $CODE" >&2
exit "$CODE"
"""


@pytest.mark.parametrize("code", [0, 1, 2])
def test_ci_has_the_result_of_the_readmes_test_command(tmp_path: Path, code: int) -> None:
    """A pipe would have the exit code of its last program, which always succeeds."""
    make = tmp_path / "make"
    make.write_text(FAKE_MAKE)
    make.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.defpath}", "CODE": str(code)}
    completed = subprocess.run([ROOT / ".ci" / "run"], env=variables, cwd="/", capture_output=True, text=True)
    assert (code, "") == (completed.returncode, completed.stderr)
    assert [f"{ROOT}: make test", "12 passed in 3.4s"] == completed.stdout.splitlines()
    assert "\nmake test " in (ROOT / "README.md").read_text(encoding="utf-8")


def test_make_test_runs_all_tests() -> None:
    """Format, lint and types are tests too. A path or a mark on the command line would exclude them."""
    command, variables = ["make", "--dry-run", "test"], {"PATH": os.defpath}  # the test itself may run below a make
    completed = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=True)
    assert completed.stdout.startswith("sh setup.sh test && ")
    options = completed.stdout.partition("-m pytest ")[2].split()
    assert [] == [option for option in options if option.startswith(("tests", "-m", "-k", "--ignore", "--deselect"))]
    assert options
