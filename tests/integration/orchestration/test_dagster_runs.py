"""Runs of Dagster over real assets, IO managers, queues and push functions; only the tables are plain Python."""

import json
from collections.abc import Callable

import dagster as dg
import pytest
from support.projects.shop_project import ShopProject, write_contacts
from support.projects.ui_client import PageReader

from ondatra_dagster.app.push_and_check_sync import current_verdicts
from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.cli.main import run_verb
from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.orchestration.run_tags_and_abandoned_runs import ALLOW_DELETES, FULL_REFRESH
from ondatra_dagster.sync.send_guards import pause_sync, resume_sync
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

CRM = dg.AssetKey(["sync", "crm"])
PUSH = dg.AssetKey(["push", "sync", "crm"])
Materialize = Callable[..., dg.ExecuteInProcessResult]


def checks(result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
    """Return for each check of the sink whether it passed, and its severity."""
    evaluations = [evaluation for evaluation in result.get_asset_check_evaluations() if evaluation.asset_key == PUSH]
    return {check.check_name: (check.passed, check.severity.value) for check in evaluations}


@pytest.fixture
def run_single_check(
    shop: ShopProject, dagster_instance: dg.DagsterInstance
) -> Callable[[str], dg.AssetCheckEvaluation]:
    """Return a function that runs one check of the sink and nothing else."""

    def run(check: str) -> dg.AssetCheckEvaluation:
        definitions = definitions_of(shop.workspace, open_service=shop.open_engine)
        job = dg.define_asset_job("alone", dg.AssetSelection.checks(dg.AssetCheckKey(PUSH, check)))
        resolved = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job])).resolve_job_def("alone")
        (evaluation,) = resolved.execute_in_process(instance=dagster_instance).get_asset_check_evaluations()
        return evaluation

    return run


