"""`ondatra maintain` killed in the middle of its VACUUM: nothing that is read is lost, and the next mends.

Each round starts a JVM beside that of the tests, which makes the tables' past: `make soak`.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.aged_tables import age, files_of
from support.killed_runs import Run, wait_for_the_end_of
from support.shop import lay_down, write_contacts
from support.spark_project import SparkProject

from ondatra_dagster.planning.delta_log import TableState, read_table_state
from ondatra_dagster.planning.table_past import FILES_KEPT, KEPT, is_lowered
from ondatra_dagster.testing.demo_api import DemoApi
from ondatra_dagster.warehouse.spark_session import Warehouse

pytestmark = pytest.mark.soak

TABLES = ("raw.contacts", "sync.crm")
DELIVERED, BEHIND = 8, 3  # versions before the sync's watermark, and after it


@pytest.fixture
def project(tmp_path: Path, shared_warehouse: Warehouse, api: DemoApi) -> SparkProject:
    """Contacts on their way to a CRM."""
    return SparkProject(lay_down(tmp_path / "a project", url=api.url), shared_warehouse.session)


def state(project: SparkProject, name: str) -> TableState:
    state = read_table_state(project.path(name))
    assert state
    return state


def make_versions(project: SparkProject, count: int, *, name: str) -> None:
    """So many, four days after each other."""
    for number in range(count):
        for table in TABLES:
            if Path(project.path(table)).exists():
                age(project.session, project.path(table), days=4)
        write_contacts(project.root, a1=f"{name}-{number}@example.com", b2="bo@example.com")
        assert 0 == project.run()


def set_sinks(project: SparkProject, how: str) -> None:
    project.write({"pyproject.toml": f'[tool.ondatra]\nsinks = "{how}"\n'})


def lowered(project: SparkProject) -> Callable[[Run], bool]:
    """Until one of the tables is at its VACUUM, which hasn't begun."""
    return lambda _run: any(is_lowered(state(project, name)) for name in TABLES)


def going(project: SparkProject) -> Callable[[Run], bool]:
    """Until the first files have gone."""
    before = {name: files_of(project.path(name)) for name in TABLES}
    return lambda _run: any(before[name] - files_of(project.path(name)) for name in TABLES)


@pytest.mark.parametrize(("moment", "waits_for_its_jvm"), [(lowered, False), (lowered, True), (going, False)])
def test_a_vacuum_that_is_killed_loses_nothing(
    project: SparkProject,
    api: DemoApi,
    moment: Callable[[SparkProject], Callable[[Run], bool]],
    *,
    waits_for_its_jvm: bool,
) -> None:
    """The sync that is behind gets each change, also when the dead process's JVM goes on for a while."""
    make_versions(project, DELIVERED, name="seen")
    set_sinks(project, "off")
    make_versions(project, BEHIND, name="unseen")
    rows = {name: state(project, name).version for name in TABLES}
    maintenance = Run(project.root, "maintain")
    maintenance.wait_until(moment(project))
    jvm = maintenance.jvm
    maintenance.kill()
    if jvm and waits_for_its_jvm:
        wait_for_the_end_of(jvm)
    set_sinks(project, "on")
    again = Run(project.root)
    assert 0 == again.end(), again.said
    assert f"unseen-{BEHIND - 1}@example.com" == api.contacts()["a1"]["email"]
    assert rows == {name: state(project, name).version for name in TABLES}
    assert 0 == Run(project.root, "maintain").end()
    assert {KEPT} == {state(project, name).properties[FILES_KEPT] for name in TABLES}
    write_contacts(project.root, a1="last@example.com")
    assert 0 == Run(project.root).end()
    assert "last@example.com" == api.contacts()["a1"]["email"]
