"""The runs that `ondatra run` starts: Dagster in the same process, on the project's own instance."""

import logging
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.orchestration.in_process_run import DagsterRunResult, open_instance, report_waits, run_plan
from ondatra_dagster.orchestration.run_tags_and_abandoned_runs import LOCK_TAG, close_abandoned_runs, lock_run
from ondatra_dagster.testing.demo_api.demo_server import DemoApi
from ondatra_dagster.warehouse.spark import table_locks

DAGSTER_YAML = """
storage: {sqlite: {base_dir: .ondatra/dagster}}
telemetry: {enabled: false}
"""


def run(shop: ShopProject) -> DagsterRunResult:
    workspace = shop.workspace
    with shop.open_engine(workspace) as engine:
        return run_plan(engine, workspace.plan(), trigger="test")


def test_a_run_reports_each_model_and_sync_and_is_in_dagsters_history(
    shop: ShopProject, api: DemoApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The paths in dagster.yaml are relative to the project, in whichever folder the command is called."""
    monkeypatch.chdir(tmp_path)
    (shop.root / "dagster.yaml").write_text(DAGSTER_YAML)
    end = run(shop)
    assert end.is_successful
    assert ["raw.contacts", "sync.crm"] == [result.model.name for result in shop.progress.model_results]
    (sync,) = shop.progress.sync_results
    assert ("test", end.run_id) == _last_occasion(shop)
    assert sync.summary.has_run
    assert (shop.root / ".ondatra" / "dagster" / "history").is_dir()
    assert not (tmp_path / ".ondatra").exists()
    with open_instance(shop.workspace.settings) as instance:
        assert dg.DagsterRunStatus.SUCCESS == instance.get_run_by_id(end.run_id).status  # type: ignore[union-attr]


def test_only_models_and_syncs_with_work_run(shop: ShopProject, api: DemoApi) -> None:
    """Thirty steps that do nothing would take four seconds."""
    run(shop)
    shop.progress.model_results.clear()
    api.fail(status=503, times=1, path="/crm/*")
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.org")
    assert not run(shop).is_successful  # the one attempted row met an outage
    assert ["raw.contacts", "sync.crm"] == [result.model.name for result in shop.progress.model_results]
    assert not shop.workspace.plan().has_work


def test_a_failed_check_with_severity_error_fails_the_run(shop: ShopProject, api: DemoApi) -> None:
    """A scheduler looks at the exit code, which is 1 then."""
    write_contacts(shop.root, a1="nonsense")
    assert not run(shop).is_successful


def test_dagsters_log_does_not_reach_the_screen(
    shop: ShopProject, api: DemoApi, capfd: pytest.CaptureFixture[str]
) -> None:
    """The lines for the user would be hard to find in it."""
    run(shop)
    assert ("", "") == capfd.readouterr()


def test_a_run_without_dagster_yaml_keeps_its_history_in_the_state_folder(shop: ShopProject, api: DemoApi) -> None:
    """No file of Dagster may appear in the project's own folder."""
    before = {path.name for path in shop.root.iterdir()}
    run(shop)
    assert before | {".ondatra"} == {path.name for path in shop.root.iterdir()}


def test_dagster_home_decides_where_the_history_is(
    shop: ShopProject, api: DemoApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A user who has set it looks for the history there."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    run(shop)
    assert (home / "history").is_dir()


def _last_occasion(shop: ShopProject) -> tuple[str, str | None]:
    (past,) = shop.workspace.history.list_runs()
    return past.trigger, past.dagster_run_id


@dg.op
def nothing() -> None: ...


@dg.job
def some_job() -> None:
    nothing()


DIES_IN_A_RUN = """
import sys, time
from pathlib import Path
from ondatra_dagster.orchestration.run_tags_and_abandoned_runs import lock_run
class Elsewhere:
    def add_run_tags(self, run_id, tags):
        pass  # the history is the test's
with lock_run(Elsewhere(), Path(sys.argv[1]), sys.argv[2]):
    print("holds it", flush=True)
    time.sleep(600)
"""


def a_started_run(dagster_instance: dg.DagsterInstance) -> str:
    run = dagster_instance.create_run_for_job(some_job, status=dg.DagsterRunStatus.STARTED)
    return run.run_id


def status(dagster_instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    run = dagster_instance.get_run_by_id(run_id)
    assert run
    return run.status


def test_a_run_whose_process_died_is_marked_as_failed(tmp_path: Path, dagster_instance: dg.DagsterInstance) -> None:
    """Dagster would show it as running forever, and with one run at a time it would start no other."""
    run_id = a_started_run(dagster_instance)
    child = subprocess.Popen(
        [sys.executable, "-c", DIES_IN_A_RUN, str(tmp_path), run_id], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout
    assert "holds it\n" == child.stdout.readline()
    dagster_instance.add_run_tags(run_id, {LOCK_TAG: "yes"})
    close_abandoned_runs(dagster_instance, tmp_path)
    assert dg.DagsterRunStatus.STARTED == status(dagster_instance, run_id)
    child.kill()
    child.communicate()
    close_abandoned_runs(dagster_instance, tmp_path)
    assert dg.DagsterRunStatus.FAILURE == status(dagster_instance, run_id)
    assert [] == list((tmp_path / "locks" / "runs").iterdir())


def test_a_run_that_has_released_its_lock_is_not_marked_as_failed(
    tmp_path: Path, dagster_instance: dg.DagsterInstance
) -> None:
    """A sensor may look before Dagster has stored the end. A push that succeeded would be shown as failed."""
    run_id = a_started_run(dagster_instance)
    with lock_run(dagster_instance, tmp_path, run_id):
        pass
    close_abandoned_runs(dagster_instance, tmp_path)
    assert dg.DagsterRunStatus.STARTED == status(dagster_instance, run_id)


def test_a_run_in_progress_is_not_marked_as_failed(tmp_path: Path, dagster_instance: dg.DagsterInstance) -> None:
    """A run without a lock of ours isn't changed either."""
    ours, foreign = a_started_run(dagster_instance), a_started_run(dagster_instance)
    with lock_run(dagster_instance, tmp_path, ours):
        close_abandoned_runs(dagster_instance, tmp_path)
        assert dg.DagsterRunStatus.STARTED == status(dagster_instance, ours)
    assert dg.DagsterRunStatus.STARTED == status(dagster_instance, foreign)
    assert [] == list((tmp_path / "locks" / "runs").iterdir())


def test_a_run_that_waits_for_another_one_reports_it() -> None:
    """It may wait for up to ten minutes, in which it prints nothing else."""
    messages: list[str] = []
    with report_waits(messages.append):
        logging.getLogger(table_locks.__name__).warning("waiting for run x, which holds mart.a")
    logging.getLogger(table_locks.__name__).debug("not told")
    assert ["waiting for run x, which holds mart.a"] == messages
