"""What `ondatra init` lays down is the example project in small, and stays so."""

from pathlib import Path

import dotenv
import pytest

from ondatra_dagster.delivery.push.library_check import check_library
from ondatra_dagster.orchestration.change_sensor import models_on_change
from ondatra_dagster.orchestration.workspace import load_workspace
from ondatra_dagster.testing.demo_api import DEMO_KEY
from ondatra_dagster.testing.demo_api.__main__ import main

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "ondatra_dagster" / "template"


@pytest.mark.parametrize(
    "file",
    [
        "dagster.yaml",
        "lib/crm_push.star",
        "ondatra_project/definitions.py",
        "workspace.yaml",
    ],
)
def test_a_file_of_both_projects_is_the_same_in_both(file: str) -> None:
    """A fix to the example must reach new projects too."""
    assert (ROOT / file).read_text() == (TEMPLATE / file).read_text()


def test_dagster_runs_all_of_a_new_project_when_its_data_changes() -> None:
    """Who edits a row under `dg dev`, as its README says, sees nothing happen otherwise."""
    workspace = load_workspace(TEMPLATE)
    assert [*workspace.project.models.values()] == models_on_change(workspace)


def test_a_new_project_keeps_its_secrets_and_state_out_of_git() -> None:
    """The first `git add .` of a new project must not take its keys along."""
    assert {".env", ".ondatra/"} <= set((TEMPLATE / ".gitignore").read_text().split())


@pytest.mark.parametrize("project", [ROOT, TEMPLATE], ids=["example", "template"])
def test_the_sinks_reach_the_demo_api(project: Path) -> None:
    """Its port and key stand in several files: one that differs would show as an API that is down."""
    (port,) = (option.default for option in main.params if option.name == "port")
    configs = [check_library(path, secrets={}.get).config for path in sorted(project.glob("lib/*.star"))]
    assert {f"http://127.0.0.1:{port}"} == {config.base_url for config in configs if config}
    assert {"DEMO_API_KEY": DEMO_KEY} == dotenv.dotenv_values(project / ".env.example")
