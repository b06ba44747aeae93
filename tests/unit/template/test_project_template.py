"""The project template of `ondatra init`, which must remain a small version of the example project."""

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
        "workspace.yaml",  # in the template, before `ondatra init` writes the project's name
    ],
)
def test_a_shared_file_is_the_same_in_the_template_and_the_example(file: str) -> None:
    """A fix in the example must also be in new projects."""
    assert (ROOT / file).read_text() == (TEMPLATE / file).read_text()


def test_dagster_runs_every_model_of_a_new_project_on_change() -> None:
    """The README says that a user who edits a row under `dg dev` sees a run."""
    workspace = load_workspace(TEMPLATE)
    assert [*workspace.project.models.values()] == models_on_change(workspace)


def test_a_new_project_keeps_its_secrets_and_state_out_of_git() -> None:
    """The first `git add .` of a new project must not add its keys."""
    assert {".env", ".ondatra/", ".venv/"} <= set((TEMPLATE / ".gitignore").read_text().split())


@pytest.mark.parametrize("project", [ROOT, TEMPLATE], ids=["example", "template"])
def test_the_sinks_reach_the_demo_api(project: Path) -> None:
    """The port and the key are in several files. A different one would look like an API that is down."""
    (port,) = (option.default for option in main.params if option.name == "port")
    configs = [check_push_file(path, secrets={}.get).config for path in sorted(project.glob("lib/*.star"))]
    assert {f"http://127.0.0.1:{port}"} == {config.base_url for config in configs if config}
    assert {"DEMO_API_KEY": DEMO_KEY} == dotenv.dotenv_values(project / ".env.example")


def test_a_new_project_is_named_after_its_folder(tmp_path: Path) -> None:
    """In one Dagster, two projects with the same name would conflict."""
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
def test_any_folder_name_gives_a_project_name(folder: str, name: str) -> None:
    assert name == project_name(Path("/nowhere") / folder)


def test_the_texts_that_init_replaces_are_in_the_template() -> None:
    """A text that was changed in the template would silently keep its old name."""
    for file, texts in template_replacements("x").items():
        content = (TEMPLATE / file).read_text()
        assert dict.fromkeys(texts, 1) == {old: content.count(old) for old in texts}


def test_a_new_project_has_secrets_that_only_this_user_can_read(tmp_path: Path) -> None:
    assert 0 == run_verb(["init", str(tmp_path / "p")])
    secrets = tmp_path / "p" / ".env"
    assert 0o600 == secrets.stat().st_mode & 0o777
    assert (TEMPLATE / ".env.example").read_bytes() == secrets.read_bytes()


def test_a_new_project_can_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Colleagues get the right version of ondatra with `pip install .`."""
    assert 0 == run_verb(["init", str(tmp_path / "p")])
    monkeypatch.chdir(tmp_path / "p")
    (tmp_path / "out").mkdir()
    assert "p-0.1.0-py3-none-any.whl" == flit_core.buildapi.build_wheel(str(tmp_path / "out"))
