"""Runs killed while they write tables: each table has a complete version, and the next run completes the work.

This holds even if the dead run's JVM lives on, which may still commit. Each round starts a JVM: `make soak`.
"""

import collections
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
from support.processes.killable_command import KillableCommand, wait_for_exit
from support.random_histories.random_seeds import new_random

from ondatra_dagster.app.workspace import load_workspace
from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.planning.find_table_and_columns import find_named_table, table_path
from ondatra_dagster.warehouse.read_rows_of_named_table import read_table_rows

pytestmark = pytest.mark.soak

KILLS = 30
ROWS = 300
MODELS = {
    "table": "",
    "append": "",
    "merge": "-- @unique_key: id\n",
    "tracked": "-- @group_key: part\n",
    "scd2": "-- @unique_key: id\n",
    "partition": "-- @partitioned_by: part\n",
}
QUERY = "SELECT CAST(id AS INT) AS id, CAST(part AS INT) AS part, CAST(step AS INT) AS step FROM raw.rows\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project with a model of each kind, all over the same rows."""
    root = tmp_path / "a project"
    for folder in ("data", "models/raw", "models/m", "lib"):
        (root / folder).mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.ondatra]\n")
    raw = "SELECT * FROM csv.`data/rows.csv` WITH ('header' = 'true')\n"
    (root / "models" / "raw" / "rows.sql").write_text(raw)
    for kind, key in MODELS.items():
        (root / "models" / "m" / f"{kind}_.sql").write_text(f"-- @kind: {kind}\n{key}{QUERY}")
    return root


def write_step(root: Path, step: int) -> None:
    """Write rows that all differ from those of any other step."""
    rows = "".join(f"{number},{number % 7},{step}\n" for number in range(ROWS))
    (root / "data" / "rows.csv").write_text(f"id,part,step\n{rows}")


def files_of(root: Path) -> int:
    """Return how many files were written to the warehouse, which shows a run's progress from outside."""
    return sum(1 for path in (root / ".ondatra" / "warehouse").rglob("*") if path.is_file())


def written(root: Path, count: int) -> Callable[[KillableCommand], bool]:
    before = files_of(root)
    return lambda _run: files_of(root) >= before + count


def rows(root: Path, kind: str) -> Iterator[dict[str, int]]:
    project = load_workspace(root).project
    for text in read_table_rows(project.settings, find_named_table(project, f"m.{kind}_"), limit=None).json_objects():
        yield orjson.loads(text)


def steps_of(root: Path, kind: str) -> collections.Counter[int]:
    """Return how many rows of each step a table has now; for scd2, only its current rows."""
    return collections.Counter(row["step"] for row in rows(root, kind) if row.get("is_current", True))


def check_whole(root: Path) -> None:
    """Check that no table is between two versions.

    All of its rows are of one step, or those of an append are of complete steps.
    """
    settings = load_workspace(root).settings
    for kind in MODELS:
        if read_table_state(table_path(settings, f"m.{kind}_")) is None:
            continue
        counts = steps_of(root, kind)
        assert {ROWS} >= set(counts.values()), f"{kind}: {counts}"
        assert kind == "append" or len(counts) <= 1, f"{kind}: {counts}"


def check_versions(root: Path) -> None:
    """Check that each key has one current version, and each closed one ends where its successor begins."""
    by_id = collections.defaultdict(list)
    for row in rows(root, "scd2"):
        by_id[row["id"]].append((row["valid_from_snapshot"], row["valid_to_snapshot"], row["is_current"]))
    for versions in by_id.values():
        versions.sort()
        ends = [version[1] for version in versions]
        assert [*(version[0] for version in versions[1:]), None] == ends
        assert [False] * (len(versions) - 1) + [True] == [version[2] for version in versions]


def test_a_table_is_complete_whenever_its_run_is_killed(root: Path) -> None:
    """A closed laptop, a lack of memory or a lost spot instance must not leave half of a table."""
    chance = new_random("writes")
    write_step(root, 0)
    before = files_of(root)
    assert 0 == KillableCommand(root).wait()
    in_a_run = files_of(root) - before
    for step in range(1, KILLS + 1):
        write_step(root, step)
        run = KillableCommand(root)
        run.wait_until(written(root, chance.randint(1, in_a_run * 2 // 3)))
        jvm = run.jvm_pid
        run.kill()
        if jvm and step % 2:  # otherwise the next run begins while the JVM lives, which may commit
            wait_for_exit(jvm)
            check_whole(root)
        if step % 3 == 0:
            again = KillableCommand(root)
            assert 0 == again.wait(), f"step {step}: {again.output}"
            assert {kind: {step: ROWS} for kind in MODELS if kind != "append"} == {
                kind: dict(steps_of(root, kind)) for kind in MODELS if kind != "append"
            }
            assert ROWS == steps_of(root, "append")[step]
            check_whole(root)
            check_versions(root)
