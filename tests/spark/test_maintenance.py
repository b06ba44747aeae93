"""The maintenance of real tables: versions that a reader still needs stay, and the others are freed."""

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from support.spark.aged_delta_tables import age_table, parquet_files
from support.spark.model_tables import ModelTables, build_model, values_query
from support.spark.spark_project import SparkProject

from ondatra_dagster.cli.commands.maintain import run_maintenance
from ondatra_dagster.cli.commands.run import RunCommandOptions, execute_plan
from ondatra_dagster.delivery.queue.queue_status import read_status_of_file
from ondatra_dagster.deltalog.active_files import read_table_snapshot
from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.deltalog.removable_history import (
    FILE_RETENTION_PROPERTY,
    NORMAL_RETENTION,
    RETENTION_PROPERTIES,
    find_last_equal_commit,
    find_oldest_readable_version,
)
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.operations.maintenance_task_runner import TaskResult
from ondatra_dagster.operations.table_maintenance import ManagedTable, TableMaintenance, Thresholds
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.settings.storage_access import S3Access, StorageAddress
from ondatra_dagster.testing.demo_api import DEMO_KEY, DemoApi
from ondatra_dagster.warehouse.optimize_and_vacuum import SparkTableMaintenance
from ondatra_dagster.warehouse.spark.session import Warehouse

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
NOW = 2_000_000_000.0


def look_after(
    model_tables: ModelTables,
    model: Model,
    *,
    needed: int,
    now: float,
    days: int = 7,
    path: str | None = None,
    clock: Callable[[], float] | None = None,
) -> TaskResult:
    address = StorageAddress(path or model_tables.path(model), S3Access())
    table = ManagedTable(name=model.name, lock_name=model.id, address=address, oldest_needed_version=lambda _: needed)
    upkeep = TableMaintenance(
        lambda table: SparkTableMaintenance(model_tables.warehouse, table.address, lock=table.lock_name),
        days=days,
        clock=clock or (lambda: now),
        worth=Thresholds(small_files=10, files=1, log_files=10),
    )
    return upkeep.maintain_tables([table])


def live(path: str) -> set[str]:
    table = read_table_snapshot(path)
    assert table is not None
    return {str(Path(file.path).relative_to(path)) for file in table.files}


def now_of(model_tables: ModelTables, model: Model) -> float:
    changed_at = model_tables.state(model).changed_at
    assert changed_at is not None
    return changed_at.timestamp()


def old_versions(model_tables: ModelTables, kind: str, *, count: int) -> Model:
    """Write this number of versions, four days apart and the newest from now, and return the model."""
    for number in range(count):
        if number:
            age_table(
                model_tables.warehouse.session, model_tables.path(build_model(kind, "")), days=4, with_checkpoints=True
            )
        rows = [f"1, 'v{number}'", *(f"{10 + n}, 'x'" for n in range(number + 1))]
        model_tables.write(build_model(kind, values_query(*rows)))
    return build_model(kind, "")


@pytest.mark.parametrize("kind", ["merge", "scd2"])
def test_versions_that_a_late_reader_needs_stay_and_the_rest_is_freed(model_tables: ModelTables, kind: str) -> None:
    """The reader is versions and weeks behind. Feed and snapshot don't change from its watermark on."""
    model = old_versions(model_tables, kind, count=6)
    now, first = now_of(model_tables, model), model_tables.feed_values(model, 1)
    before, files = model_tables.feed_values(model, 3), parquet_files(model_tables.path(model))
    snapshot = model_tables.feed_values(model, None, 3)
    result = look_after(model_tables, model, needed=3, now=now)
    assert result.is_successful, result.message
    assert first != before == model_tables.feed_values(model, 3)
    assert snapshot == model_tables.feed_values(model, None, 3)
    freed = files - parquet_files(model_tables.path(model))
    assert 0 < result.counts["files"] == len(freed)
    state = model_tables.state(model)
    assert NORMAL_RETENTION == state.properties[FILE_RETENTION_PROPERTY]

    age_table(model_tables.warehouse.session, model_tables.path(model), days=60)
    result = look_after(model_tables, model, needed=state.version, now=now)
    assert result.is_successful, result.message
    assert live(model_tables.path(model)) == parquet_files(model_tables.path(model))
    assert state.version == model_tables.state(model).version
    assert state.commit_metadata == model_tables.state(model).commit_metadata
    assert model_tables.feed_values(model, None, state.version)
    assert 0 == look_after(model_tables, model, needed=state.version, now=now).counts["tables"]


