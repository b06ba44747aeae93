"""The seeds of random tests: new ones for each commit, or those that follow from ONDATRA_TEST_SEED.

Threads run in any order: the failure of a test with several threads may need more than one replay.
A test draws its seeds from `new_seeds`, or one generator from `new_random`. Values that only have to look random
have fixed seeds, and don't come from here.
"""

import functools
import hashlib
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

SEED_VARIABLE = "ONDATRA_TEST_SEED"
DEFAULT_SEED = "1"  # a source archive has no commit
COMMIT_COMMAND = ("git", "-c", "safe.directory=*", "rev-parse", "--verify", "--short=12", "HEAD")

_drawn_seeds: list[str] = []  # of the current test, in order


@functools.cache
def run_seed() -> str:
    """Return this run's seed: the variable's value, else the commit's hash. It is the same in each worker."""
    return os.environ.get(SEED_VARIABLE) or find_commit(Path(__file__).parent) or DEFAULT_SEED


def find_commit(folder: Path) -> str | None:
    """Return the short hash of the folder's commit, or None where there is no git or no commit."""
    try:
        completed = subprocess.run(COMMIT_COMMAND, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return completed.stdout.strip() or None


def new_seeds(count: int) -> Iterator[str]:
    """Yield this run's seeds, the run's own first. Any of them can be the value of ONDATRA_TEST_SEED."""
    for number in range(count):
        seed = f"{run_seed()}.{number}" if number else run_seed()
        _drawn_seeds.append(seed)
        yield seed


def new_random(*name: object) -> random.Random:
    """Return a generator for this run; each name gives another one."""
    (seed,) = new_seeds(1)
    return random.Random(f"{seed} {' '.join(map(str, name))}")


def seed_to_int(seed: str) -> int:
    """Return the seed as the 32 bits that hypothesis takes."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4])


def clear_drawn_seeds() -> None:
    """Clear the drawn seeds before a test."""
    _drawn_seeds.clear()


def replay_command(test: str, *, uses_hypothesis: bool = False) -> str | None:
    """Return the command that runs the test with the seed it drew last; None if it drew none."""
    if not _drawn_seeds and not uses_hypothesis:
        return None
    values = {name: value for name, value in os.environ.items() if name.startswith("ONDATRA_TEST_")}
    values[SEED_VARIABLE] = _drawn_seeds[-1] if _drawn_seeds else run_seed()
    variables = " ".join(f"{name}={value}" for name, value in sorted(values.items()))
    return f"{variables} .venv/bin/python -m pytest -m '' '{test}'"
