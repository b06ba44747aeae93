"""The checks of `ondatra doctor`: each one separately, on a machine or a project with one problem."""

import dataclasses
import importlib.metadata
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.apis.maven_server import running_maven_repository
from support.projects.shop_project import write_shop_files

from ondatra_dagster.doctor import disk_and_port_check, settings_and_variables_check, software_and_spark_check
from ondatra_dagster.doctor.check_context_and_result import CheckContext, CheckLevel, CheckResult, read_check_context
from ondatra_dagster.doctor.check_runner import run_checks
from ondatra_dagster.warehouse.spark.jar_download import DELTA_JARS

URL = "http://127.0.0.1:9"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_shop_files(tmp_path / "my shop", url=URL)


def only(results: Iterator[CheckResult]) -> CheckResult:
    (result,) = results
    return result


def without_spark(root: Path | None) -> CheckContext:
    return read_check_context(root, starts_spark=False)


def changed(machine: CheckContext, **settings: object) -> CheckContext:
    assert machine.settings
    return dataclasses.replace(machine, settings=dataclasses.replace(machine.settings, **settings))


def test_the_installed_packages_are_compatible() -> None:
    """The result names the packages that a question to the developers should name."""
    result = only(software_and_spark_check.check_packages(without_spark(None)))
    assert CheckLevel.OK is result.level
    assert f"pyspark {importlib.metadata.version('pyspark')}" in result.description


@pytest.mark.parametrize(
    ("requirement", "says"),
    [
        ("click<1", "click is {click}, and ondatra needs <1; pip install 'click<1'"),
        ("nothing-like-it>=2", "nothing-like-it is not installed; pip install 'nothing-like-it>=2'"),
    ],
)
def test_an_incompatible_package_is_named_with_the_command_to_fix_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requirement: str, says: str
) -> None:
    """pip lets other packages change it later. A package of an unused extra isn't reported."""
    info = tmp_path / "ondatra-0.1.0.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: ondatra", "Version: 0.1.0", f"Requires-Dist: {requirement}"]
    (info / "METADATA").write_text("\n".join([*lines, "Requires-Dist: not-asked-for; extra == 'x'"]))
    monkeypatch.syspath_prepend(tmp_path)
    result = only(software_and_spark_check.check_packages(without_spark(None)))
    assert (CheckLevel.FAILED, says.format(click=importlib.metadata.version("click"))) == (result.level, str(result))


def test_the_models_and_syncs_of_a_project_are_counted(root: Path) -> None:
    assert (
        f"{root}: 2 models, 1 sync"
        == only(settings_and_variables_check.check_settings(without_spark(root))).description
    )


