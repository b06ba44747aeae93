"""The `ondatra validate` command on invalid projects: each problem has a place and a remedy."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.invalid_projects import INVALID_PROJECTS, MODEL, PUSH, InvalidProject

Write = Callable[[Mapping[str, str | bytes]], Path]


@pytest.fixture
def write_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a project, and change into its folder."""

    def write_files(files: Mapping[str, str | bytes]) -> Path:
        root = tmp_path / "my shop"
        for name, content in {"pyproject.toml": "[tool.ondatra]\n", **files}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        monkeypatch.chdir(root)
        return root

    return write_files


def test_the_invalid_projects_are_all_different() -> None:
    """There are at least 40 of them."""
    messages = {broken.message for broken in INVALID_PROJECTS}
    assert len(messages) == len(INVALID_PROJECTS) == len({broken.name for broken in INVALID_PROJECTS})
    assert len(INVALID_PROJECTS) >= 40


@pytest.mark.parametrize("broken", INVALID_PROJECTS, ids=lambda broken: broken.name)
def test_a_problem_has_its_place_and_its_remedy(
    write_project: Write, ondatra: CommandLine, broken: InvalidProject
) -> None:
    """It is the only problem: its consequences aren't reported."""
    write_project(broken.files)
    result = ondatra("validate")
    problem, number = result.stderr.splitlines()
    assert (broken.message, "1 problem found") == (problem[: len(broken.message)], number)
    assert (1, "") == (result.exit_code, result.stdout)