def test_maintenance_that_takes_hours_does_not_free_more(model_tables: ModelTables) -> None:
    """It decides at its beginning what it may free, but VACUUM counts back from its own start."""
    model = old_versions(model_tables, "merge", count=5)
    now, before = now_of(model_tables, model), model_tables.feed_values(model, 3)
    moments = iter([now])
    result = look_after(model_tables, model, needed=3, now=now, clock=lambda: next(moments, now + 5 * 86_400))
    assert result.is_successful, result.message
    assert before == model_tables.feed_values(model, 3)
    log = Path(model_tables.path(model), "_delta_log")
    actions = [orjson.loads(line) for path in log.glob("*.json") for line in path.read_bytes().splitlines()]
    commits = [action["commitInfo"] for action in actions if "commitInfo" in action]
    (vacuum,) = [commit for commit in commits if commit["operation"] == "VACUUM START"]
    assert 12 * 86_400_000 < int(vacuum["operationParameters"]["defaultRetentionMillis"])


def test_a_vacuum_is_skipped_when_the_machine_was_suspended_before_it(model_tables: ModelTables) -> None:
    """VACUUM would also free files that were removed in the hours between our look at the clock and its own."""
    model = old_versions(model_tables, "merge", count=5)
    now, changes, files = (
        now_of(model_tables, model),
        model_tables.feed_values(model, 1),
        parquet_files(model_tables.path(model)),
    )
    moments = iter([now, now])  # the start of maintenance, and the calculation of its retention
    result = look_after(model_tables, model, needed=3, now=now, clock=lambda: next(moments, now + 7200))
    assert (True, 0) == (result.is_successful, result.counts["files"])
    assert "skipped this time, because the machine was suspended: mart.things" in result.message
    assert (files, changes) == (parquet_files(model_tables.path(model)), model_tables.feed_values(model, 1))
    state = model_tables.state(model)
    assert (NORMAL_RETENTION, -1) == (
        state.properties[FILE_RETENTION_PROPERTY],
        find_oldest_readable_version(model_tables.path(model), state),
    )
    assert 0 < look_after(model_tables, model, needed=3, now=now).counts["files"]


def test_reading_invalid_rows_begins_at_the_oldest_version_left(model_tables: ModelTables) -> None:
    """A sync may read them for the first time after the first versions were freed."""
    model = build_model("merge", "")
    beside = f"{model_tables.path(model)}__invalid"
    for number in range(5):
        if number:
            age_table(model_tables.warehouse.session, beside, days=4, with_checkpoints=True)
        model_tables.write(build_model("merge", values_query("1, 'a'", f"null, 'v{number}'")))
    assert ["v0", "v1", "v2", "v3", "v4"] == invalid_values(model_tables, model)
    state = read_table_state(beside)
    assert state
    assert state.changed_at
    result = look_after(model_tables, model, needed=state.version, now=state.changed_at.timestamp(), path=beside)
    assert result.is_successful, result.message
    assert 0 < result.counts["files"]
    assert ["v2", "v3", "v4"] == invalid_values(model_tables, model)


def invalid_values(model_tables: ModelTables, model: Model) -> list[str]:
    return [orjson.loads(row.payload)["name"] for row in model_tables.invalid(model, -1)]


