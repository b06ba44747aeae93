"""Loading a project starts nothing, reaches nobody and writes nothing: Dagster does it all the time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.shop import lay_down

# runs in a process of its own, which says all that it did beside reading
WATCHED = """
import sys

did = []
# a module's compiled form is Python's own affair
WRITES = ("os.mkdir", "os.rename", "os.remove", "shutil", "socket.connect", "socket.bind", "subprocess.Popen",
          "os.exec", "os.posix_spawn", "os.system", "sqlite3.connect")

def watch(event, arguments):
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        if "__pycache__" not in str(arguments[0]):
            did.append(f"open {arguments[0]} {arguments[1]}")
    elif event.startswith(WRITES) and "__pycache__" not in str(arguments):
        did.append(f"{event} {arguments}")

import dagster  # what it does by itself isn't ours to judge
sys.addaudithook(watch)
from pathlib import Path
"""
LOAD = (
    "from ondatra_dagster.orchestration.definitions import build_definitions\n"
    "build_definitions(Path(sys.argv[1]))\n"
)
PLAN = (
    "from ondatra_dagster.orchestration.workspace import load_workspace\n"
    "load_workspace(Path(sys.argv[1])).plan()\n"
)


def told(script: str, root: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    return done.stdout.splitlines()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return lay_down(tmp_path / "my shop", url="http://127.0.0.1:9")


def test_loading_definitions_writes_nothing_and_reaches_nobody(root: Path) -> None:
    """No JVM, no network, no file."""
    before = sorted(root.rglob("*"))
    assert [] == told(f"{WATCHED}{LOAD}print(*did, sep=chr(10), end='')", root)
    assert before == sorted(root.rglob("*"))


def test_loading_definitions_leaves_spark_alone(root: Path) -> None:
    """Importing pyspark takes longer than all the rest."""
    script = f"{WATCHED}{LOAD}print(*sorted({{'pyspark', 'py4j', 'delta'}} & set(sys.modules)))"
    assert [""] == told(script, root)


def test_planning_needs_neither_dagster_nor_spark(root: Path) -> None:
    """A run with nothing to do has to end in a second."""
    heavy = "{'pyspark', 'py4j', 'delta', 'dagster', 'httpx_ws', 'pandas'}"
    script = f"import sys\nfrom pathlib import Path\n{PLAN}print(*sorted({heavy} & set(sys.modules)))"
    assert [""] == told(script, root)


def test_planning_writes_nothing(root: Path) -> None:
    """`status` and a sensor plan, too."""
    before = sorted(root.rglob("*"))
    told(f"import sys\nfrom pathlib import Path\n{PLAN}", root)
    assert before == sorted(root.rglob("*"))
