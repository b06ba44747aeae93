"""A check that loading a project starts nothing, connects to nothing and writes nothing: Dagster loads it often."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.projects.shop_project import PlainTable, write_shop_files

from ondatra_dagster.app.workspace import Workspace, load_workspace
from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.planning.input_versions import read_input_versions

# runs in its own process, which prints all that it did except reading
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
LOAD = "from ondatra_dagster import build_definitions\nbuild_definitions(Path(sys.argv[1]))\n"
PLAN = "from ondatra_dagster.app.workspace import load_workspace\nload_workspace(Path(sys.argv[1])).plan()\n"

VALIDATE = "import os\nfrom ondatra_dagster.cli.main import run_verb\nos.chdir(sys.argv[1])\nrun_verb(['validate'])\n"
CHECKED = "-- @kind: merge\n-- @unique_key: id\n-- @constraint: email LIKE '%@%'\n-- @audit: id IS NOT NULL\n"
MANY = 500  # the number of models in the promise


def told(script: str, root: Path) -> list[str]:
    completed = subprocess.run(
        [sys.executable, "-c", script, str(root)],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    return completed.stdout.splitlines()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write a shop that has its own source, and a model with checks."""
    files = {
        "pyproject.toml": '[tool.ondatra.sources]\napp = "data/app"\n',
        "models/mart/checked.sql": f"{CHECKED}SELECT id, email FROM raw.contacts JOIN app.export USING (id)",
    }
    return write_shop_files(tmp_path / "my shop", url="http://127.0.0.1:9", files=files)


def test_loading_definitions_writes_nothing_and_opens_no_connection(root: Path) -> None:
    """Loading starts no JVM, opens no connection and writes no file."""
    before = sorted(root.rglob("*"))
    assert [] == told(f"{WATCHED}{LOAD}print(*did, sep=chr(10), end='')", root)
    assert before == sorted(root.rglob("*"))


def test_loading_definitions_does_not_import_spark(root: Path) -> None:
    """Importing pyspark takes longer than all other loading together."""
    script = f"{WATCHED}{LOAD}print(*sorted({{'pyspark', 'py4j', 'delta'}} & set(sys.modules)))"
    assert [""] == told(script, root)


def test_validating_writes_nothing_and_opens_no_connection(root: Path) -> None:
    """Validation may run anywhere, even at every keystroke in an editor."""
    before = sorted(root.rglob("*"))
    watched = WATCHED.replace("import dagster  # what it does by itself isn't ours to judge\n", "")
    heavy = "{'pyspark', 'py4j', 'delta', 'dagster', 'pandas'}"
    script = f"{watched}{VALIDATE}print(*did, *sorted({heavy} & set(sys.modules)), sep=chr(10), end='')"
    assert [] == told(script, root)
    assert before == sorted(root.rglob("*"))


def test_planning_needs_neither_dagster_nor_spark(root: Path) -> None:
    """A run with nothing to do has to end within a second."""
    heavy = "{'pyspark', 'py4j', 'delta', 'dagster', 'httpx_ws', 'pandas'}"
    script = f"import sys\nfrom pathlib import Path\n{PLAN}print(*sorted({heavy} & set(sys.modules)))"
    assert [""] == told(script, root)


def test_planning_writes_nothing(root: Path) -> None:
    """`status` and sensors make plans, too."""
    before = sorted(root.rglob("*"))
    told(f"import sys\nfrom pathlib import Path\n{PLAN}", root)
    assert before == sorted(root.rglob("*"))


@pytest.fixture
def large_project(tmp_path: Path) -> Path:
    """Write five hundred models in a chain, every tenth with a sink; all their tables are up to date."""
    names = [f"mart.m{number}" for number in range(MANY)]
    header = "-- @kind: merge\n-- @unique_key: id\n-- @constraint: id > 0\n-- @tag: many\n"
    query = "SELECT a.id, b.name FROM {} AS a LEFT JOIN {} AS b ON a.id = b.id WHERE a.id > 1\n"
    files = {"models/mart/m0.sql": f"{header}SELECT 1 AS id, 'x' AS name\n"}
    for number in range(1, MANY):
        sink = "-- @sink: crm_push\n" if number % 10 == 0 else ""
        text = header + sink + query.format(names[number - 1], names[number // 2])
        files[f"models/mart/m{number}.sql"] = text
    root = write_shop_files(tmp_path / "many", url="http://127.0.0.1:9", files=files)
    (root / "models" / "sync" / "crm.sql").unlink()
    (root / "models" / "raw" / "contacts.sql").unlink()
    fill(load_workspace(root))
    return root


def fill(workspace: Workspace) -> None:
    """Give each model a table that was written from its current inputs."""
    for model in workspace.project.models.values():
        look = workspace.plan_inputs()
        inputs = read_input_versions(model.inputs, workspace.settings, look.tables)
        note = CommitMetadata(definition=model.definition, inputs=inputs, run_id="r", checks=model.checks_digest)
        PlainTable(Path(table_path(workspace.settings, model.id))).commit(note)


def test_five_hundred_models_are_loaded_as_definitions_without_spark(large_project: Path) -> None:
    """Dagster loads them for each run and at each reload; `make bench` measures how fast."""
    script = LOAD.replace("build_definitions(Path", "loaded = build_definitions(Path")
    graph = "print(len(loaded.resolve_asset_graph().get_all_asset_keys()), 'pyspark' in sys.modules)"
    assert (
        f"{MANY + MANY // 10 - 1} False"
        == told(f"import sys\nfrom pathlib import Path\n{script}{graph}", large_project)[-1]
    )


def test_five_hundred_models_with_nothing_to_do_start_nothing(
    large_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is the whole command; sinks are off, because none of them has ever run."""
    run = VALIDATE.replace("run_verb(['validate'])", "assert 0 == run_verb(['run'])")
    monkeypatch.setenv("ONDATRA_SINKS", "off")
    heavy = "print(*sorted({'pyspark', 'dagster'} & set(sys.modules)))"
    assert "" == told(f"import sys\nfrom pathlib import Path\n{run}{heavy}", large_project)[-1]


@pytest.mark.parametrize("words", [["status"], ["status", "--metrics"], ["maintain"]])
def test_status_and_maintain_read_five_hundred_models_without_spark(
    large_project: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Operators run these commands often; where maintenance doesn't pay, nothing is started."""
    look = VALIDATE.replace("run_verb(['validate'])", f"assert 0 == run_verb({words!r})")
    monkeypatch.setenv("ONDATRA_SINKS", "off")
    heavy = "print(*sorted({'pyspark', 'dagster'} & set(sys.modules)))"
    assert "" == told(f"import sys\nfrom pathlib import Path\n{look}{heavy}", large_project)[-1]
