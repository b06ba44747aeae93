"""The search for Java. Without one, a sentence says which version to install."""

import os
from pathlib import Path

import pytest

from ondatra_dagster.errors import SparkSetupError, WarehouseError
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
from ondatra_dagster.warehouse.spark.java_finder import Java, find_java


def a_java(home: Path, release: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return home


@pytest.mark.parametrize(
    ("release", "version", "fits"),
    [("17.0.15", 17, True), ("21", 21, True), ("1.8.0_402", 8, False), ("25.0.1", 25, False), ("11.0.2", 11, False)],
)
def test_the_version_is_the_usual_major_version(release: str, version: int, *, fits: bool) -> None:
    java = Java(executable=Path("java"), release=release)
    assert (version, fits) == (java.version, java.is_supported)


def test_java_home_is_used(tmp_path: Path) -> None:
    home = a_java(tmp_path / "a java", "21.0.2")
    assert Java(executable=home / "bin" / "java", release="21.0.2") == find_java(home)


def test_a_wrong_java_home_says_so(tmp_path: Path) -> None:
    """The user has set it, so no other Java is used silently."""
    with pytest.raises(WarehouseError, match="has no bin/java: set it to the folder of a Java 17 or 21"):
        find_java(tmp_path / "nothing")
    with pytest.raises(WarehouseError, match="which is Java 11: set it to the folder of a Java 17 or 21"):
        find_java(a_java(tmp_path / "old", "11.0.2"))


def test_a_java_without_a_release_file_is_started_to_get_its_version(tmp_path: Path) -> None:
    home = a_java(tmp_path, "17")
    (home / "release").unlink()
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"17.0.9\" 2023' >&2\n")
    assert "17.0.9" == find_java(home).release
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(WarehouseError, match="doesn't start"):
        find_java(home)


@pytest.mark.parametrize(
    ("variables", "line", "named"),
    [
        ({"ONDATRA_JAVA_HOME": "/jdk"}, "", "ONDATRA_JAVA_HOME is /jdk"),
        ({"JAVA_HOME": "/jdk"}, "", "JAVA_HOME is /jdk"),
        ({"JAVA_HOME": "/other"}, 'java_home = "/jdk"', r"java_home in pyproject\.toml is /jdk"),
        ({"ONDATRA_JAVA_HOME": "/jdk"}, 'java_home = "/other"', "ONDATRA_JAVA_HOME is /jdk"),
    ],
)
def test_the_message_names_the_setting_that_was_used(
    tmp_path: Path, variables: dict[str, str], line: str, named: str
) -> None:
    """Several settings can name a Java, and the user has to change the one that was used."""
    (tmp_path / "pyproject.toml").write_text(f"[tool.ondatra]\n{line}\n")
    settings = read_settings(tmp_path, variables)
    with pytest.raises(SparkSetupError, match=f"^{named}, which has no bin/java"):
        find_java(settings.java_home, setting_name=settings.java_home_setting)


def test_the_java_on_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = a_java(tmp_path, "17.0.1")
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}/usr/bin")
    assert home / "bin" / "java" == find_java(None).executable