def test_small_files_are_compacted_and_old_commits_are_deleted(model_tables: ModelTables) -> None:
    """Each append writes a file. Metadata and version of the newest commit stay, so no model runs because of this."""
    model = build_model("append", "")
    for number in range(13):
        if number:
            age_table(model_tables.warehouse.session, model_tables.path(model), days=4, with_checkpoints=True)
        model_tables.write(build_model("append", values_query(f"{number}, 'x'")))
    before, changes = model_tables.state(model), model_tables.feed_values(model, 1)
    rows = sorted(map(str, model_tables.rows(model).collect()))
    result = look_after(model_tables, model, needed=1, now=now_of(model_tables, model))
    assert (13, 1) == (result.counts["small_files"], result.counts["became"])
    assert 1 == len(live(model_tables.path(model)))
    assert before.log_version < model_tables.state(model).log_version
    assert changes == model_tables.feed_values(model, 1)
    assert 0 == look_after(model_tables, model, needed=1, now=now_of(model_tables, model)).counts["tables"]

    log = Path(model_tables.path(model), "_delta_log")
    commits = len(list(log.glob("*.json")))
    result = look_after(model_tables, model, needed=before.version, now=now_of(model_tables, model))
    assert result.is_successful, result.message
    assert 10 <= result.counts["log_files"]
    assert commits > len(list(log.glob("*.json")))
    after = model_tables.state(model)
    assert (before.version, before.commit_metadata, before.columns) == (
        after.version,
        after.commit_metadata,
        after.columns,
    )
    model_tables.warehouse.session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert rows == sorted(map(str, model_tables.rows(model).collect()))
    assert model_tables.feed_values(model, find_last_equal_commit(model_tables.path(model), before.version - 1))
    model_tables.write(build_model("append", values_query("99, 'again'")))
    assert before.version < model_tables.state(model).version


def cut_off_vacuum(model_tables: ModelTables, model: Model) -> None:
    """Leave the table in the state in which a process leaves it that is killed during VACUUM."""
    upkeep = SparkTableMaintenance(model_tables.warehouse, model_tables.path(model), lock=model.id)
    upkeep._set_properties({**RETENTION_PROPERTIES, FILE_RETENTION_PROPERTY: "interval 3600 seconds"})


def test_a_killed_vacuum_is_repaired_by_the_next_write_or_maintenance(model_tables: ModelTables) -> None:
    """Until then Delta refuses all versions older than those that the VACUUM was to keep."""
    model = old_versions(model_tables, "merge", count=3)
    changes = model_tables.feed_values(model, 1)
    cut_off_vacuum(model_tables, model)
    with pytest.raises(WarehouseError):
        model_tables.feed_values(model, 1)
    result = look_after(model_tables, model, needed=0, now=now_of(model_tables, model))
    assert (1, 0) == (result.counts["restored"], result.counts["files"])
    assert NORMAL_RETENTION == model_tables.state(model).properties[FILE_RETENTION_PROPERTY]
    assert changes == model_tables.feed_values(model, 1)

    cut_off_vacuum(model_tables, model)
    model_tables.write(build_model("merge", values_query("1, 'newer'")))
    assert NORMAL_RETENTION == model_tables.state(model).properties[FILE_RETENTION_PROPERTY]
    assert len(changes) < len(model_tables.feed_values(model, 1))


# --- a whole project

CSV = "csv.`data/people.csv` WITH ('header' = 'true')"
FILES = {
    "models/raw/people.sql": f"-- @kind: merge\n-- @unique_key: customer_id\nSELECT * FROM {CSV}\n",
    "models/mart/past.sql": "-- @kind: scd2\n-- @unique_key: customer_id\nSELECT * FROM raw.people\n",
    "models/mart/seen.sql": "-- @kind: append\nSELECT customer_id, name FROM raw.people\n",
    "models/sync/crm.sql": (
        "-- @kind: merge\n-- @unique_key: customer_id\n-- @sink: crm_push\n"
        "SELECT customer_id, name, email FROM raw.people\n"
    ),
}
COLUMNS = ("customer_id", "name", "email")


@pytest.fixture
def shop(tmp_path: Path, shared_warehouse: Warehouse, api: DemoApi) -> SparkProject:
    shop = SparkProject(tmp_path / "my shop", shared_warehouse.session)
    push = (ROOT / "lib" / "crm_push.star").read_text().replace('"http://127.0.0.1:8321"', f'"{api.url}"')
    shop.write_files({**FILES, "lib/crm_push.star": push, ".env": f"DEMO_API_KEY={DEMO_KEY}\n"})
    shop.write_files({"pyproject.toml": "[tool.ondatra]\n"})
    return shop


def set_sinks(shop: SparkProject, how: str) -> None:
    shop.write_files({"pyproject.toml": f'[tool.ondatra]\nsinks = "{how}"\n'})


