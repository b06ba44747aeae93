"""What `ondatra init` lays down is the example project in small, and stays so."""

import importlib.metadata
import tomllib
from pathlib import Path

import dotenv
import flit_core.buildapi
import pytest
import yaml

from ondatra_dagster.app.workspace import load_workspace
from ondatra_dagster.cli.commands.init import project_name, template_replacements
from ondatra_dagster.cli.main import run_verb
from ondatra_dagster.delivery.push.sink_setup_check import check_push_file
from ondatra_dagster.orchestration.sensors import models_on_change
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
        "workspace.yaml",  # of a new project before it is named
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
    assert {".env", ".ondatra/", ".venv/"} <= set((TEMPLATE / ".gitignore").read_text().split())


@pytest.mark.parametrize("project", [ROOT, TEMPLATE], ids=["example", "template"])
def test_the_sinks_reach_the_demo_api(project: Path) -> None:
    """Its port and key stand in several files: one that differs would show as an API that is down."""
    (port,) = (option.default for option in main.params if option.name == "port")
    configs = [check_push_file(path, secrets={}.get).config for path in sorted(project.glob("lib/*.star"))]
    assert {f"http://127.0.0.1:{port}"} == {config.base_url for config in configs if config}
    assert {"DEMO_API_KEY": DEMO_KEY} == dotenv.dotenv_values(project / ".env.example")


def test_a_new_project_is_named_after_its_folder(tmp_path: Path) -> None:
    """Two projects in one Dagster would collide under one name."""
    folder = tmp_path / "My shop & co"
    assert 0 == run_verb(["init", str(folder)])
    settings = tomllib.loads((folder / "pyproject.toml").read_text())
    assert "my-shop-co" == settings["project"]["name"]
    assert [f"ondatra=={importlib.metadata.version('ondatra')}"] == settings["project"]["dependencies"]
    (entry,) = yaml.safe_load((folder / "workspace.yaml").read_text())["load_from"]
    assert "my-shop-co" == entry["python_module"]["location_name"]
    assert 'code_location_name = "my-shop-co"' in (folder / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("folder", "name"), [("ondatra", "ondatra-project"), ("…", "ondatra-project"), ("2026", "2026"), ("a_b.C", "a-b-c")]
)
def test_any_folder_gives_a_name(folder: str, name: str) -> None:
    assert name == project_name(Path("/nowhere") / folder)


def test_what_is_named_anew_is_in_the_template() -> None:
    """A text that was reworded there would keep its name in silence."""
    for file, texts in template_replacements("x").items():
        content = (TEMPLATE / file).read_text()
        assert dict.fromkeys(texts, 1) == {old: content.count(old) for old in texts}


def test_a_new_project_has_its_secrets_for_this_user_only(tmp_path: Path) -> None:
    assert 0 == run_verb(["init", str(tmp_path / "p")])
    secrets = tmp_path / "p" / ".env"
    assert 0o600 == secrets.stat().st_mode & 0o777
    assert (TEMPLATE / ".env.example").read_bytes() == secrets.read_bytes()


def test_a_new_project_can_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install .` is how a colleague gets the right ondatra."""
    assert 0 == run_verb(["init", str(tmp_path / "p")])
    monkeypatch.chdir(tmp_path / "p")
    (tmp_path / "out").mkdir()
    assert "p-0.1.0-py3-none-any.whl" == flit_core.buildapi.build_wheel(str(tmp_path / "out"))