@pytest.mark.parametrize("broken", INVALID_PROJECTS[:: len(INVALID_PROJECTS) // 4], ids=lambda broken: broken.name)
def test_validate_in_a_separate_process_imports_no_spark(write_project: Write, broken: InvalidProject) -> None:
    """The user calls it like this: no JVM starts, and neither Spark nor Dagster is imported, so it takes less time."""
    root = write_project(broken.files)
    script = (
        "import sys\n"
        "from ondatra_dagster.cli.main import run_verb\n"
        "code = run_verb(['validate', '--json'])\n"
        "assert not {'pyspark', 'py4j', 'dagster'} & set(sys.modules)\n"
        "sys.exit(code)\n"
    )
    completed = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert (1, "1 problem found\n") == (completed.returncode, completed.stderr)


def test_all_problems_of_a_project_are_reported_together(write_project: Write, ondatra: CommandLine) -> None:
    """They are in settings, models, push functions and their combination. The user needs one call only."""
    write_project(
        {
            "pyproject.toml": '[tool.ondatra]\nsinks = "maybe"\n',
            "models/a/kind.sql": f"-- @kind: merg\n-- @owner: anna\n{MODEL}",
            "models/a/misuse.sql": "-- @sink: other('x')\n-- @sync_id: y\nSELECT 1 AS id\n",
            "models/a/syntax.sql": "SELECT (1\n",
            "lib/crm.star": f'API = {{\n    "base_ulr": "",\n    "timeout": "x",\n}}\n{PUSH}',
            "lib/other.star": PUSH,
            "lib/third.star": "def push(rows):\n    return nobody\n",
        }
    )
    places = [problem["file"] + f":{problem['line']}" for problem in ondatra("validate", "--json").json_lines]
    models = ["models/a/kind.sql:1", "models/a/kind.sql:2", "models/a/misuse.sql:1", "models/a/syntax.sql:1"]
    libraries = ["lib/crm.star:2", "lib/crm.star:3", "lib/third.star:2"]
    assert [*libraries, *models, "pyproject.toml:2"] == places


def test_a_program_gets_one_object_per_problem(write_project: Write, ondatra: CommandLine) -> None:
    """An editor can mark the line."""
    write_project({"models/a/b.sql": "-- @kind: table\n-- @tag: a b\nSELECT 1 AS id\n"})
    result = ondatra("validate", "--json")
    expected = {
        "level": "error",
        "file": "models/a/b.sql",
        "line": 2,
        "what": "@tag 'a b' is not a tag",
        "remedy": "write name or name=value, each up to 63 of A-Z a-z 0-9 . _ -",
    }
    assert (1, [expected]) == (result.exit_code, result.json_lines)


def test_an_invalid_variable_is_reported_with_its_name(
    write_project: Write, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable has no line number."""
    write_project({"models/a/b.sql": "SELECT 1 AS id\n"})
    monkeypatch.setenv("ONDATRA_SINKS", "nope")
    assert "ONDATRA_SINKS: sinks can't be 'nope'; the choices are dry, off, on\n" in ondatra("validate").stderr


def test_a_refused_source_causes_no_problem_in_a_model(write_project: Write, ondatra: CommandLine) -> None:
    """The tables of the refused source are unknown."""
    write_project(
        {"pyproject.toml": "[tool.ondatra.sources]\ncrm = 3\n", "models/a/b.sql": "SELECT * FROM crm.deals\n"}
    )
    assert "1 problem found" in ondatra("validate").stderr


def test_a_problem_in_a_file_that_two_sinks_load_is_reported_once(write_project: Write, ondatra: CommandLine) -> None:
    """The user has one line to fix."""
    load = 'load("o.star", "f")\n' + PUSH
    write_project(
        {
            "models/a/b.sql": MODEL,
            "models/a/c.sql": MODEL.replace("crm", "erp"),
            "lib/crm.star": load,
            "lib/erp.star": load,
            "lib/o.star": "def f():\n    return g()\n",
        }
    )
    assert ["lib/o.star:2: nothing is called 'g' here; define it, or load it from a file of lib/"] == (
        ondatra("validate").stderr.splitlines()[:-1]
    )


@pytest.mark.parametrize(
    "text",
    [
        "_x = [n for n in range(3)]\ndef f(a, *b, c = 1):\n    return g(a + _x)\ndef g(a):\n    return a",
        "f = lambda x: struct(a = json.encode(x), b = time.now())\ng, h = (1, 2)",
        'load("p.star", f = "other")\nload("p.star", "more")\ndef unused():\n    return more + f(1)',
    ],
)
def test_existing_names_are_no_problem(write_project: Write, ondatra: CommandLine, text: str) -> None:
    """A wrong problem report is worse than none."""
    push = 'load("o.star", "f")\n' + PUSH if "load" not in text else PUSH
    used = {"lib/o.star": text, "lib/p.star": "more = 1\ndef other(x):\n    return x\n"}
    write_project({"models/a/b.sql": MODEL, "lib/crm.star": text + "\n" + PUSH if "load" in text else push, **used})
    result = ondatra("validate")
    assert (0, "1 model and 1 sync: nothing wrong was found\n") == (result.exit_code, result.stderr)


def test_a_wrong_invocation_has_its_own_exit_code(write_project: Write, ondatra: CommandLine) -> None:
    """An invalid project has another one."""
    write_project({"models/a/b.sql": "SELECT\n"})
    assert [2, 1] == [ondatra("validate", "--nope").exit_code, ondatra("validate").exit_code]


def test_a_missing_column_is_reported_before_anything_runs(write_project: Write, ondatra: CommandLine) -> None:
    """Both commands report it with the line, and start nothing."""
    write_project(
        {
            "models/a/b.sql": "SELECT 1 AS id, 'x' AS lastname\n",
            "models/a/c.sql": "-- @kind: table\nSELECT\n    id,\n    b.lastnme\nFROM a.b\n",
        }
    )
    error = (
        "models/a/c.sql:4: column 'b.lastnme' doesn't exist there;"
        " did you mean 'lastname'? the columns are id, lastname\n"
    )
    result = ondatra("validate")
    assert (1, f"{error}1 problem found\n") == (result.exit_code, result.stderr)
    result = ondatra("run")
    assert (1, error) == (result.exit_code, result.stderr)


def test_an_unused_variable_is_a_warning_and_with_strict_an_error(
    write_project: Write, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONDATRA_STATE=/elsewhere looks as if it had an effect."""
    write_project({"models/a/b.sql": "SELECT 1 AS id\n"})
    monkeypatch.setenv("ONDATRA_STATE", "/elsewhere")
    result = ondatra("validate")
    assert (0, "warning: ONDATRA_STATE: no setting has this variable; ") == (result.exit_code, result.stderr[:54])
    assert (1, ["error"]) == (
        ondatra("validate", "--strict").exit_code,
        [problem["level"] for problem in ondatra("validate", "--strict", "--json").json_lines],
    )