def data_version(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> str:
    (materialization,) = result.asset_materializations_for_node("__".join(key.path))
    return materialization.tags["dagster/data_version"]


def test_the_first_run_creates_the_tables_and_sends_every_row(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """The rows go the whole way: model, IO manager, queue, push function, API."""
    result = materialize(shop)
    assert result.success
    assert ["raw.contacts", "sync.crm"] == shop.tables.computed_models
    assert {"a1", "b2"} == set(api.contacts())


def test_an_unchanged_model_is_materialized_with_its_data_version(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """Downstream assets must see that nothing changed, and Spark must not compute anything."""
    first = materialize(shop)
    second = materialize(shop)
    assert second.success
    assert 2 == len(shop.tables.computed_models)
    assert data_version(first, CRM) == data_version(second, CRM) == "id-of-crm@0"


def test_a_materialization_shows_the_type_of_its_run(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """Over the weeks users see which models are always computed in full, and which never have new rows."""
    run_types = [run_of_crm(materialize(shop))]
    run_types.append(run_of_crm(materialize(shop)))
    write_contacts(shop.root, a1="ada@example.com", c3="cyn@example.com")
    run_types.append(run_of_crm(materialize(shop)))
    run_types.append(run_of_crm(materialize(shop, tags={FULL_REFRESH: "true"})))
    expected = [
        # run type, version, rows in the table, written, changed, removed
        ("backfill", 0, 2, 2, 0, 0),
        ("skip", 0, 2, 0, 0, 0),
        ("incremental", 1, 3, 1, 0, 0),
        ("full", 2, 2, 0, 0, 1),
    ]
    assert expected == run_types


def run_of_crm(result: dg.ExecuteInProcessResult) -> tuple[object, ...]:
    (event,) = result.asset_materializations_for_node("sync__crm")
    names = ("run type", "version", "dagster/row_count", "inserted", "updated", "deleted")
    return tuple(event.metadata[name].value for name in names)


def test_a_materialization_shows_where_its_columns_come_from(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """Dagster draws the lineage from this, upstream and downstream, also for a run in which nothing changed."""
    raw = dg.AssetKey(["raw", "contacts"])
    expected = dg.TableColumnLineage(
        {name: [dg.TableColumnDep(asset_key=raw, column_name=name)] for name in ("id", "email")}
    )
    for result in (materialize(shop), materialize(shop)):
        (event,) = result.asset_materializations_for_node("sync__crm")
        assert expected == event.metadata["dagster/column_lineage"].value


def test_only_changed_rows_are_sent(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """This is the main purpose of ondatra."""
    materialize(shop)
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.org")
    result = materialize(shop)
    assert "id-of-crm@1" == data_version(result, CRM)
    assert ["PATCH /crm/contacts/b2"] == [f"{call.method} {call.path}" for call in api.calls[2:]]


def test_a_model_that_returned_the_same_rows_is_not_computed_again(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """A run that wrote nothing leaves no commit. Without the cache the model would be computed in each run."""
    materialize(shop)
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com")  # a new file time, but the same rows
    materialize(shop)
    materialize(shop)
    assert ["raw.contacts", "sync.crm", "raw.contacts"] == shop.tables.computed_models


def test_a_lost_cache_costs_one_more_computation(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """The cache holds nothing else, so users don't have to back it up."""
    materialize(shop)
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com")  # a new file time, but the same rows
    materialize(shop)
    (shop.root / ".ondatra" / "cache.sqlite").unlink()
    shop.tables.computed_models.clear()
    calls = len(api.calls)
    materialize(shop)
    materialize(shop)
    assert (["raw.contacts"], calls) == (shop.tables.computed_models, len(api.calls))


def test_a_model_below_a_failed_one_does_not_run(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """Its table would be computed from incomplete data."""
    shop.tables.failing_models.add("raw.contacts")
    result = materialize(shop)
    assert not result.success
    assert ["raw.contacts"] == shop.tables.computed_models
    assert [("raw.contacts", "raw.contacts can't be computed; look at it")] == shop.progress.failures


def test_an_unexpected_failure_is_one_message_and_its_traceback_is_kept(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """A traceback on the screen doesn't help users, but the developers need it."""
    (shop.root / "data" / "contacts.csv").write_text("wrong\nheads\n")
    materialize(shop)
    ((name, message),) = shop.progress.failures
    log = shop.root / ".ondatra" / "logs" / "errors.log"
    assert ("raw.contacts", f"KeyError: 'id'; the whole trace is in {log}") == (name, message)
    assert "Traceback" in log.read_text()


def test_a_state_folder_that_dagster_created_becomes_private(materialize: Materialize, shop: ShopProject) -> None:
    """`dagster dev` creates the folder for its own history with ordinary permissions, before there are rows in it."""
    state = shop.root / ".ondatra"
    state.mkdir(mode=0o755)
    materialize(shop)
    assert 0o700 == state.stat().st_mode & 0o777


def test_an_api_that_is_down_fails_the_run_and_its_check(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """Users of such tools complain most about successful runs with undelivered rows."""
    api.fail(status=503, times=None, path="/crm/*")
    result = materialize(shop)
    assert not result.success
    assert (False, "ERROR") == checks(result)["undelivered"]
    api.recover()


def test_a_run_that_attempts_nothing_warns_of_the_earlier_outage(
    materialize: Materialize,
    shop: ShopProject,
    api: DemoApi,
    run_single_check: Callable[[str], dg.AssetCheckEvaluation],
) -> None:
    """The run, its check and the check alone agree: rows wait, and the state of the API is unknown."""
    api.fail(status=503, times=None, path="/crm/*")
    materialize(shop)
    result = materialize(shop)
    assert (True, (False, "WARN")) == (result.success, checks(result)["undelivered"])
    evaluation = run_single_check("undelivered")
    assert (False, "WARN") == (evaluation.passed, evaluation.severity.value)
    assert (evaluation.description or "").startswith("the API was down at the newest try; 2 rows to be retried")
    api.recover()


def test_rejects_of_an_earlier_run_do_not_fail_a_run_that_sends_nothing(
    materialize: Materialize,
    shop: ShopProject,
    api: DemoApi,
    run_single_check: Callable[[str], dg.AssetCheckEvaluation],
) -> None:
    """The dead letters stay a warning until the operator has fixed them."""
    write_contacts(shop.root, a1="nonsense", b2="more of it")
    materialize(shop)
    result = materialize(shop)
    assert (True, (False, "WARN")) == (result.success, checks(result)["rejects"])
    description = "2 rows rejected by the newest run; 2 dead letters: see `ondatra dead sync.crm`"
    assert description == run_single_check("rejects").description


def test_a_run_succeeds_while_another_process_delivers_the_sync(
    materialize: Materialize,
    shop: ShopProject,
    api: DemoApi,
    run_single_check: Callable[[str], dg.AssetCheckEvaluation],
) -> None:
    """Its late rows don't fail this run, because the other process delivers them and is checked for the delay."""
    path = shop.root / "models" / "sync" / "crm.sql"
    path.write_text(f"-- @max_lag: 1h\n{path.read_text()}")
    api.fail(status=400, times=1, path="/crm/*")
    materialize(shop)
    shop.clock_offset = 7200
    sync = shop.workspace.sync("sync.crm")
    with sync.open_queue():
        result = materialize(shop)
    assert (True, (False, "WARN")) == (result.success, checks(result)["undelivered"])
    assert "ERROR" == run_single_check("undelivered").severity.value


def test_a_run_whose_rows_are_all_rejected_fails(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """The run of the sink fails, and no check stays planned."""
    write_contacts(shop.root, a1="nonsense", b2="more of it")
    result = materialize(shop)
    assert not result.success
    assert (False, "ERROR") == checks(result)["rejects"]
    assert {"rejects", "undelivered", "invalid_records", "deletes_guard"} == set(checks(result))


def test_rows_delivered_with_a_warning_are_shown_as_samples(materialize: Materialize, shop: ShopProject) -> None:
    """The samples are on the sink's page and in its check."""
    (shop.root / "lib" / "crm_push.star").write_text(
        'def push(rows):\n    return {str(r["__ondatra_rowid"]) + ":insert": "warn: phone dropped" for r in rows}\n'
    )
    result = materialize(shop)
    assert (True, (False, "WARN")) == (result.success, checks(result)["rejects"])
    (push,) = result.asset_materializations_for_node("push__sync__crm")
    assert 2 == push.metadata["warned"].value
    (reason,) = push.metadata["sample warnings"].records
    assert {"reason": "phone dropped", "units": 2, "keys": "a1, b2"} == reason.data
    (check,) = (
        verdict
        for verdict in current_verdicts(shop.workspace, shop.workspace.sync("sync.crm"))
        if verdict.name == "rejects"
    )
    assert ("2 rows delivered with a warning", ({"reason": "phone dropped", "units": 2, "keys": "a1, b2"},)) == (
        check.description,
        check.samples,
    )


def test_a_rejected_row_does_not_stop_the_others(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """The check is a warning with a sample, and the other rows arrive."""
    write_contacts(shop.root, a1="ada@example.com", b2="nonsense")
    result = materialize(shop)
    assert result.success
    assert (False, "WARN") == checks(result)["rejects"]
    assert {"a1"} == set(api.contacts())
    (push,) = result.asset_materializations_for_node("push__sync__crm")
    (sample,) = push.metadata["sample rejects"].records
    assert (1, "b2") == (sample.data["units"], sample.data["keys"])


def test_a_push_reports_the_counts_of_its_rows_and_its_queue(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """Dagster draws the numbers over time, and users look at the table first."""
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com")
    materialize(shop)
    write_contacts(shop.root, a1="nonsense", b2="bob@example.org", c3="cyn@example.com", nobody="who@example.com")
    api.fail(status=400, times=1, path="/crm/contacts/b2")
    (push,) = materialize(shop).asset_materializations_for_node("push__sync__crm")
    grid = {
        record.data["units"]: tuple(record.data[operation] for operation in ("insert", "update", "delete"))
        for record in push.metadata["counts"].records
    }
    assert {
        "planned": (1, 2, 0),
        "attempted": (1, 2, 0),
        "succeeded": (1, 0, 0),
        "rejected": (0, 1, 0),
        "failed": (0, 1, 0),
        "in_jobs": (0, 0, 0),
        "not_sent": (0, 0, 0),
        "invalid": (1, 0, 0),
    } == grid
    assert (1, 1) == (push.metadata["queue depth"].value, push.metadata["dead letters"].value)
    assert 0 <= push.metadata["oldest waits seconds"].value
    assert "incremental: version 1 is new" == push.metadata["mode"].value


@pytest.mark.parametrize(
    ("check", "before", "after"),
    [
        ("rejects", (False, "WARN"), (True, "ERROR")),
        ("undelivered", (False, "WARN"), (True, "ERROR")),
        ("invalid_records", (False, "WARN"), (False, "WARN")),
        ("deletes_guard", (True, "ERROR"), (True, "ERROR")),
    ],
)
def test_a_check_runs_alone_and_has_another_result_after_a_replay(
    materialize: Materialize,
    shop: ShopProject,
    api: DemoApi,
    run_single_check: Callable[[str], dg.AssetCheckEvaluation],
    monkeypatch: pytest.MonkeyPatch,
    check: str,
    before: tuple[bool, str],
    after: tuple[bool, str],
) -> None:
    """An operator fixes the problem and wants to see that in Dagster without another push."""
    contacts = {"a1": "ada@example.com", "b2": "bob@example.com", "c3": "cyn@example.com"}
    write_contacts(shop.root, **contacts, nobody="who@example.com")
    api.fail(status=422, times=1, path="/crm/*")
    api.fail(status=400, times=1, path="/crm/*")
    materialize(shop)
    calls = len(api.calls)
    first = run_single_check(check)
    assert (check, before) == (first.check_name, (first.passed, first.severity.value))
    assert ("samples" in first.metadata) is not first.passed
    assert calls == len(api.calls)  # the check pushes nothing
    monkeypatch.chdir(shop.root)
    assert 0 == run_verb(["replay", "sync.crm"])
    second = run_single_check(check)
    assert after == (second.passed, second.severity.value)


def test_rows_without_a_key_are_a_warning_on_their_model(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """They are invalid, counted and shown. The other rows are delivered."""
    write_contacts(shop.root, a1="ada@example.com", nobody="who@example.com")
    result = materialize(shop)
    (check,) = [check for check in result.get_asset_check_evaluations() if check.asset_key == CRM]
    assert (False, "WARN") == (check.passed, check.severity.value)
    assert 1 == check.metadata["NULL"].value
    assert {"a1"} == set(api.contacts())


def test_the_check_of_a_model_that_did_not_run_still_counts_invalid_rows(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """The rows are still there. A passed check would say that the user had fixed them."""
    write_contacts(shop.root, a1="ada@example.com", nobody="who@example.com")
    materialize(shop)
    result = materialize(shop)
    (check,) = [check for check in result.get_asset_check_evaluations() if check.asset_key == CRM]
    assert (False, 1) == (check.passed, check.metadata["invalid_rows"].value)


def test_a_push_with_nothing_to_read_reads_no_feed(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """A retry must not wait for a JVM."""
    materialize(shop)
    before = shop.tables.feed_read_count
    assert materialize(shop, PUSH).success
    assert before == shop.tables.feed_read_count


def test_a_missing_secret_fails_the_push_with_a_message(
    materialize: Materialize, shop: ShopProject, api: DemoApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret is looked up only when the sync runs, and only that sync may fail because of it."""
    monkeypatch.delenv("DEMO_API_KEY", raising=False)
    (shop.root / ".env").unlink()
    result = materialize(shop)
    assert not result.success
    (heard,) = shop.progress.sync_results
    assert "DEMO_API_KEY" in heard.summary.message
    assert (False, "ERROR") == checks(result)["undelivered"]


def test_a_run_with_the_full_refresh_tag_recomputes_its_models(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """The option `--full-refresh` of the command line and the tag in the UI do the same."""
    materialize(shop)
    shop.tables.computed_models.clear()
    result = materialize(shop, CRM, tags={FULL_REFRESH: "true"})
    assert result.success
    assert (["sync.crm"], ["sync.crm"]) == (shop.tables.computed_models, shop.tables.refreshed_models)
    assert ("full", "a full refresh was requested") == (
        shop.progress.model_results[-1].run_type,
        shop.progress.model_results[-1].reason,
    )


@pytest.mark.parametrize("said", ["false", "No", ""])
def test_a_full_refresh_tag_with_the_value_no_has_no_effect(
    materialize: Materialize, shop: ShopProject, said: str
) -> None:
    """A full refresh deletes rows, so a false in the launchpad must mean false."""
    materialize(shop)
    materialize(shop, CRM, tags={FULL_REFRESH: said})
    assert [] == shop.tables.refreshed_models


def a_guarded(shop: ShopProject) -> None:
    """Write three contacts, and allow one delete before a test removes two of them."""
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com", c3="cyn@example.com")
    model = shop.root / "models" / "sync" / "crm.sql"
    model.write_text(f"-- @max_deletes: 1\n{model.read_text()}")


@pytest.mark.parametrize(("tag", "is_let_go"), [("sync.crm", True), ("true", True), ("sync.erp", False)])
def test_more_deletes_than_allowed_wait_for_the_tag(
    materialize: Materialize, shop: ShopProject, api: DemoApi, tag: str, *, is_let_go: bool
) -> None:
    """A tag in Dagster's launchpad does the same as the option of the command line."""
    a_guarded(shop)
    materialize(shop)
    write_contacts(shop.root, a1="ada@example.com")
    result = materialize(shop, tags={FULL_REFRESH: "true"})
    assert not result.success
    assert (False, "ERROR") == checks(result)["deletes_guard"]
    assert {"a1", "b2", "c3"} == set(api.contacts())
    (check,) = [
        evaluation for evaluation in result.get_asset_check_evaluations() if evaluation.check_name == "deletes_guard"
    ]
    assert ["b2", "c3"] == [record.data["key"] for record in check.metadata["samples"].records]
    result = materialize(shop, PUSH, tags={ALLOW_DELETES: tag})
    assert (is_let_go, ["a1"] if is_let_go else ["a1", "b2", "c3"]) == (result.success, sorted(api.contacts()))


def test_a_paused_sync_queues_rows_and_sends_them_when_it_is_resumed(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """Models still run while an API is being moved, and nothing is lost."""
    (sync,) = shop.workspace.syncs.values()
    pause_sync(sync)
    result = materialize(shop)
    assert result.success
    assert () == api.calls
    assert (False, "WARN") == checks(result)["undelivered"]
    (sync_result,) = shop.progress.sync_results
    paused = "sync.crm is paused; `ondatra resume sync.crm` continues it: 2 inserts pending"
    assert paused == sync_result.summary.message
    assert resume_sync(sync)
    assert materialize(shop, PUSH).success
    assert {"a1", "b2"} == set(api.contacts())
    assert not resume_sync(sync)


def test_dry_sinks_show_what_they_would_send(
    materialize: Materialize, shop: ShopProject, api: DemoApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts and samples are what a user wants to see before a new sink goes live."""
    monkeypatch.setenv("ONDATRA_SINKS", "dry")
    result = materialize(shop)
    (push,) = result.asset_materializations_for_node("push__sync__crm")
    grid = {record.data["units"]: record.data["insert"] for record in push.metadata["counts"].records}
    assert (2, 0, 0) == (grid["planned"], grid["attempted"], grid["succeeded"])
    assert "sinks are dry, nothing was sent: 2 inserts pending" == push.metadata["message"].value
    assert ["a1", "b2"] == [record.data["key"] for record in push.metadata["sample waiting"].records]


@pytest.mark.parametrize("sinks", ["off", "dry"])
def test_sinks_that_are_not_on_send_nothing(
    materialize: Materialize, shop: ShopProject, api: DemoApi, sinks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When they are switched on again, every change is still sent."""
    monkeypatch.setenv("ONDATRA_SINKS", sinks)
    assert materialize(shop).success
    assert () == api.calls
    monkeypatch.delenv("ONDATRA_SINKS")
    materialize(shop)
    assert {"a1", "b2"} == set(api.contacts())


def test_records_are_stored_in_the_folder_and_organization_of_the_settings(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """Many projects store their records in one place."""
    (shop.root / "pyproject.toml").write_text(
        '[tool.ondatra]\ntracking = "records"\norganization = "acme"\nworkspace = "shop"\n'
    )
    materialize(shop)
    (metadata,) = shop.root.glob("records/sync_tracking_datasets/acme/sync.crm/*/metadata.json")
    content = json.loads(metadata.read_text())
    assert ("acme", "shop") == (content["organization_id"], content["workspace_id"])
    facts = {"source_objects.parquet", "destinations.parquet", "destination_objects.parquet"}
    assert facts == {path.name for path in shop.root.glob("records/metadata/acme/*.parquet")}
    assert not (shop.root / ".ondatra" / "tracking").exists()


def test_a_run_succeeds_when_the_fact_tables_cannot_be_written(
    materialize: Materialize, shop: ShopProject, api: DemoApi
) -> None:
    """The rows were delivered. The next run or `ondatra maintain` writes the fact tables."""
    folder = shop.root / ".ondatra" / "tracking" / "metadata"
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    result = materialize(shop)
    assert result.success
    assert {"a1", "b2"} == set(api.contacts())
    (warning,) = shop.progress.sync_results[-1].warnings
    assert "the source and destination tables were not updated: " in warning
    assert "can't be read (" in warning
    folder.unlink()
    write_contacts(shop.root, a1="ada@example.org")
    assert materialize(shop).success
    assert () == shop.progress.sync_results[-1].warnings
    assert (folder / "1" / "destinations.parquet").exists()


def test_a_push_links_to_the_records_page(materialize: Materialize, shop: ShopProject, api: DemoApi) -> None:
    """The link has no token, because Dagster's history isn't the place for one."""
    result = materialize(shop)
    (event,) = result.asset_materializations_for_node("push__sync__crm")
    run_id = shop.workspace.history.list_runs("sync.crm")[0].run_id
    address = event.metadata["records page"].value
    assert f"http://127.0.0.1:8323/syncs/sync.crm/runs/{run_id}" == address
    assert 200 == PageReader(ProjectCache(shop.root))(str(address).removeprefix("http://127.0.0.1:8323")).status
