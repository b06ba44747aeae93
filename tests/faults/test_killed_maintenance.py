"""The command `ondatra maintain`, killed during VACUUM: nothing that is read is lost, and the next one repairs it.

Each round starts a JVM next to that of the tests, which creates the tables' old versions: `make soak`.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes.killable_command import KillableCommand, wait_for_exit
from support.projects.shop_project import write_contacts, write_shop_files
from support.spark.aged_delta_tables import age_table, parquet_files
from support.spark.spark_project import SparkProject

from ondatra_dagster.deltalog.log_reader import TableState, read_table_state
from ondatra_dagster.deltalog.removable_history import FILE_RETENTION_PROPERTY, NORMAL_RETENTION, is_retention_lowered
from ondatra_dagster.testing.demo_api import DemoApi
from ondatra_dagster.warehouse.spark.session import Warehouse

pytestmark = pytest.mark.soak

TABLES = ("raw.contacts", "sync.crm")
DELIVERED, BEHIND = 8, 3  # versions before the sync's watermark, and after it


@pytest.fixture
def project(tmp_path: Path, shared_warehouse: Warehouse, api: DemoApi) -> SparkProject:
    """Return a project that delivers contacts to a CRM."""
    return SparkProject(write_shop_files(tmp_path / "a project", url=api.url), shared_warehouse.session)


def state(project: SparkProject, name: str) -> TableState:
    state = read_table_state(project.table_path(name))
    assert state
    return state


def make_versions(project: SparkProject, count: int, *, name: str) -> None:
    """Write this number of versions, four days apart."""
    for number in range(count):
        for table in TABLES:
            if Path(project.table_path(table)).exists():
                age_table(project.session, project.table_path(table), days=4)
        write_contacts(project.root, a1=f"{name}-{number}@example.com", b2="bo@example.com")
        assert 0 == project.run()


def set_sinks(project: SparkProject, how: str) -> None:
    project.write_files({"pyproject.toml": f'[tool.ondatra]\nsinks = "{how}"\n'})


def lowered(project: SparkProject) -> Callable[[KillableCommand], bool]:
    """Return a condition that holds when one of the tables is just before its VACUUM."""
    return lambda _run: any(is_retention_lowered(state(project, name)) for name in TABLES)


def going(project: SparkProject) -> Callable[[KillableCommand], bool]:
    """Return a condition that holds when the first files are deleted."""
    before = {name: parquet_files(project.table_path(name)) for name in TABLES}
    return lambda _run: any(before[name] - parquet_files(project.table_path(name)) for name in TABLES)


@pytest.mark.parametrize(("moment", "waits_for_its_jvm"), [(lowered, False), (lowered, True), (going, False)])
def test_a_killed_vacuum_loses_nothing(
    project: SparkProject,
    api: DemoApi,
    moment: Callable[[SparkProject], Callable[[KillableCommand], bool]],
    *,
    waits_for_its_jvm: bool,
) -> None:
    """The sync that is behind gets each change, even when the dead process's JVM continues for a while."""
    make_versions(project, DELIVERED, name="seen")
    set_sinks(project, "off")
    make_versions(project, BEHIND, name="unseen")
    rows = {name: state(project, name).version for name in TABLES}
    maintenance = KillableCommand(project.root, "maintain")
    maintenance.wait_until(moment(project))
    jvm = maintenance.jvm_pid
    maintenance.kill()
    if jvm and waits_for_its_jvm:
        wait_for_exit(jvm)
    set_sinks(project, "on")
    again = KillableCommand(project.root)
    assert 0 == again.wait(), again.output
    assert f"unseen-{BEHIND - 1}@example.com" == api.contacts()["a1"]["email"]
    assert rows == {name: state(project, name).version for name in TABLES}
    assert 0 == KillableCommand(project.root, "maintain").wait()
    assert {NORMAL_RETENTION} == {state(project, name).properties[FILE_RETENTION_PROPERTY] for name in TABLES}
    write_contacts(project.root, a1="last@example.com")
    assert 0 == KillableCommand(project.root).wait()
    assert "last@example.com" == api.contacts()["a1"]["email"]
