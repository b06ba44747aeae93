"""The definitions of a project: what Dagster shows before anything runs."""

import warnings
from pathlib import Path

import dagster as dg
import pytest
from support.projects.shop_project import ShopProject, write_shop_files

from ondatra_dagster.errors import ProjectError
from ondatra_dagster.orchestration.asset_keys import op_name
from ondatra_dagster.orchestration.definitions import build_definitions, definitions_of
from ondatra_dagster.orchestration.io_managers import IO_MANAGERS
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.sync.sync_checks import SYNC_CHECKS

CRM = dg.AssetKey(["sync", "crm"])
PUSH = dg.AssetKey(["push", "sync", "crm"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_shop_files(tmp_path / "my shop", url="http://127.0.0.1:9")


def spec_of_crm(root: Path) -> dg.AssetSpec:
    (spec,) = [spec for spec in build_definitions(root).resolve_all_asset_specs() if spec.key == CRM]
    return spec


def test_every_kind_has_an_io_manager() -> None:
    """A kind without one would fail only at run time."""
    assert set(KINDS) == set(IO_MANAGERS)


def test_a_model_is_an_asset_below_what_it_reads_and_above_its_push(root: Path) -> None:
    """The user doesn't declare these dependencies."""
    assets = build_definitions(root).resolve_asset_graph()
    assert {dg.AssetKey(["raw", "contacts"])} == assets.get(CRM).parent_keys
    assert {CRM} == assets.get(PUSH).parent_keys


def test_a_model_shows_its_folder_kind_description_sql_and_file(root: Path) -> None:
    spec = spec_of_crm(root)
    assert ("sync", "Contacts") == (spec.group_name, spec.description)
    assert {"spark", "delta", "merge"} == spec.kinds
    assert "FROM raw.contacts" in spec.metadata["SQL"].value
    assert ("sync.crm", str(root / ".ondatra" / "warehouse" / "sync" / "crm")) == (
        spec.metadata["dagster/table_name"].value,
        spec.metadata["dagster/uri"].value,
    )
    assert "models/sync/crm.sql" == spec.metadata["file"].value


def test_a_model_shows_its_owners_and_tags_and_links_to_its_file(root: Path) -> None:
    """A user who finds it broken wants to know whom to ask, and where to look."""
    path = root / "models" / "sync" / "crm.sql"
    header = "-- @owner: team:crm\n-- @owner: anna@example.com\n-- @tag: daily\n-- @tag: tier=gold\n"
    path.write_text(header + path.read_text())
    spec = spec_of_crm(root)
    assert ["team:crm", "anna@example.com"] == list(spec.owners)
    assert {"daily": "", "tier": "gold"}.items() <= spec.tags.items()
    (link,) = spec.metadata["dagster/code_references"].code_references
    assert (str(path), 1) == (link.file_path, link.line_number)


def test_dagster_sees_a_changed_query_but_not_a_changed_comment(root: Path) -> None:
    """Dagster marks outdated assets by their code version."""
    path = root / "models" / "sync" / "crm.sql"
    before, text = spec_of_crm(root).code_version, path.read_text()
    path.write_text(f"-- why\n{text}")
    assert before == spec_of_crm(root).code_version
    path.write_text(text.replace("SELECT id, email", "SELECT id, lower(email) AS email"))
    assert before != spec_of_crm(root).code_version


def test_a_sync_has_every_sync_check(root: Path) -> None:
    """A model with a key has the check of its invalid records."""
    keys = build_definitions(root).resolve_asset_graph().asset_check_keys
    assert {dg.AssetCheckKey(PUSH, name) for name in SYNC_CHECKS} | {dg.AssetCheckKey(CRM, "invalid_records")} == set(
        keys
    )


def test_a_run_stays_in_one_process(root: Path) -> None:
    """Otherwise each step would start its own JVM."""
    assert dg.in_process_executor is build_definitions(root).executor
    assert build_definitions(root, with_executor=False).executor is None


def test_all_problems_of_models_and_push_functions_are_reported_at_once(root: Path) -> None:
    """If only one were reported at a time, the user would have to reload for each problem."""
    (root / "models" / "raw" / "bad.sql").write_text("-- @kind: merg\nSELECT 1 AS a\n")
    (root / "lib" / "crm_push.star").write_text('API = {"bas_url": ""}\ndef push(rows):\n    return {}\n')
    with pytest.raises(ProjectError) as caught:
        build_definitions(root)
    assert {"models/raw/bad.sql", "lib/crm_push.star"} == {problem.file for problem in caught.value.problems}


def test_loading_a_project_causes_no_warnings(root: Path) -> None:
    """Preview features warn once for each asset, and two hundred lines hide the one that matters."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_definitions(root).resolve_asset_graph()


def test_keys_that_dagster_would_confuse_get_different_names() -> None:
    """Dagster would give the name a__b both to the key a/b and to the key a__b."""
    keys = (["a", "b__c"], ["a__b", "c"], ["a_", "_b"], ["a", "b"], ["push", "a", "b"], ["a___b"])
    names = [op_name(dg.AssetKey(path)) for path in keys]
    assert len(keys) == len(set(names))
    assert "a__b" == op_name(dg.AssetKey(["a", "b"]))


def test_the_data_version_of_a_written_model_is_the_version_of_its_table(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """It is set through a half private function of Dagster. This test fails when that function is gone."""
    definitions = definitions_of(shop.workspace, open_service=shop.open_engine)
    job = definitions.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=dagster_instance, asset_selection=[dg.AssetKey(["raw", "contacts"])])
    (event,) = result.asset_materializations_for_node("raw__contacts")
    assert "id-of-contacts@0" == event.tags["dagster/data_version"]
    assert {"dagster/row_count", "version", "run type", "reason", "dagster/column_schema"} <= set(event.metadata)


def test_a_column_description_applies_whatever_the_case_of_the_name(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> None:
    """Spark ignores the case of column names, so users do too."""
    path = shop.root / "models" / "raw" / "contacts.sql"
    path.write_text(f"-- @column: EMAIL = Where to write to\n{path.read_text()}")
    job = definitions_of(shop.workspace, open_service=shop.open_engine).resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=dagster_instance, asset_selection=[dg.AssetKey(["raw", "contacts"])])
    (event,) = result.asset_materializations_for_node("raw__contacts")
    columns = event.metadata["dagster/column_schema"].schema.columns
    assert {"id": None, "email": "Where to write to"} == {column.name: column.description for column in columns}


def test_a_schedule_runs_the_model_and_its_sync(root: Path) -> None:
    """The models above them have their own schedules."""
    path = root / "models" / "sync" / "crm.sql"
    path.write_text(f"-- @schedule: 0 6 * * mon-fri\n{path.read_text()}")
    definitions = build_definitions(root)
    schedule = definitions.get_repository_def().get_schedule_def("sync__crm__schedule")
    assert ("0 6 * * mon-fri", "UTC") == (schedule.cron_schedule, schedule.execution_timezone)
    assert dg.DefaultScheduleStatus.RUNNING is schedule.default_status
    graph = definitions.resolve_asset_graph()
    assert {CRM, PUSH} == schedule.target.resolvable_to_job.selection.resolve(graph)


def test_maintenance_and_fact_tables_have_schedules(root: Path) -> None:
    """Users don't think of them. A project without syncs has tables to maintain, but it has sent nothing."""
    schedules = build_definitions(root).get_repository_def().schedule_defs
    assert {"ondatra_fact_tables": "0 */6 * * *", "ondatra_maintain": "20 3 * * *"} == {
        schedule.name: schedule.cron_schedule for schedule in schedules
    }
    assert {("UTC", dg.DefaultScheduleStatus.RUNNING)} == {
        (schedule.execution_timezone, schedule.default_status) for schedule in schedules
    }
    (root / "models" / "sync" / "crm.sql").unlink()
    remaining_schedules = build_definitions(root).get_repository_def().schedule_defs
    assert ["ondatra_maintain"] == [schedule.name for schedule in remaining_schedules]


@pytest.mark.parametrize(("said", "crons"), [("0 1 * * sun", ["0 1 * * sun"]), ("off", [])])
def test_the_user_decides_when_maintenance_runs(root: Path, said: str, crons: list[str]) -> None:
    """Or the user turns it off, and lets the machine's cron call the command."""
    (root / "pyproject.toml").write_text(f'[tool.ondatra]\nmaintain_at = "{said}"\n')
    schedules = build_definitions(root).get_repository_def().schedule_defs
    assert crons == [schedule.cron_schedule for schedule in schedules if schedule.name == "ondatra_maintain"]
