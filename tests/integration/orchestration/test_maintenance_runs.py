"""The maintenance duties: through Dagster's jobs, by `ondatra maintain`, and at the end of a run."""

import dataclasses
import logging
import shutil
import time
from pathlib import Path

import dagster as dg
import orjson
import pyarrow.parquet as pq
import pytest
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.cli.commands.maintain import run_maintenance
from ondatra_dagster.cli.commands.run import execute_plan
from ondatra_dagster.deltalog.removable_history import FREED_UPTO_PROPERTY
from ondatra_dagster.errors import BusyError, WarehouseError
from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.sync.send_guards import pause_sync, resume_sync
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

TASKS = [
    *("feeds", "sync_log", "tracking_retention", "fact_tables"),
    *("tables", "dead_letters", "state_files", "logs", "alerts"),
]


def send(shop: ShopProject) -> int:
    """Return the exit code of `ondatra run`."""
    workspace = shop.workspace
    return execute_plan(workspace, workspace.plan(None), open_service=shop.open_engine)


def job(shop: ShopProject, dagster_instance: dg.DagsterInstance, name: str) -> dg.ExecuteInProcessResult:
    definitions = definitions_of(shop.workspace, open_service=shop.open_engine)
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    return definitions.resolve_job_def(name).execute_in_process(
        instance=dagster_instance, raise_on_error=False, run_config=quiet
    )


def refuse() -> None:
    raise WarehouseError("no room")


def be_busy() -> None:
    raise BusyError("ondatra.sync_log is held by process 7")


def test_maintain_does_and_reports_each_duty(shop: ShopProject, capfd: pytest.CaptureFixture[str]) -> None:
    """Programs get one JSON object for each duty, and people get one line."""
    send(shop)
    capfd.readouterr()
    assert 0 == run_maintenance(shop.workspace, as_json=True, open_service=shop.open_engine)
    output = capfd.readouterr()
    lines = {line["task"]: line for line in map(orjson.loads, output.out.splitlines())}
    assert [(task, True) for task in TASKS] == [(name, line["ok"]) for name, line in lines.items()]
    assert (2, 0, 1) == (
        lines["sync_log"]["records"],
        lines["tracking_retention"]["runs"],
        lines["fact_tables"]["destinations"],
    )
    assert "✓ sync_log: 2 records appended to ondatra.sync_log" in output.err
    assert 2 == len(shop.tables.log.read_rows())


def test_a_failed_duty_does_not_stop_the_others(shop: ShopProject, capfd: pytest.CaptureFixture[str]) -> None:
    """The exit code is still 1."""
    send(shop)
    shop.tables.log.on_commit = lambda _: refuse()
    assert 1 == run_maintenance(shop.workspace, as_json=False, open_service=shop.open_engine)
    stderr = capfd.readouterr().err
    assert "✗ sync_log: no room" in stderr
    assert "✓ fact_tables: the source and destination tables describe 1 sync" in stderr


def test_an_unexpected_error_in_a_duty_does_not_stop_the_others(
    shop: ShopProject, capfd: pytest.CaptureFixture[str]
) -> None:
    """The traceback is in a file, for the developer."""
    send(shop)
    shop.tables.log.on_commit = None
    assert 1 == run_maintenance(shop.workspace, as_json=False, open_service=shop.open_engine)
    stderr = capfd.readouterr().err
    assert "✗ sync_log: TypeError: " in stderr
    assert f"; the whole trace is in {shop.root}/.ondatra/logs/errors.log" in stderr
    assert "✓ fact_tables: the source and destination tables describe 1 sync" in stderr


def test_dagsters_maintenance_job_does_the_same_duties(shop: ShopProject, dagster_instance: dg.DagsterInstance) -> None:
    """The job and `ondatra maintain` share their code."""
    send(shop)
    result = job(shop, dagster_instance, "ondatra_maintain_job")
    assert result.success
    assert 2 == len(shop.tables.log.read_rows())
    (output,) = [event for event in result.all_events if event.is_successful_output]
    shown = output.step_output_data.metadata
    assert {"sync_log/records": 2, "tracking_retention/runs": 0} == {
        name: shown[name].value for name in ("sync_log/records", "tracking_retention/runs")
    }


def test_a_failed_duty_fails_dagsters_run(shop: ShopProject, dagster_instance: dg.DagsterInstance) -> None:
    """The failure of the run has the duty's message."""
    send(shop)
    shop.tables.log.on_commit = lambda _: refuse()
    result = job(shop, dagster_instance, "ondatra_maintain_job")
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "no room" in str(failure.step_failure_data.user_failure_data)


def test_the_fact_tables_have_a_separate_job(shop: ShopProject, dagster_instance: dg.DagsterInstance) -> None:
    """A sync is in the fact tables before it has sent anything."""
    assert job(shop, dagster_instance, "ondatra_fact_tables_job").success
    facts = Path(shop.workspace.settings.tracking) / "metadata" / "1"
    assert ["Demo"] == pq.read_table(facts / "destinations.parquet")["name"].to_pylist()


def test_a_run_that_has_started_spark_writes_the_sync_log(shop: ShopProject) -> None:
    """Other runs don't write the log, and don't start Spark for it."""
    send(shop)
    assert [] == shop.tables.log.read_rows()
    shop.tables.is_open = True
    (shop.root / "data" / "contacts.csv").write_text("id,email\na1,ada@example.net\n")
    assert 0 == send(shop)
    assert 3 == len(shop.tables.log.read_rows())


