"""The commands that only read: their output and their exit codes. Also `init`, `validate` and `replay`."""

import contextlib
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.processes.cli_terminal import CommandLine
from support.processes.killed_dagster_push import run_killed_push
from support.projects.shop_project import WHOLE_TABLE_FILES, ShopProject, write_contacts, write_shop_files
from support.projects.shop_with_history import run_shop

from ondatra_dagster.cli.main import VERBS
from ondatra_dagster.operations.alert_store import Alert, AlertStore, RuleResult
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.send_guards import pause_sync
from ondatra_dagster.testing.demo_api.demo_server import DemoApi


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(ondatra: CommandLine, verb: str) -> None:
    """Most users read nothing else."""
    result = ondatra(verb, "--help")
    assert 0 == result.exit_code
    assert f"Usage: ondatra {verb}" in result.stdout


@pytest.mark.parametrize("words", [["nope"], ["run", "--nope"], ["dead"], ["replay", "x", "--limit", "0"]])
def test_a_wrong_invocation_gives_exit_code_two(ondatra: CommandLine, words: list[str]) -> None:
    """A script can distinguish its own mistake from a failure."""
    assert 2 == ondatra(*words).exit_code


def test_outside_of_a_project_a_command_says_how_to_get_one(
    ondatra: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = ondatra("status")
    assert (1, f"{tmp_path} is not in an ondatra project; change into one, or create one: ondatra init DIR\n") == (
        result.exit_code,
        result.stderr,
    )


def test_commands_work_in_any_folder_of_the_project(
    shop: ShopProject, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users run them in the folder where they edit files."""
    monkeypatch.chdir(shop.root / "models" / "raw")
    assert 0 == ondatra("validate").exit_code


# --- init


def test_init_creates_a_valid_project(ondatra: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its path contains a space, and it has no __pycache__ folder."""
    folder = tmp_path / "new project"
    assert 0 == ondatra("init", str(folder)).exit_code
    assert [] == list(folder.rglob("__pycache__"))
    monkeypatch.chdir(folder)
    assert 0 == ondatra("validate").exit_code


def test_init_refuses_a_folder_that_is_not_empty(ondatra: CommandLine, tmp_path: Path) -> None:
    """It may contain the user's work."""
    (tmp_path / "mine.txt").write_text("mine")
    result = ondatra("init", str(tmp_path))
    assert (1, ["mine.txt"]) == (result.exit_code, [path.name for path in tmp_path.iterdir()])
    assert "is not empty" in result.stderr


# --- validate


def test_validate_reports_every_problem_of_every_file(shop: ShopProject, ondatra: CommandLine) -> None:
    """Models and push functions are reported together, with file and line."""
    (shop.root / "models" / "raw" / "bad.sql").write_text("-- @kind: merg\nSELECT 1 AS a\n")
    (shop.root / "lib" / "crm_push.star").write_text('API = {"bas_url": ""}\ndef push(rows):\n    return {}\n')
    result = ondatra("validate")
    assert 1 == result.exit_code
    assert "models/raw/bad.sql:1: @kind 'merg' is not a kind" in result.stderr
    assert "lib/crm_push.star:1:" in result.stderr
    levels = [(line["level"], line["file"]) for line in ondatra("validate", "--json").json_lines]
    assert [("error", "lib/crm_push.star"), ("error", "models/raw/bad.sql")] == levels


def test_an_unset_variable_is_a_warning_and_with_strict_an_error(
    shop: ShopProject, ondatra: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI doesn't have the secrets. On the machine that needs them, the user wants an error."""
    monkeypatch.delenv("DEMO_API_KEY", raising=False)
    (shop.root / ".env").unlink()
    loose, strict = ondatra("validate"), ondatra("validate", "--strict")
    assert (0, 1) == (loose.exit_code, strict.exit_code)
    assert "the variable DEMO_API_KEY is not set" in loose.stderr


def test_a_helper_library_is_not_a_sink(shop: ShopProject, ondatra: CommandLine) -> None:
    """A file that others load needs no push()."""
    (shop.root / "lib" / "words.star").write_text("def twice(text):\n    return text + text\n")
    assert 0 == ondatra("validate").exit_code
    (shop.root / "models" / "raw" / "bad.sql").write_text("-- @kind: merg\nSELECT 1 AS a\n")
    assert "words.star" not in ondatra("validate").stderr


def test_settings_are_validated_too(shop: ShopProject, ondatra: CommandLine) -> None:
    """The message suggests the nearest right name."""
    (shop.root / "pyproject.toml").write_text('[tool.ondatra]\nwarehous = "x"\n')
    result = ondatra("validate")
    assert 1 == result.exit_code
    assert "warehouse" in result.stderr


# --- status, history, dead


def test_status_shows_models_and_syncs_before_and_after_a_run(shop: ShopProject, ondatra: CommandLine) -> None:
    """One screen shows the existing rows, the waiting rows and the work of the next run."""
    before = ondatra("status").stdout
    assert "it has no table yet" in before
    run_shop(shop)
    model, crm, sync = ondatra("status", "--json").json_lines
    assert ("raw.contacts", 2, 0, False) == (model["model"], model["rows"], model["version"], model["will_run"])
    assert ("sync.crm", "merge") == (crm["model"], crm["kind"])
    assert ("sync.crm", 0, 0, "succeeded") == (sync["sync"], sync["waiting"], sync["dead"], sync["result"])


def test_status_shows_when_waiting_rows_are_retried(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """The user looks at the status for this time."""
    api.fail(status=400, times=1, path="/crm/*")
    run_shop(shop)
    *_, sync = ondatra("status", "--json").json_lines
    assert 1 == sync["waiting"]
    assert 40 <= int(str(sync["next_retry_seconds"])) <= 75
    assert "next retry" in ondatra("status").stdout


def test_new_rows_are_not_shown_as_due(shop: ShopProject, ondatra: CommandLine) -> None:
    """Only retries are due, and new rows have waited for no time."""
    pause_sync(shop.workspace.syncs["sync.crm"])
    run_shop(shop)
    shown = ondatra("status").stdout
    assert "2 pending" in shown
    assert "due" not in shown


def test_a_queue_file_without_tables_is_no_error(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """A process was killed before it created them. The plan reads the queue before a run creates its tables."""
    queue = shop.root / ".ondatra" / "queue" / "sync.crm.sqlite"
    queue.parent.mkdir(parents=True)
    queue.touch()
    assert [0, 0] == [ondatra("status").exit_code, ondatra("dead", "sync.crm").exit_code]
    assert 0 == ondatra.run_project(shop).exit_code
    assert {"a1", "b2"} == set(api.contacts())


def test_history_shows_each_run_with_the_newest_first(shop: ShopProject, ondatra: CommandLine) -> None:
    """It shows the trigger, the table versions and the result of each run."""
    assert "no sync has run yet" in ondatra("history").stderr
    run_shop(shop)
    write_contacts(shop.root, a1="ada@example.org", b2="bob@example.com")
    run_shop(shop)
    newest, oldest = ondatra("history", "sync.crm", "--json").json_lines
    assert (0, 1, None, 0) == (
        newest["version_from"],
        newest["version_to"],
        oldest["version_from"],
        oldest["version_to"],
    )
    assert {"insert": 0, "update": 1, "delete": 0} == newest["grid"]["succeeded"]  # type: ignore[index]
    table = ondatra("history").stdout.splitlines()
    assert "ondatra run incremental version 1 is new 0→1 1 0 0 0 succeeded" in " ".join(table[1].split())
    assert "ondatra run full the first run sends the whole table -→0 2 0" in " ".join(table[2].split())
    assert 3 == len(table)
    assert [newest] == ondatra("history", "--limit", "1", "--json").json_lines


def test_history_says_why_a_run_failed(shop: ShopProject, ondatra: CommandLine, api: DemoApi) -> None:
    """The user doesn't have to read a log."""
    api.fail(status=403, times=None)
    run_shop(shop)
    assert "a requested fault" in ondatra("history").stdout


def test_a_killed_run_is_shown_as_crashed_and_not_as_running(
    shop: ShopProject, ondatra: CommandLine, api: DemoApi
) -> None:
    """The killed process couldn't report it, and no run has started since."""
    run_id = run_killed_push(shop.root, api.url)
    (run,) = ondatra("history", "--json").json_lines
    assert (run_id, "crashed", None) == (run["run"], run["result"], run["ended_at"])
    assert ondatra("history").stdout.splitlines()[1].split()[-2:] == [
        "-→0",
        "crashed",
    ]  # counts are unknown, so no zeros are shown
    *_, sync = ondatra("status", "--json").json_lines
    assert (run_id, "crashed") == (sync["last_run"], sync["result"])
    assert "crashed" in ondatra("status").stdout
    assert 'ondatra_sync_failed_runs_total{sync="sync.crm"} 1' in ondatra("status", "--metrics").stdout
    with FileLock(shop.workspace.sync("sync.crm").lock_file, purpose="delivers"):
        assert "running" in ondatra("history").stdout
        assert "running" in ondatra("status").stdout


def test_a_killed_run_shows_its_counts_up_to_the_kill(shop: ShopProject, ondatra: CommandLine, api: DemoApi) -> None:
    """The rows that it had planned and didn't send are known, too."""
    run_killed_push(shop.root, api.url)
    workspace = shop.workspace
    with shop.open_engine(workspace) as engine:
        engine.push(workspace.sync("sync.crm"), RunOptions(trigger="ondatra run"))
    (run,) = ondatra("history", "--json").json_lines
    assert {"planned": 2, "succeeded": 2, "not_sent": 0}.items() <= {
        cell: counts["insert"]
        for cell, counts in run["grid"].items()  # type: ignore[union-attr]
    }.items()
    assert ["-→0", "2", "0", "0", "0", "crashed"] == ondatra("history").stdout.splitlines()[1].split()[-6:]
    metrics = ondatra("status", "--metrics").stdout
    assert 'ondatra_sync_units_total{sync="sync.crm",outcome="delivered"} 2' in metrics


@pytest.mark.parametrize("verb", ["history", "dead", "replay"])
def test_an_unknown_sync_is_refused_with_the_nearest_right_name(
    shop: ShopProject, ondatra: CommandLine, verb: str
) -> None:
    """A typing error is easy to make."""
    result = ondatra(verb, "sync.crmm")
    assert 2 == result.exit_code
    assert "did you mean 'sync.crm'?" in result.stderr


@pytest.mark.parametrize("words", [["history", ""], ["records", "sync.crm", "--status", ""]])
def test_an_empty_argument_is_a_wrong_invocation(shop: ShopProject, ondatra: CommandLine, words: list[str]) -> None:
    """A script whose variable isn't set means one sync, not all of them."""
    run_shop(shop)
    result = ondatra(*words)
    assert (2, "") == (result.exit_code, result.stdout)


def test_control_characters_in_an_error_are_replaced(shop: ShopProject, ondatra: CommandLine) -> None:
    """The error may quote a table, a file name or an API."""
    run_shop(shop)
    result = ondatra("records", "sync.crm", "--download", "no\x1b[2J\x07/file.csv")
    assert 0 != result.exit_code
    assert "no·/file.csv" in result.stderr


def test_dead_letters_have_key_payload_error_and_attempts(shop: ShopProject, ondatra: CommandLine) -> None:
    """The user needs all of them to fix the row."""
    write_contacts(shop.root, a1="ada@example.com", b2="nonsense")
    run_shop(shop)
    (letter,) = ondatra("dead", "sync.crm", "--json").json_lines
    assert ("b2", 1, True) == (letter["key"], letter["attempts"], letter["refused"])
    assert "nonsense" in str(letter["error"])
    assert [{"change_type": "insert", "row": {"id": "b2", "email": "nonsense"}}] == letter["sends"]
    assert "refused at once" in ondatra("dead", "sync.crm").stdout


@pytest.mark.parametrize("words", [["dead", "sync.crm"], ["replay", "sync.crm", "--preview"]])
def test_a_row_is_cut_to_one_line_on_a_terminal_but_not_in_a_pipe(
    shop: ShopProject, ondatra: CommandLine, words: list[str]
) -> None:
    """A row of 200 columns would push the reason and all other dead letters off the screen."""
    write_contacts(shop.root, b2="nonsense " * 40)
    run_shop(shop)
    shown = ondatra.run_on_terminal(*words, columns=60)
    cut = '    insert  {"id":"b2","email":"nonsense nonsense nonsense …'
    assert (60, cut) == (len(cut), next(line for line in shown if "insert" in line))
    piped = ondatra(*words)
    assert "nonsense " * 40 in next(line for line in piped.stdout.splitlines() if "insert" in line)
    assert ("rows are cut" in "".join(shown), "rows are cut" in piped.stderr) == (True, False)


def test_control_characters_in_a_key_or_an_answer_are_replaced(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """They could clear the screen of a user who only wants to know why a row was refused."""
    write_contacts(shop.root, **{"a\x1b[2J1": "ada@example.com"})
    api.fail(status=422, path="/crm/*", message="no \x1b]0;title\x07\nsecond line")
    ran = ondatra.run_project(shop)
    dead = ondatra("dead", "sync.crm")
    for text in (ran.stderr, dead.stdout):
        assert "a·[2J1" in text
        assert [] == [letter for letter in text if not letter.isprintable() and letter != "\n"]


def test_a_dead_whole_table_shows_its_first_rows(shop: ShopProject, ondatra: CommandLine) -> None:
    """It is one dead letter, and may have a million rows."""
    write_shop_files(shop.root, url="", files=WHOLE_TABLE_FILES)
    write_contacts(shop.root, **{f"a{number}": "ada@example.com" for number in range(1234)})
    run_shop(shop)
    for words in (["dead", "sync.crm"], ["replay", "sync.crm", "--preview"]):
        first, *rows = ondatra(*words).stdout.splitlines()[:12]
        assert first.startswith("(the whole table)  ")
        assert "after 1 attempt: " in first
        assert ["insert"] * 10 == [line.split()[0] for line in rows[:10]]
        assert "… and 1224 rows more, 1234 in all; --json has them" == rows[10].strip()
        (letter,) = ondatra(*words, "--json").json_lines
        assert (1234, 1234) == (letter["rows"], len(letter["sends"]))  # type: ignore[arg-type]
        assert (1, False) == (letter["attempts"], letter["refused"])


def test_a_dead_letter_refused_later_shows_all_its_attempts(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """The failed attempts before the refusal count, too."""
    write_contacts(shop.root, a1="ada@example.com", b2="nonsense")
    api.fail(status=400, times=2, path="/crm/*")
    run_shop(shop)
    ondatra("replay", "sync.crm")
    (letter,) = ondatra("dead", "sync.crm", "--json").json_lines
    assert ("b2", 2, True) == (letter["key"], letter["attempts"], letter["refused"])
    assert "refused at attempt 2: " in ondatra("dead", "sync.crm").stdout


def test_only_the_oldest_dead_letters_are_shown_to_a_user(shop: ShopProject, ondatra: CommandLine) -> None:
    """After a bad day there may be a million of them. Programs get all of them."""
    write_contacts(shop.root, **{f"a{number}": "nonsense" for number in range(60)})
    run_shop(shop)
    for words in (["dead", "sync.crm"], ["replay", "sync.crm", "--preview"]):
        result = ondatra(*words)
        assert 50 == result.stdout.count("refused at once")
        assert "(the oldest 50; --limit shows more, --json all)" in result.stderr
        assert 60 == len(ondatra(*words, "--json").json_lines)
        for most in (3, 60):
            result = ondatra(*words, "--limit", str(most))
            assert (most, False) == (result.stdout.count("refused at once"), "the oldest" in result.stderr)
            assert most == len(ondatra(*words, "--limit", str(most), "--json").json_lines)


def test_a_dead_empty_table_says_that_it_has_no_rows(shop: ShopProject, ondatra: CommandLine) -> None:
    """It is still a dead letter: a replay would delete all rows at the API."""
    write_shop_files(shop.root, url="", files=WHOLE_TABLE_FILES)
    write_contacts(shop.root)
    run_shop(shop)
    lines = ondatra("dead", "sync.crm").stdout.splitlines()
    assert "its content, which has no rows" == lines[1].strip()


def test_a_sync_without_dead_letters_says_so(shop: ShopProject, ondatra: CommandLine) -> None:
    """An empty screen could mean anything."""
    result = ondatra("dead", "sync.crm")
    assert (0, "", "there are no dead letters\n") == (result.exit_code, result.stdout, result.stderr)


# --- replay


def a_shop_with_a_dead_letter(shop: ShopProject, ondatra: CommandLine) -> None:
    write_contacts(shop.root, a1="ada@example.com", b2="nonsense")
    run_shop(shop)


def test_a_preview_sends_nothing_and_changes_nothing(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """The user reads it before the replay."""
    a_shop_with_a_dead_letter(shop, ondatra)
    calls = len(api.calls)
    result = ondatra("replay", "sync.crm", "--preview", "--json")
    assert ["b2"] == [letter["key"] for letter in result.json_lines]
    assert calls == len(api.calls)
    assert 1 == len(ondatra("dead", "sync.crm", "--json").json_lines)


def test_a_preview_without_dead_letters_says_so(shop: ShopProject, ondatra: CommandLine) -> None:
    """An empty screen could mean anything."""
    result = ondatra("replay", "sync.crm", "--preview")
    assert (0, "", "there are no dead letters\n") == (result.exit_code, result.stdout, result.stderr)
    a_shop_with_a_dead_letter(shop, ondatra)
    result = ondatra("replay", "sync.crm", "--preview", "--since", "2999-01-01")
    assert (0, "", "there are no such dead letters\n") == (result.exit_code, result.stdout, result.stderr)


def test_a_replay_sends_dead_letters_immediately(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """It needs no Spark, because nothing has to be read. So this test runs the real command."""
    a_shop_with_a_dead_letter(shop, ondatra)
    calls = len(api.calls)
    result = ondatra("replay", "sync.crm")
    assert "1 dead letter and 0 waiting keys of sync.crm are retried" in result.stderr
    assert calls + 1 == len(api.calls)
    assert 1 == result.exit_code  # refused again, and nothing else was attempted


def test_a_replay_reports_pending_keys_that_it_also_sends(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """For example, a resync was interrupted or the sync was paused. These keys aren't retries."""
    run_shop(shop)
    ondatra("pause", "sync.crm")
    write_contacts(shop.root, a1="new@example.com", b2="new@example.com")
    run_shop(shop)
    ondatra("resume", "sync.crm")
    result = ondatra("replay", "sync.crm")
    message = "0 dead letters and 0 waiting keys of sync.crm are retried, next to 2 pending keys"
    assert (0, message) == (result.exit_code, result.stderr.partition("\n")[0])
    assert "delivered 2 updates" in result.stderr


def test_a_replay_works_when_a_table_of_its_model_is_missing(shop: ShopProject, ondatra: CommandLine) -> None:
    """The table that its model reads may be gone. The rows to send again are in the queue."""
    a_shop_with_a_dead_letter(shop, ondatra)
    shutil.rmtree(shop.root / ".ondatra" / "warehouse" / "raw")
    result = ondatra("replay", "sync.crm")
    assert (1, True) == (
        result.exit_code,
        "1 rejected" in result.stderr,
    )  # the same result as with the table, and not exit code 2


def test_a_replay_since_a_time_does_not_send_older_dead_letters(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """After an error of the API the user wants to replay only the rows that it affected."""
    a_shop_with_a_dead_letter(shop, ondatra)
    calls = len(api.calls)
    assert "0 dead letters" in ondatra("replay", "sync.crm", "--since", "2999-01-01").stderr
    assert calls == len(api.calls)
    assert "1 dead letter " in ondatra("replay", "sync.crm", "--since", "2020-01-01 08:30:00").stderr
    assert calls + 1 == len(api.calls)


def test_a_replay_with_a_limit_sends_the_first_dead_letters(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """After a fix the user tests it with the first of ten thousand dead letters."""
    write_contacts(shop.root, b2="nonsense", c3="more of it", d4="and more")
    run_shop(shop)
    letters = [letter["key"] for letter in ondatra("dead", "sync.crm", "--json").json_lines]
    few = ondatra("replay", "sync.crm", "--preview", "--limit", "2", "--json").json_lines
    assert letters[:2] == [letter["key"] for letter in few]
    calls = len(api.calls)
    assert "2 dead letters and 0 waiting keys" in ondatra("replay", "sync.crm", "--limit", "2").stderr
    sent_keys = [call.body["customer_id"] for call in api.calls[calls:]]
    assert letters[:2] == sent_keys


def test_a_replay_sends_waiting_rows_immediately(shop: ShopProject, api: DemoApi, ondatra: CommandLine) -> None:
    """The API works again, and the user doesn't want to wait for the next retry."""
    api.fail(status=400, times=1, path="/crm/*")
    run_shop(shop)
    assert {"b2"} == set(api.contacts())
    result = ondatra("replay", "sync.crm")
    assert "0 dead letters and 1 waiting key" in result.stderr
    assert 0 == result.exit_code
    assert {"a1", "b2"} == set(api.contacts())


def test_a_replay_of_dead_letters_of_another_kind_is_refused(
    shop: ShopProject, api: DemoApi, ondatra: CommandLine
) -> None:
    """These dead letters are rows, and the new kind sends groups."""
    write_contacts(shop.root, b2="nonsense")
    run_shop(shop)
    calls = len(api.calls)
    model = shop.root / "models" / "sync" / "crm.sql"
    model.write_text(model.read_text().replace("merge", "tracked").replace("unique_key", "group_key"))
    result = ondatra("replay", "sync.crm")
    assert (1, calls) == (result.exit_code, len(api.calls))
    assert "1 key in its queue (1 dead letter among them) entered it with kind merge" in result.stderr
    assert "sync.crm has kind tracked now" in result.stderr
    assert "insert" in ondatra("dead", "sync.crm").stdout


def test_status_shows_disk_usage_and_alerts(shop: ShopProject, ondatra: CommandLine) -> None:
    """One screen shows the operator all of it."""
    run_shop(shop)
    (shop.root / "pyproject.toml").write_text('[tool.ondatra.alerts]\nwebhook = "http://127.0.0.1:9"\n')
    AlertStore(shop.workspace.settings.state / "alerts.sqlite").apply_results(
        [RuleResult(subject="sync.crm", rule="failed", sentence="the API is down")],
        lambda reading, _: Alert("1", "2026-11-18T03:20:00+00:00", {}),
    )
    raw, crm, sync = ondatra("status", "--json").json_lines
    assert 0 < raw["disk_bytes"]
    assert ([], [], ["failed"]) == (raw["alerts"], crm["alerts"], sync["alerts"])
    shown = ondatra("status").stdout
    assert "last run" in shown
    assert "on disk: tables " in shown
    assert "alerting since " in shown
    assert "sync.crm: the API is down" in shown


def test_control_characters_in_an_alert_are_replaced_in_the_status(shop: ShopProject, ondatra: CommandLine) -> None:
    """An alert quotes the API, and the status shows it until the alert is resolved."""
    run_shop(shop)
    (shop.root / "pyproject.toml").write_text('[tool.ondatra.alerts]\nwebhook = "http://127.0.0.1:9"\n')
    AlertStore(shop.workspace.settings.state / "alerts.sqlite").apply_results(
        [RuleResult(subject="sync.crm", rule="failed", sentence="it says \x1b[2J\x1b]0;title\x07no\x9b31m\rOK")],
        lambda reading, _: Alert("1", "2026-11-18T03:20:00+00:00", {}),
    )
    result = ondatra("status")
    assert "sync.crm: it says ·[2J·]0;title·no·31m·OK" in result.stdout
    assert [] == [letter for letter in result.stdout + result.stderr if not letter.isprintable() and letter != "\n"]


def test_status_can_print_prometheus_metrics(shop: ShopProject, ondatra: CommandLine) -> None:
    """They are for a node exporter's textfile, and Prometheus' own client can read them."""
    run_shop(shop)
    result = ondatra("status", "--metrics")
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(result.stdout)
        for sample in family.samples
    }
    assert 0 == result.exit_code
    assert 2 == samples["ondatra_sync_units_total", "delivered", "sync.crm"]
    assert (0, 2) == (samples["ondatra_table_version", "sync.crm"], samples["ondatra_table_rows", "sync.crm"])
    assert time.time() > samples["ondatra_sync_last_success_timestamp_seconds", "sync.crm"] > time.time() - 600


def test_state_of_a_newer_ondatra_is_reported_in_a_sentence(shop: ShopProject, ondatra: CommandLine) -> None:
    """It names the version to use, and the user sees no traceback."""
    run_shop(shop)
    for path in (shop.workspace.syncs["sync.crm"].queue_file, shop.workspace.settings.state / "history.sqlite"):
        content = path.read_bytes()
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            (name,) = connection.execute("select migration_set from _sqlite_migrations").fetchone()
            connection.execute(
                "insert into _sqlite_migrations (migration_set, name, applied_at) values (?, 'later', '')", (name,)
            )
            connection.execute("update _written_by set version = '9.1'")
        result = ondatra("status")
        assert 1 == result.exit_code
        output = result.stdout + result.stderr  # a queue's error is in the line of its sync
        assert "was written by ondatra 9.1 (it has later)" in output
        assert "use ondatra 9.1 or a newer one" in output
        assert "Traceback" not in output
        path.write_bytes(content)
        for beside in path.parent.glob(f"{path.name}-*"):
            beside.unlink()


def test_a_table_of_a_newer_ondatra_is_reported_in_a_sentence(shop: ShopProject, ondatra: CommandLine) -> None:
    """This version can't know how its rows were made, so it doesn't overwrite them."""
    run_shop(shop)
    table = shop.tables.table("raw.contacts")
    commit = table.path / "_delta_log" / f"{table.version:020}.json"
    commit.write_text(commit.read_text().replace('\\"ondatra\\":1', '\\"ondatra\\":2'))
    result = ondatra("status")
    assert 1 == result.exit_code
    assert "the table of raw.contacts was made by a newer ondatra than this" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("left", ['{"commitInfo"', '{"add":{"path":', '{"metaData":'])
def test_a_damaged_commit_is_reported_in_a_sentence(shop: ShopProject, ondatra: CommandLine, left: str) -> None:
    """A power failure may leave an incomplete commit. The user needs the name of the file."""
    run_shop(shop)
    table = shop.tables.table("raw.contacts")
    commit = table.path / "_delta_log" / f"{table.version:020}.json"
    commit.write_text(f"{commit.read_text()}\n{left}" if "add" not in left else left)
    result = ondatra("status")
    assert 1 == result.exit_code
    assert "/raw/contacts/_delta_log" in result.stderr
    assert "restore it, or remove" in result.stderr
    assert "trace" not in result.stderr
