"""The commands of Dagster in a project, as a user types them."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import dagster as dg
import pytest
import yaml
from support.processes.dagster_dev_server import write_dagster_files
from support.projects.shop_project import ShopProject, write_contacts, write_shop_files

from ondatra_dagster.sync.send_guards import pause_sync, resume_sync
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "ondatra_dagster" / "template"
EXECUTE = ("dagster", "job", "execute", "-m", "ondatra_project.definitions", "-j", "__ASSET_JOB")
LAUNCH = ("dg", "launch", "--assets", "*")
PAGES = (ROOT / "README.md", TEMPLATE / "README.md", *sorted(ROOT.glob("docs/*.md")))
SNIPPETS = [
    pytest.param(snippet, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, snippet in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), 1)
    if re.search(r"^(import|from) dagster\b", snippet, re.MULTILINE)
]


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the virtual environment in a folder, without DAGSTER_HOME, and return the result."""
    environ = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    program, *arguments = words
    return subprocess.run(
        [Path(sys.executable).with_name(program), *arguments],
        cwd=folder,
        env={**environ, "PYTHONPATH": str(ROOT), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a shop with the files by which Dagster finds a project that `ondatra init` created."""
    root = write_shop_files(tmp_path / "my shop", url="http://127.0.0.1:9")
    write_dagster_files(root)
    return root


@pytest.mark.parametrize("command", [EXECUTE, LAUNCH], ids=lambda words: words[0])
@pytest.mark.parametrize(("email", "code", "held"), [("ada@example.com", 0, {"a1"}), ("nonsense", 1, set())])
def test_an_executed_job_does_what_a_run_does(
    materialize: Callable[..., dg.ExecuteInProcessResult],
    shop: ShopProject,
    api: DemoApi,
    command: Sequence[str],
    email: str,
    code: int,
    held: set[str],
) -> None:
    """Plan and queue are the same. Without changes Spark doesn't start, waiting rows are sent, and failures count."""
    write_dagster_files(shop.root)
    write_contacts(shop.root, a1=email)
    (sync,) = shop.workspace.syncs.values()
    pause_sync(sync)
    assert materialize(shop).success
    assert () == api.calls
    resume_sync(sync)
    completed = typed(shop.root, *command)
    assert code == completed.returncode, completed.stderr
    assert held == set(api.contacts())
    assert ["Dagster", "Dagster"] == [run.trigger for run in shop.workspace.history.list_runs()]
    assert not (shop.root / ".ondatra" / "logs" / "spark.log").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("list defs", "push__sync__crm__sensor"),
        ("check defs", "All definitions loaded successfully."),
        ("check yaml", "All component YAML validated successfully."),
        ("check toml", "All TOML configuration files are valid."),
    ],
)
def test_dg_recognizes_a_project(project: Path, words: str, says: str) -> None:
    """Dagster recommends `dg`, which refuses a folder whose pyproject.toml doesn't declare a project."""
    completed = typed(project, "dg", *words.split())
    assert (0, True) == (completed.returncode, says in completed.stdout), completed.stdout + completed.stderr


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_the_dagster_snippets_in_the_docs_can_be_loaded(tmp_path: Path, snippet: str) -> None:
    """Each snippet is loaded as a module, as users paste it.

    Dagster refuses some code there that works in a function.
    """
    files = {
        "pyproject.toml": '[tool.ondatra.sources]\ncrm = "data/crm"\n',
        "models/mart/customers.sql": "SELECT id, email FROM crm.deals\n",
    }
    root = write_shop_files(tmp_path, url="http://127.0.0.1:9", files=files)
    write_dagster_files(root)
    (root / "ondatra_project" / "definitions.py").write_text(snippet)
    completed = typed(root, "dg", "check", "defs")
    assert 0 == completed.returncode, completed.stdout + completed.stderr


def test_dg_reports_an_error_in_a_model(project: Path) -> None:
    """The message has file, line and remedy, like that of `ondatra validate`. The CI of a dg project runs only this."""
    (project / "models" / "sync" / "crm.sql").write_text("-- @kind: merg\nSELECT 1 AS id\n")
    completed = typed(project, "dg", "check", "defs")
    assert 1 == completed.returncode
    assert "models/sync/crm.sql:1: @kind 'merg' is not a kind; did you mean 'merge'?" in completed.stdout


def test_dg_lists_the_example() -> None:
    """The repository is a project as well."""
    completed = typed(ROOT, "dg", "list", "defs", "--json")
    assert (0, True) == (completed.returncode, "push/sync/crm" in completed.stdout), completed.stdout + completed.stderr


@pytest.mark.parametrize("project_folder", [ROOT, TEMPLATE], ids=["example", "template"])
def test_both_files_name_the_same_module_and_location(project_folder: Path) -> None:
    """Dagster silently prefers pyproject.toml. With other names there, sensors and their cursors would exist twice."""
    settings = tomllib.loads((project_folder / "pyproject.toml").read_text())["tool"]
    workspace = yaml.safe_load((project_folder / "workspace.yaml").read_text())
    (location,) = (entry["python_module"] for entry in workspace["load_from"])
    by_dg = settings["dg"]["project"]
    assert (location["module_name"], location["location_name"]) == (
        by_dg["code_location_target_module"],
        by_dg["code_location_name"],
    )
    assert "dagster" not in settings  # a third place, which would override both
