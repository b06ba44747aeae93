"""The download of jars: by https or from this machine, unless the user allows http."""

from pathlib import Path

import pytest

from ondatra_dagster.errors import InvalidSettingsError
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings

OPEN = "http://ada:hunter22@maven.example.com/maven2"


def project(root: Path, *lines: str) -> Path:
    (root / "pyproject.toml").write_text("\n".join(["[tool.ondatra]", *lines, ""]))
    return root


@pytest.mark.parametrize(
    "address",
    [
        "https://maven.example.com/maven2",
        "https://ada:p%40ss@maven.example.com",
        "http://127.0.0.1:8081/maven2",
        "http://localhost:8081",
        "http://[::1]:8081/",
        "file:///srv/maven",
    ],
)
def test_a_protected_mirror_is_accepted(address: str, tmp_path: Path) -> None:
    root = project(tmp_path, f'maven_mirror = "{address}"')
    assert address == read_settings(root, {}).maven_mirror


@pytest.mark.parametrize("address", [OPEN, "HTTP://maven.example.com", "http://127.0.0.1.example.com/"])
def test_an_http_mirror_is_refused_where_it_is_configured(address: str, tmp_path: Path) -> None:
    """The message doesn't show its password."""
    with pytest.raises(InvalidSettingsError) as caught:
        read_settings(project(tmp_path, 'sinks = "dry"', f'maven_mirror = "{address}"'), {})

    (problem,) = caught.value.problems
    assert ("pyproject.toml", 3) == (problem.file, problem.line)
    assert "maven_mirror is an http:// address" in problem.description
    assert 'maven_http = "on"' in problem.remedy
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("allowed", ['"on"', "true"])
def test_an_http_mirror_can_be_allowed(allowed: str, tmp_path: Path) -> None:
    root = project(tmp_path, f'maven_mirror = "{OPEN}"', f"maven_http = {allowed}")
    assert OPEN == read_settings(root, {}).maven_mirror


def test_the_variables_are_checked_too(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match=r"^ONDATRA_MAVEN_MIRROR: maven_mirror is an http"):
        read_settings(tmp_path, {"ONDATRA_MAVEN_MIRROR": OPEN})
    variables = {"ONDATRA_MAVEN_MIRROR": OPEN, "ONDATRA_MAVEN_HTTP": "on"}
    assert OPEN == read_settings(tmp_path, variables).maven_mirror


@pytest.mark.parametrize("address", ["maven.example.com", "ftp://maven.example.com", "https://", "http://[::1"])
def test_an_address_that_is_not_a_repository_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match="maven_mirror isn't a repository's address; write it as https"):
        read_settings(project(tmp_path, f'maven_mirror = "{address}"'), {})


@pytest.mark.parametrize("value", ['"maybe"', "1", '""'])
def test_a_switch_is_either_on_or_off(value: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match="is neither on nor off; write 'on' or 'off'"):
        read_settings(project(tmp_path, f"maven_http = {value}"), {})
