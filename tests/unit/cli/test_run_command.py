"""The `ondatra run` command: its output during a run, and its exit code."""

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.testing.demo_api.demo_server import DemoApi


def test_each_model_and_sync_has_its_line(shop: ShopProject, ondatra: CommandLine) -> None:
    """The lines are on stderr, because stdout is for programs."""
    result = ondatra.run_project(shop)
    assert (0, "") == (result.exit_code, result.stdout)
    lines = [line.split()[:2] for line in result.stderr.splitlines()]
    models, first, sync = lines[1:3], lines[3], lines[4]
    assert [["✓", "raw.contacts"], ["✓", "sync.crm"]] == models
    assert (["sync.crm", "runs"], ["→", "sync.crm"]) == (first, sync)
    assert "delivered 2 inserts" in result.stderr


def test_only_the_selected_models_and_their_syncs_run(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """The user is working on one of two hundred tables."""
    assert 0 == ondatra("run", "raw.*", shop=shop).exit_code
    assert (["raw.contacts"], ()) == (shop.tables.computed_models, api.calls)
    assert 0 == ondatra("run", "kind:merge", shop=shop).exit_code
    assert (["raw.contacts", "sync.crm"], 2) == (shop.tables.computed_models, len(api.calls))


def test_a_full_refresh_needs_a_flag(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """It runs although nothing has changed. Rows that a merge would keep are deleted, at the API too."""
    ondatra.run_project(shop)
    write_contacts(shop.root, a1="ada@example.com")
    assert 0 == ondatra("run", shop=shop).exit_code
    assert {"a1", "b2"} == set(api.contacts())
    lines = ondatra("run", "--full-refresh", "sync.crm", "raw.contacts", "--json", shop=shop).json_lines
    assert ["full", "full"] == [line["run_type"] for line in lines if "model" in line]
    assert ["raw.contacts", "sync.crm"] == shop.tables.refreshed_models
    assert {"a1"} == set(api.contacts())


def test_spark_starts_while_dagster_is_loaded(shop: ShopProject, ondatra: CommandLine) -> None:
    """Both take seconds. Spark's settings depend on the amount of data to read."""
    ondatra.run_project(shop)
    assert ["raw.contacts", "sync.crm"] == shop.tables.started_early_for


def test_no_wait_is_announced_for_a_remote_spark(
    shop: ShopProject, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With spark.remote the process only connects, so there is no start of ten seconds."""
    monkeypatch.setenv("ONDATRA_SPARK_REMOTE", "sc://127.0.0.1:9")
    assert "2 models and 1 sync to check" == ondatra("run", shop=shop).stderr.splitlines()[0]


def test_a_run_without_work_starts_nothing(shop: ShopProject, ondatra: CommandLine) -> None:
    """This test runs the real command, without a replacement for Spark."""
    ondatra.run_project(shop)
    result = ondatra("run")
    assert (0, "nothing to do: 2 models and 1 sync have no changes\n") == (result.exit_code, result.stderr)
    assert [{"run": None, "ok": True, "reason": "nothing to do"}] == ondatra("run", "--json").json_lines


def test_waiting_rows_are_reported_when_there_is_nothing_to_do(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """Otherwise the user would forget them until someone looks at the destination."""
    api.fail(status=400, times=1, path="/crm/*")
    ondatra.run_project(shop)
    assert "sync.crm: 1 row to be retried in" in ondatra("run").stderr


JOBS = """
API = {
    "base_url": "BASE", "auth": {"env": "DEMO_API_KEY"},
    "push": {"batch_mode": "async", "poll_interval": "5m"},
}

def push(rows):
    return {"id": http.post("/crm/jobs", json={"operations": []}).json["id"]}

def poll(job_ref):
    return {"done": False}
"""


def test_open_jobs_are_reported_when_there_is_nothing_to_do(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """Their rows aren't retried: the next run polls the jobs."""
    (shop.root / "lib" / "crm_push.star").write_text(JOBS.replace("BASE", api.url))
    ondatra.run_project(shop)
    (sync_line,) = [line for line in ondatra("run").stderr.splitlines() if line.startswith("sync.crm")]
    assert "sync.crm: 2 rows in open jobs to be polled in 5 min" == sync_line


def test_a_program_gets_one_object_per_line(shop: ShopProject, ondatra: CommandLine) -> None:
    """stdout contains nothing else."""
    contacts, crm, notice, sync, end = ondatra.run_project(shop, as_json=True).json_lines
    assert ("raw.contacts", 2, True) == (contacts["model"], contacts["rows"], contacts["changed"])
    assert ("sync.crm", "backfill") == (crm["model"], crm["run_type"])
    assert str(notice["notice"]).startswith("sync.crm runs for the first time: 2 inserts")
    assert {"insert": 2, "update": 0, "delete": 0} == sync["counts"]["succeeded"]  # type: ignore[index]
    assert {"pass"} == set(sync["checks"].values())  # type: ignore[union-attr, attr-defined]
    assert end["ok"]


def test_a_failed_sync_gives_exit_code_one_and_the_reason(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """Rows for an endpoint that always answers 500 must not look like a success."""
    api.fail(status=500, times=None, path="/crm/*")
    result = ondatra.run_project(shop)
    assert 1 == result.exit_code
    assert "✗ sync.crm" in result.stderr
    assert "ERROR: the API is down" in result.stderr
    api.recover()


def test_failed_rows_are_reported_with_their_number_and_keys(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """Rejected rows are reported in the same way. A bare "conflict" could mean one row or all rows."""
    api.fail(status=409, times=None, path="/crm/*", message="conflict")
    lines = [line.strip() for line in ondatra.run_project(shop).stderr.splitlines()]
    assert [line for line in lines if "conflict" in line] == ['2 rows (a1, b2): {"error":"conflict"}']
    api.recover()


def test_a_run_that_attempts_nothing_reports_the_last_outage_as_a_warning(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """It made no call, and the API may be up again. A user who reads "FAILED" looks for a reason."""
    api.fail(status=503, times=None, path="/crm/*")
    ondatra.run_project(shop)
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com")  # the same rows, with a new modification time
    calls = len(api.calls)
    result = ondatra.run_project(shop)
    assert (0, calls) == (result.exit_code, len(api.calls))
    (warning,) = [line for line in result.stderr.splitlines() if "the API" in line]
    assert "warning: the API was down at the newest try; 2 rows to be retried in " in warning
    assert "succeeded" in result.stderr
    api.recover()


def test_a_failed_model_is_reported_in_a_sentence(shop: ShopProject, ondatra: CommandLine) -> None:
    """The screen shows no traceback."""
    shop.tables.failing_models.add("sync.crm")
    result = ondatra.run_project(shop)
    assert 1 == result.exit_code
    assert "sync.crm can't be computed; look at it" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_error_of_a_sync_is_shown_once(
    shop: ShopProject, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable isn't set. The line of the sync contains the sentence, so it isn't repeated below."""
    monkeypatch.delenv("DEMO_API_KEY", raising=False)
    (shop.root / ".env").unlink()
    result = ondatra.run_project(shop)
    assert 1 == result.exit_code
    after = result.stderr.partition("✗ sync.crm")[2]
    assert 1 == after.count("DEMO_API_KEY")


def test_rejects_are_shown_with_their_reason(shop: ShopProject, ondatra: CommandLine) -> None:
    """The user first asks which rows, and then why."""
    write_contacts(shop.root, a1="ada@example.com", b2="nonsense", nobody="x@example.com")
    result = ondatra.run_project(shop)
    assert 0 == result.exit_code
    assert "b2: {" in result.stderr
    assert "1 invalid" in result.stderr


def test_a_reason_is_shown_once_with_the_number_and_keys_of_its_rows(shop: ShopProject, ondatra: CommandLine) -> None:
    """A refused group of forty rows doesn't fill forty lines. The most frequent reason comes first."""
    (shop.root / "lib" / "crm_push.star").write_text(
        "SAID = {'b': 'no mail', 'c': 'too old', 'd': 'too new', 'e': 'nonsense'}\n"
        "def push(rows):\n"
        '    return {"%d:insert" % r["__ondatra_rowid"]: "reject: " + SAID[r["id"][0]] for r in rows}\n'
    )
    write_contacts(shop.root, **dict.fromkeys(("e1", "d1", "d2", "c1", "c2", "b1", "b2", "b3", "b4"), "x"))
    result = ondatra.run_project(shop)
    lines = [line.strip() for line in result.stderr.splitlines()]
    begin = lines.index("4 rows (b1, b2, b3 and others): no mail")
    reason_lines = lines[begin : begin + 4]
    assert {"2 rows (c1, c2): too old", "2 rows (d1, d2): too new"} == set(reason_lines[1:3])
    assert "1 more row for other reasons" == reason_lines[3]
    assert "nonsense" not in result.stderr


def test_rows_delivered_with_a_warning_are_reported(shop: ShopProject, ondatra: CommandLine) -> None:
    """They arrived, so the run succeeds, but the user should look at them."""
    (shop.root / "lib" / "crm_push.star").write_text(
        'def push(rows):\n    return {str(r["__ondatra_rowid"]) + ":insert": "warn: phone dropped" for r in rows}\n'
    )
    result = ondatra.run_project(shop)
    assert 0 == result.exit_code
    assert "delivered 2 inserts; 2 with a warning" in result.stderr
    assert ["2 rows (a1, b2): phone dropped"] == [
        line.strip() for line in result.stderr.splitlines() if "phone" in line
    ]
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com", c3="cyn@example.com")
    sync = next(json_line for json_line in ondatra.run_project(shop, as_json=True).json_lines if "sync" in json_line)
    assert (1, "warn") == (sync["warned"], sync["checks"]["rejects"])  # type: ignore[index]


def test_an_error_after_the_delivery_is_only_a_warning(shop: ShopProject, ondatra: CommandLine) -> None:
    """All rows have arrived. A user who reads that the run failed would send them again."""
    folder = shop.root / ".ondatra" / "tracking" / "metadata"
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    result = ondatra.run_project(shop)
    assert 0 == result.exit_code
    assert "warning: the source and destination tables were not updated: " in result.stderr
    write_contacts(shop.root, a1="ada@example.org")
    sync = next(json_line for json_line in ondatra.run_project(shop, as_json=True).json_lines if "sync" in json_line)
    assert 1 == len(sync["warnings"])  # type: ignore[arg-type]


@pytest.mark.parametrize("selection", ["nope", "raw.contact", "+"])
def test_a_selection_without_models_is_a_wrong_invocation(
    shop: ShopProject, ondatra: CommandLine, selection: str
) -> None:
    """A typing error must not look like "nothing to do"."""
    result = ondatra("run", selection)
    assert 2 == result.exit_code
    assert 1 == len(result.stderr.splitlines())


def test_a_selection_without_its_inputs_says_what_to_select(shop: ShopProject, ondatra: CommandLine) -> None:
    """The run is refused before anything starts."""
    result = ondatra("run", "sync.crm")
    assert (2, "sync.crm needs raw.contacts to be computed first; select +sync.crm to do that\n") == (
        result.exit_code,
        result.stderr,
    )


def test_a_failed_check_is_reported_and_gives_exit_code_one(shop: ShopProject, ondatra: CommandLine) -> None:
    """A failed @warning is only a line in the output."""
    path = shop.root / "models" / "sync" / "crm.sql"
    text = path.read_text()
    write_contacts(shop.root, a1="ada@example.com", b2="nonsense")
    path.write_text(f"-- @warning: email LIKE '%@%'\n{text}")
    result = ondatra.run_project(shop)
    assert 0 == result.exit_code
    assert "warning: 1 of 2 rows fails @warning email LIKE '%@%'" in result.stderr
    path.write_text(f"-- @audit: email LIKE '%@%'\n{text}")
    result = ondatra.run_project(shop, as_json=True)
    assert (1, "sync.crm") == (result.exit_code, result.json_lines[0]["failed"])


def test_a_program_gets_the_checks_of_a_model(shop: ShopProject, ondatra: CommandLine) -> None:
    """It gets the checks of a sync in the same way."""
    path = shop.root / "models" / "sync" / "crm.sql"
    path.write_text(f"-- @warning: email LIKE '%@%'\n{path.read_text()}")
    _, crm, *_ = ondatra.run_project(shop, as_json=True).json_lines
    assert {"warning_email_like": "pass"} == crm["checks"]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        pytest.param(
            {"ONDATRA_JARS": "no jars", "ONDATRA_MAVEN_MIRROR": "http://127.0.0.1:9"},
            "Delta's jars are not in {root}/no jars and could not be fetched: ",
            id="no jars",
        ),
        pytest.param(
            {"ONDATRA_JAVA_HOME": "no java"},
            "ONDATRA_JAVA_HOME is {root}/no java, which has no bin/java: set it to the folder of a Java",
            id="no Java",
        ),
    ],
)
def test_a_missing_part_of_the_machine_is_reported_without_a_sql_line(
    shop: ShopProject, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    """This test runs the real command without replacement tables. It stops at this error."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = ondatra("run", "raw.contacts")
    assert 1 == result.exit_code
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("✗")]
    assert line.removeprefix("✗ raw.contacts  ").startswith(said.format(root=shop.root))
