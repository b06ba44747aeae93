"""The seeds of random tests: each commit explores something new, and a failure says how to repeat it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.random_histories import random_seeds

TESTS = Path(__file__).parent
RANDOM_TESTS = """
from hypothesis import given, settings, strategies as st
from support.random_histories.random_seeds import new_seeds

def test_that_fails_at_the_third_seed():
    for number, seed in enumerate(new_seeds(5)):
        assert number < 2, seed

@settings(database=None)
@given(st.integers(0, 2**64))
def test_of_hypothesis(number):
    print("drew", number)
    assert number < 1000

def test_without_chance():
    assert False
"""


def run_tests(folder: Path, *arguments: str, **variables: str) -> str:
    """Run the random tests above, which all fail, and return pytest's output."""
    (folder / "test_random.py").write_text(RANDOM_TESTS)
    outer = (random_seeds.SEED_VARIABLE, "PYTEST_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    paths = {"PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", *arguments]
    child = subprocess.run(
        [*command, "test_random.py"],
        cwd=folder,
        env=inherited | paths | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == pytest.ExitCode.TESTS_FAILED, child.stdout + child.stderr
    return child.stdout


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    child = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return child.stdout.strip()


def test_each_commit_has_a_different_seed(tmp_path: Path) -> None:
    """A failed run fails again when it is repeated, and the next commit tries something else."""
    assert random_seeds.find_commit(tmp_path) is None
    git(tmp_path, "init")
    assert random_seeds.find_commit(tmp_path) is None
    commits = []
    for subject in ("one", "two"):
        git(tmp_path, "commit", "--allow-empty", "-m", subject)
        commits.append(random_seeds.find_commit(tmp_path))
        assert git(tmp_path, "rev-parse", "HEAD").startswith(str(commits[-1]))
    assert 2 == len(set(commits))


def test_without_git_the_seed_is_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source archive has no commit, and may be tested where git isn't installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert random_seeds.find_commit(TESTS) is None


def test_a_failure_shows_the_command_that_repeats_it(tmp_path: Path) -> None:
    """The command begins with the seed that failed, in this process or in a worker of xdist."""
    for workers in ((), ("-n", "2")):
        printed = run_tests(tmp_path, *workers, ONDATRA_TEST_SEED="abc", ONDATRA_TEST_HISTORIES="7")
        assert "random seed: abc" in printed
        replay = "ONDATRA_TEST_HISTORIES=7 ONDATRA_TEST_SEED={} .venv/bin/python -m pytest -m '' '{}'"
        assert replay.format("abc.2", "test_random.py::test_that_fails_at_the_third_seed") in printed
        assert replay.format("abc", "test_random.py::test_of_hypothesis") in printed
        assert "test_random.py::test_without_chance'" not in printed
    again = run_tests(tmp_path, "-k", "third", ONDATRA_TEST_SEED="abc.2")
    assert "abc.2.2" in again  # the seed that failed is the first of the repetition


def test_hypothesis_draws_from_the_same_seed(tmp_path: Path) -> None:
    """Its examples are the same for one seed, and differ for another."""
    first, again, other = (
        [line for line in printed.splitlines() if line.startswith("drew ")]
        for printed in (
            run_tests(tmp_path, "-s", "-k", "hypothesis", ONDATRA_TEST_SEED=seed) for seed in ("one", "one", "two")
        )
    )
    assert first == again != other