def people(number: int) -> list[tuple[str, str, str]]:
    """Return the people of that version: each time one changes, one is added and one is removed."""
    return [
        ("C-1", f"Ada {number}", "ada@x.org"),
        *((f"C-{10 + n}", f"Ben {n}", f"b{n}@x.org") for n in range(number, number + 5)),
    ]


def run_some(shop: SparkProject, *models: str) -> None:
    workspace = shop.workspace
    plan = workspace.plan(set(models))
    assert 0 == execute_plan(
        workspace, plan, RunCommandOptions(as_json=True), open_service=shop._open_engine_without_sync_log
    )


def told_by(shop: SparkProject, capfd: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    """Run `ondatra maintain`, and return the result of each duty."""
    capfd.readouterr()
    code = run_maintenance(shop.workspace, as_json=True, open_service=shop.open_engine)
    lines = [orjson.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert 0 == code, lines
    return {line["task"]: line for line in lines}


def contacts(api: DemoApi) -> set[tuple[object, ...]]:
    return {(key, row["name"], row["email"]) for key, row in api.contacts().items()}


@pytest.mark.soak  # takes a minute; the tests above show the same for single tables
def test_a_sync_ten_versions_and_forty_days_behind_loses_nothing(
    shop: SparkProject, api: DemoApi, capfd: pytest.CaptureFixture[str]
) -> None:
    """Versions that no reader needs are freed in tables of every kind. No model and no sync runs because of this."""
    shop.write_rows("people", COLUMNS, people(0))
    assert 0 == shop.run()
    models = shop.workspace.plan().models
    set_sinks(shop, "off")
    row_by_id = {row[0]: row for row in people(0)}
    for number in range(1, 11):
        for name in ("raw.people", "mart.past", "mart.seen", "sync.crm"):
            age_table(shop.session, shop.table_path(name), days=4)
        shop.write_rows("people", COLUMNS, people(number))
        row_by_id |= {row[0]: row for row in people(number)}
        past = ["mart.past"] if number > 3 else []  # seven versions of it are enough
        run_some(shop, "raw.people", "sync.crm", *past)  # mart.seen doesn't run
    assert len(models) == 4
    before = {name: parquet_files(shop.table_path(name)) for name in ("mart.past", "raw.people", "sync.crm")}
    queue = shop.workspace.syncs["sync.crm"].queue_file
    watermark = read_status_of_file(queue, now=NOW).watermark

    results_without_sinks = told_by(shop, capfd)
    assert results_without_sinks["feeds"]["versions"] == 0
    assert results_without_sinks["tables"]["files"] > 0
    assert before["mart.past"] > parquet_files(shop.table_path("mart.past"))
    assert (before["raw.people"], before["sync.crm"]) == (  # still to be read by a sync or a model
        parquet_files(shop.table_path("raw.people")),
        parquet_files(shop.table_path("sync.crm")),
    )
    assert [] == [
        step.model.name for step in shop.workspace.plan().models if step.will_run and step.model.name != "mart.seen"
    ]

    set_sinks(shop, "on")
    results_with_sinks = told_by(shop, capfd)
    assert 10 <= results_with_sinks["feeds"]["versions"]
    state = read_table_state(shop.table_path("sync.crm"))
    assert watermark < read_status_of_file(queue, now=NOW).watermark == state.version
    assert before["sync.crm"] > parquet_files(shop.table_path("sync.crm"))
    queue.unlink()  # a rebuilt queue needs no version that was freed
    assert 0 == shop.run()
    assert set(row_by_id.values()) == contacts(api)
    assert [("C-1", f"Ada {number}") for number in (0, 10)] == sorted(
        (row["customer_id"], row["name"])
        for row in shop.session.read.format("delta").load(shop.table_path("mart.seen")).collect()
        if row["customer_id"] == "C-1"
    )
    assert not told_by(shop, capfd)["tables"]["small_files"]
    assert [] == [step.model.name for step in shop.workspace.plan().models if step.will_run]
    assert [] == [step.sync_id for step in shop.workspace.plan().syncs if step.will_run]
    assert not shop.workspace.sync_work(shop.workspace.syncs["sync.crm"]).has_work  # as sensors check it