@pytest.mark.parametrize("trouble", [refuse, be_busy])
def test_a_run_succeeds_when_the_sync_log_cannot_be_written(
    shop: ShopProject, caplog: pytest.LogCaptureFixture, trouble: object
) -> None:
    """The rows have arrived. The next run appends the missing records."""
    caplog.set_level(logging.WARNING)
    shop.tables.is_open = True
    shop.tables.log.on_commit = lambda _: trouble()
    assert 0 == send(shop)
    messages = [record.getMessage() for record in caplog.records if "sync log" in record.getMessage()]
    assert (["the sync log was not updated: no room"] if trouble is refuse else []) == messages
    assert [] == shop.tables.log.read_rows()
    shop.tables.log.on_commit = lambda _: None
    (shop.root / "data" / "contacts.csv").write_text("id,email\na1,ada@example.net\n")
    send(shop)
    assert 3 == len(shop.tables.log.read_rows())


def test_a_restored_queue_from_before_freed_versions_fails_the_run(
    shop: ShopProject, capfd: pytest.CaptureFixture[str]
) -> None:
    """The user restored an older state. A run that reads on from there would miss changes."""
    send(shop)
    table = shop.tables.table("sync.crm")
    for name in ("ann", "amy"):
        write_contacts(shop.root, a1=f"{name}@example.com", b2="bob@example.com")
        workspace = shop.workspace
        execute_plan(workspace, workspace.plan({"raw.contacts"}), open_service=shop.open_engine)
    pause_sync(shop.workspace.syncs["sync.crm"])
    shutil.copytree(shop.workspace.settings.state / "queue", shop.root / "backup")
    send(shop)
    log = table.path / "_delta_log"
    newest = orjson.loads((log / f"{table.version:020}.json").read_bytes().splitlines()[1])
    newest["metaData"]["configuration"] = {FREED_UPTO_PROPERTY: str(table.version)}
    (log / f"{table.version + 1:020}.json").write_bytes(orjson.dumps(newest))
    for folder in ("queue", "tracking"):
        shutil.rmtree(shop.workspace.settings.state / folder)
    shutil.copytree(shop.root / "backup", shop.workspace.settings.state / "queue")
    resume_sync(shop.workspace.syncs["sync.crm"])
    capfd.readouterr()
    assert 1 == send(shop)
    assert "were removed, after a newer state of sync.crm had" in capfd.readouterr().err


def test_maintain_reads_new_versions_into_queues_and_sends_nothing(
    shop: ShopProject, api: DemoApi, capfd: pytest.CaptureFixture[str]
) -> None:
    """Unread versions would keep disk space from being freed. A lost queue is rebuilt from the new watermark."""
    send(shop)
    write_contacts(shop.root, a1="ann@example.com", b2="bob@example.com")
    workspace = shop.workspace
    (shop.root / "pyproject.toml").write_text('[tool.ondatra]\nsinks = "off"\n')
    send(shop)
    (shop.root / "pyproject.toml").write_text("[tool.ondatra]\n")
    before = api.contacts()
    assert 0 == run_maintenance(shop.workspace, as_json=False, open_service=shop.open_engine)
    assert "✓ feeds: 1 sync enqueued new versions" in capfd.readouterr().err
    assert before == api.contacts()
    queue = workspace.queue("sync.crm")
    snapshot = workspace.tracking.read_newest_snapshot("sync.crm")
    assert queue is not None
    assert snapshot is not None
    assert (1, 1, 1) == (queue.watermark, snapshot.watermark, queue.pending_units)
    assert [] == [step.model.name for step in workspace.plan().models if step.will_run]
    workspace.syncs["sync.crm"].queue_file.unlink()
    assert 0 == send(shop)
    assert {"ann@example.com", "bob@example.com"} == {row["email"] for row in api.contacts().values()}


def test_maintain_does_not_touch_sinks_that_are_off(shop: ShopProject, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing of them runs. Their watermark keeps the versions that they need."""
    send(shop)
    write_contacts(shop.root, a1="ann@example.com")
    (shop.root / "pyproject.toml").write_text('[tool.ondatra]\nsinks = "off"\n')
    send(shop)
    capfd.readouterr()
    assert 0 == run_maintenance(shop.workspace, as_json=False, open_service=shop.open_engine)
    assert "✓ feeds: every sync has its table's newest version" in capfd.readouterr().err
    queue = shop.workspace.queue("sync.crm")
    assert queue is not None
    assert 0 == queue.watermark


def test_dead_letters_are_reported_with_their_age(
    shop: ShopProject, api: DemoApi, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing else reminds the operator of old dead letters."""
    api.fail(status=422, times=10, path="/crm/*")
    send(shop)
    workspace = dataclasses.replace(shop.workspace, clock=lambda: time.time() + 3 * 86_400)
    capfd.readouterr()
    assert 0 == run_maintenance(workspace, as_json=False, open_service=shop.open_engine)
    assert "dead_letters: 2 dead letters of sync.crm, the oldest of 3 days" in capfd.readouterr().err


def test_maintain_reports_a_queue_in_use(shop: ShopProject, capfd: pytest.CaptureFixture[str]) -> None:
    """Maintenance doesn't touch a queue that another process has open."""
    send(shop)
    capfd.readouterr()
    sync = shop.workspace.syncs["sync.crm"]
    with sync.open_queue():
        assert 0 == run_maintenance(shop.workspace, as_json=False, open_service=shop.open_engine)
    assert "in use, so skipped this time: sync.crm" in capfd.readouterr().err
