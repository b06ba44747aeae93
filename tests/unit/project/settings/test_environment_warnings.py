"""The warning about a variable that begins with ONDATRA_ and that nothing reads."""

from pathlib import Path

import pytest

from ondatra_dagster.project.settings.environment_warnings import unknown_variable_warnings
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings


def warnings(root: Path, *names: str) -> list[str]:
    settings = read_settings(root, dict.fromkeys(names, "x"))
    return [str(problem) for problem in unknown_variable_warnings(root, settings.secrets.names)]


def test_an_unknown_variable_is_named_with_the_nearest_setting(tmp_path: Path) -> None:
    """The user set it for a reason, and it has no effect."""
    assert [
        "ONDATRA_STATE: no setting has this variable; `ondatra docs models` lists the settings;"
        " a variable of your own needs another name",
        "ONDATRA_WAREHOUSE_PATH: no setting has this variable; did you mean ONDATRA_WAREHOUSE?"
        " `ondatra docs models` lists the settings; a variable of your own needs another name",
    ] == warnings(tmp_path, "ONDATRA_WAREHOUSE_PATH", "ONDATRA_STATE", "OTHER")


def test_an_unknown_variable_in_dot_env_is_reported_too(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("ONDATRA_STATE=/elsewhere\n")
    assert warnings(tmp_path)


@pytest.mark.parametrize(
    "name", ["ONDATRA_WAREHOUSE", "ONDATRA_EVENTS_TOKEN", "ONDATRA_OAUTH_TOKEN_CRM", "ONDATRA_TEST_KILLS", "STATE"]
)
def test_a_variable_that_ondatra_reads_is_no_warning(tmp_path: Path, name: str) -> None:
    assert [] == warnings(tmp_path, name)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("lib/crm.star", 'API = {"auth": {"env": "ONDATRA_X"}, "env": []}\n'),
        ("pyproject.toml", '[tool.ondatra.alerts]\nwebhook = "${ONDATRA_X}"\n'),
        ("dagster.yaml", "storage: {postgres: {url: {env: ONDATRA_X}}}\n"),
        ("ondatra_project/definitions.py", 'import os\nx = os.environ["ONDATRA_X"]\n'),
    ],
)
def test_a_variable_that_a_project_file_names_is_no_warning(tmp_path: Path, file: str, text: str) -> None:
    """The user doesn't have to rename the project's secrets."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    assert [] == warnings(tmp_path, "ONDATRA_X")


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    settings = read_settings(tmp_path, {"ONDATRA_STATE": ""})
    assert [] == list(unknown_variable_warnings(tmp_path, settings.secrets.names))