def test_outside_of_a_project_only_the_machine_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new user checks the machine before there is a project."""
    monkeypatch.chdir(tmp_path)
    result = only(settings_and_variables_check.check_settings(without_spark(None)))
    assert CheckLevel.WARNING is result.level
    assert str(result).startswith(f"{tmp_path} is not in an ondatra project, so only this machine is checked; ")


def test_each_invalid_setting_is_named(root: Path) -> None:
    (root / "pyproject.toml").write_text('[tool.ondatra]\nsinks = "maybe"\nui_port = 0\n')
    results = list(settings_and_variables_check.check_settings(without_spark(root)))
    assert [CheckLevel.FAILED] * 2 == [result.level for result in results]
    assert str(results[0]).startswith("pyproject.toml:2: sinks can't be 'maybe'; ")


def test_problems_of_files_are_left_to_validate(root: Path) -> None:
    (root / "models/raw/contacts.sql").write_text("SELECT (1\n")
    result = only(settings_and_variables_check.check_settings(without_spark(root)))
    assert (CheckLevel.FAILED, "`ondatra validate` names each") == (result.level, result.remedy)


def test_an_unset_variable_of_a_sink_is_a_failure(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        "1 variable needed by sinks and alerts: set"
        == only(settings_and_variables_check.check_variables(without_spark(root))).description
    )
    (root / ".env").unlink()
    monkeypatch.delenv("DEMO_API_KEY", raising=False)
    result = only(settings_and_variables_check.check_variables(without_spark(root)))
    assert (CheckLevel.FAILED, "DEMO_API_KEY is not set, and lib/crm_push.star needs it") == (
        result.level,
        result.description,
    )


def test_a_variable_that_nothing_reads_is_a_warning(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONDATRA_STATE", "/elsewhere")
    result = only(settings_and_variables_check.check_variables(without_spark(root)))
    assert (CheckLevel.WARNING, "ONDATRA_STATE: no setting has this variable") == (result.level, result.description)


def test_a_java_home_without_java_is_named(root: Path) -> None:
    machine = without_spark(root)
    assert CheckLevel.OK is only(software_and_spark_check.check_java(machine)).level
    result = only(
        software_and_spark_check.check_java(changed(machine, java_home=root, java_home_setting="ONDATRA_JAVA_HOME"))
    )
    assert (CheckLevel.FAILED, f"ONDATRA_JAVA_HOME is {root}") == (result.level, result.description.partition(",")[0])


def test_missing_jars_are_a_warning_because_the_next_run_fetches_them(root: Path, tmp_path: Path) -> None:
    """A check that doesn't start Spark doesn't fetch jars, either."""
    result = only(software_and_spark_check.check_jars(changed(without_spark(root), jars=tmp_path / "jars")))
    assert (CheckLevel.WARNING, "the next run fetches them: 14 MB") == (result.level, result.remedy)
    assert not (tmp_path / "jars").exists()


def test_jars_that_cannot_be_fetched_are_a_failure(root: Path, tmp_path: Path) -> None:
    with running_maven_repository() as empty:
        machine = changed(read_check_context(root), jars=tmp_path / "jars", maven_mirror=empty.url)
        result = only(software_and_spark_check.check_jars(machine))
    assert CheckLevel.FAILED is result.level
    assert "HTTP 404" in result.description


def test_a_jar_with_other_content_is_named(root: Path, tmp_path: Path) -> None:
    """Its size is right, so a run would use it."""
    for jar in DELTA_JARS.jars:
        (tmp_path / jar.name).write_bytes(b"\0" * jar.size)
    result = only(software_and_spark_check.check_jars(changed(without_spark(root), jars=tmp_path)))
    assert CheckLevel.FAILED is result.level
    assert str(tmp_path / DELTA_JARS.jars[0].name) in result.description


def test_with_a_remote_spark_neither_java_nor_jars_are_needed(root: Path) -> None:
    machine = without_spark(root)
    assert machine.settings
    remote = dataclasses.replace(machine.settings.spark, remote="sc://127.0.0.1")
    for check in (software_and_spark_check.check_java, software_and_spark_check.check_jars):
        assert "not needed: spark.remote is set" == only(check(changed(machine, spark=remote))).description


def test_the_free_space_of_each_disk_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = without_spark(root)
    assert all(" free at " in result.description for result in disk_and_port_check.check_disks(machine))
    monkeypatch.setattr(disk_and_port_check, "MIN_FREE_BYTES", 10**18)  # more than any disk has
    assert {CheckLevel.FAILED} == {result.level for result in disk_and_port_check.check_disks(machine)}


def test_a_port_in_use_is_a_warning(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        machine = changed(without_spark(root), ui_port=port, dagster_url="https://dagster.example.com")
        results = [str(result) for result in disk_and_port_check.check_ports(machine)]
    assert f"port {port} is in use; unless `ondatra ui` runs already, give that command another --port" in results


def test_a_spark_that_does_not_start_is_a_failure(root: Path, tmp_path: Path) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'Error: no room for the heap' >&2\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    result = only(software_and_spark_check.check_spark(changed(read_check_context(root), java_home=tmp_path / "jdk")))
    assert CheckLevel.FAILED is result.level
    assert "Error: no room for the heap" in result.description


def test_spark_is_not_started_without_java(root: Path) -> None:
    """Its error would repeat the one about Java."""
    machine = changed(read_check_context(root), java_home=root)
    name, result = list(run_checks(machine))[-1]
    assert ("spark", "not tried; first correct java") == (name, str(result))


@pytest.mark.parametrize(
    ("mode", "level"), [(0o600, CheckLevel.OK), (0o640, CheckLevel.WARNING), (0o604, CheckLevel.WARNING)]
)
def test_an_env_file_that_other_users_may_read_is_a_warning(root: Path, mode: int, level: CheckLevel) -> None:
    (root / ".env").chmod(mode)
    result = only(settings_and_variables_check.check_variables(without_spark(root)))
    assert level is result.level
    assert level is CheckLevel.OK or str(result).endswith("; chmod 600 .env")
