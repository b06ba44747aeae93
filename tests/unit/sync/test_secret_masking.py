"""A canary secret in each form of auth: it is in no log, record, message, repr or file of a run."""

import dataclasses
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from support.apis.secret_echo_api import running_echo_api
from support.files.secret_search import find_secrets_in_folder, find_secrets_in_text
from support.syncs.keyed_feed_table import KeyedFeedTable
from support.syncs.real_sync import build_ports, build_sync

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.errors import OndatraError
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.sync_run import run_sync

SECRETS = {
    "KEY": "a key/with canary+in it",
    "USER": "user canary:x",
    "ONDATRA_OAUTH_TOKEN_CRM": "the provider's canary token",
    "REFRESH": "an old/canary+refresh token",
}
CLIENT = '"token_url": "/token", "client_id": {"env": "USER"}, '
AUTHS = {
    "bearer": '"auth": {"env": "KEY"}',
    "header": '"auth": {"env": "KEY", "header": "X-Api-Key"}',
    "param": '"auth": {"env": "KEY", "param": "api_key"}',
    "basic": '"auth": {"user": {"env": "USER"}, "pass": {"env": "KEY"}}',
    "provider": '"auth": {"provider": "crm"}',
    "oauth2": '"auth": {"oauth2": {' + CLIENT + '"client_secret": {"env": "KEY"}}}',
    "oauth2, basic": ('"auth": {"oauth2": {' + CLIENT + '"client_secret": {"env": "KEY"}, "client_auth": "basic"}}'),
    "oauth2, refresh": '"auth": {"oauth2": {' + CLIENT + '"refresh_token": {"env": "REFRESH"}}}',
    "headers": '"headers": {"X-Token": {"env": "KEY"}}',
    "env": '"env": ["KEY"]',
}
# each row ends in another way, and every message contains what the API answered
PUSH = """
API = {"base_url": "BASE", AUTH, "retry": 1, "backoff": 0, "push": {"batch_size": SIZE}}

def told(row):
    signed = {"X-Signed": env("KEY")} if 'AUTH'.startswith('"env"') else {}
    answer = http.post("/" + str(row["value"]), json = row, headers = signed, params = {"q": "x"})
    print(answer.text, answer.headers)
    return answer.text + str(answer.headers)

def push(rows):
    statuses = {}
    for row in rows:
        key = str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]
        said = told(row)
        ways = {1: "reject: " + said, 2: "warn: " + said, 3: "error: " + said, 4: said}
        if row["value"] == 5:
            fail(said)
        if row["value"] == 6:
            int(said)
        if row["value"] == 7:
            return said
        statuses[key] = ways[row["value"]]
        statuses[said] = "ok"
    return statuses
"""


@pytest.fixture(scope="module")
def echo_api_url() -> Iterator[str]:
    with running_echo_api() as url:
        yield url


def echoing_sync(folder: Path, push: str, *, values: Iterable[int]) -> tuple[Sync, KeyedFeedTable]:
    """Return a sync with this push function, and its table with a row for each value."""
    (folder / "lib").mkdir()
    (folder / "lib" / "api.star").write_text(push, encoding="utf-8")
    table = KeyedFeedTable(UnitKind.ROW)
    for value in values:
        table.write(f"row {value}", [value])
    return build_sync(folder, "merge"), table


@pytest.mark.parametrize("auth", AUTHS.values(), ids=AUTHS)
@pytest.mark.parametrize("size", [1, 100])
def test_no_secret_is_shown(
    auth: str, size: int, echo_api_url: str, tmp_path: Path, captured_output: Callable[[], str]
) -> None:
    """The API returns all that it receives, and push() puts that wherever it can."""
    text = PUSH.replace("AUTH", auth).replace("BASE", echo_api_url).replace("SIZE", str(size))
    sync, table = echoing_sync(tmp_path, text, values=range(1, 8))

    shown = []
    for hour in range(2):
        ports = build_ports(sync, table, SECRETS, now=1_800_000_000.0 + 3600 * hour)
        summary = run_sync(sync, ports, RunOptions(trigger="test"))
        shown += [repr(summary), str(summary.to_json()), repr(sync), repr(ports.history.list_runs("sync.api"))]

    logged = captured_output()
    assert "***" in logged
    assert "***" in "".join(shown)
    assert [] == find_secrets_in_text("\n".join([logged, *shown]))
    allowed = {f"tokens/{file.name}" for file in tmp_path.glob("tokens/*.json")}
    assert allowed == set(find_secrets_in_folder(tmp_path))
    assert bool(allowed) == ("REFRESH" in auth)


# a job's reference, its outcome and the error of finalize contain what the API answered
JOBS = """
API = {
    "base_url": "BASE",
    AUTH,
    "retry": 0,
    "push": {"batch_mode": "async", "batch_size": 1, "poll_interval": "30s"},
}

def told(path):
    signed = {"X-Signed": env("KEY")} if 'AUTH'.startswith('"env"') else {}
    answer = http.post(path, headers = signed)
    return answer.text + str(answer.headers)

def push(rows):
    said = told("/job")
    return {said: said, "list": [said], "value": rows[0]["value"], "key": name(rows[0])}

def name(row):
    return str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]

def poll(job_ref):
    said = told("/2")
    if job_ref["value"] == 1:
        fail(said)
    if job_ref["value"] == 2:
        return said
    if job_ref["value"] == 3:
        return {"done": True, "per_row": {job_ref["key"]: "reject: " + said, said: "ok"}}
    if job_ref["value"] == 4:
        return {"done": False}
    return {job_ref["key"]: "warn: " + said}

def finalize(succeeded, failed):
    fail(told("/2"))
"""


@pytest.mark.parametrize("auth", AUTHS.values(), ids=AUTHS)
@pytest.mark.parametrize("values", [(1, 2, 3, 4, 5), (5,)])
def test_no_secret_is_shown_in_a_job(
    auth: str, values: tuple[int, ...], echo_api_url: str, tmp_path: Path, captured_output: Callable[[], str]
) -> None:
    """Outside the queue's file the job's reference is masked. The messages of poll and finalize are masked too."""
    text = JOBS.replace("AUTH", auth).replace("BASE", echo_api_url)
    sync, table = echoing_sync(tmp_path, text, values=values)
    clock = [1_800_000_000.0]

    def later(seconds: float) -> None:
        clock[0] += seconds

    shown = []
    for _ in range(2):
        ports = build_ports(sync, table, SECRETS, now=0.0)
        ports = dataclasses.replace(ports, clock=lambda: clock[0], sleep=later)
        summary = run_sync(sync, ports, RunOptions(trigger="test"))
        shown += [repr(summary), str(summary.to_json()), repr(ports.history.list_runs("sync.api"))]

    shown_text = "\n".join([captured_output(), *shown])
    assert "***" in shown_text
    assert [] == find_secrets_in_text(shown_text)
    # only the owner reads these files, and a job is found by exactly what the API answered
    assert not {name for name in find_secrets_in_folder(tmp_path) if not name.startswith(("tokens/", "queue/"))}


@pytest.mark.parametrize("auth", AUTHS.values(), ids=AUTHS)
def test_the_message_about_a_variable_that_is_not_set_names_it(auth: str, echo_api_url: str, tmp_path: Path) -> None:
    """The sync fails before anything is sent, and the message has no value of another variable."""
    text = PUSH.replace("AUTH", auth).replace("BASE", echo_api_url).replace("SIZE", "1")
    sync, table = echoing_sync(tmp_path, text, values=[1])
    missing = sync.push_config.variables[-1]
    secrets = {name: value for name, value in SECRETS.items() if name != missing}

    with pytest.raises(OndatraError) as error:
        run_sync(sync, build_ports(sync, table, secrets, now=1_800_000_000.0), RunOptions(trigger="test"))

    assert f"lib/api.star needs {missing}; set it in .env or the environment" == str(error.value)
    assert [] == find_secrets_in_text("".join(traceback.format_exception(error.value)))
    assert {} == find_secrets_in_folder(tmp_path)


def test_no_beginning_of_a_secret_is_shown_when_push_cuts_an_answer(
    echo_api_url: str, tmp_path: Path, captured_output: Callable[[], str]
) -> None:
    """Many users put the first characters of an answer into the message."""
    push = """
API = {"base_url": "BASE", "auth": {"env": "KEY"}, "retry": 0}

def push(rows):
    text = http.post("/2").text
    print(text[:60], text[:150])
    return {
        str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]: "warn: " + text[:row["value"]]
        for row in rows
    }
"""
    sync, table = echoing_sync(tmp_path, push.replace("BASE", echo_api_url), values=range(1, 300))

    ports = build_ports(sync, table, {"KEY": "live_canary_51H8xYzAb"}, now=1_800_000_000.0)
    summary = run_sync(sync, ports, RunOptions(trigger="test"))

    shown = captured_output() + repr(summary) + str(summary.to_json()) + repr(ports.history.list_runs("sync.api"))
    assert "***" in shown
    assert [] == find_secrets_in_text(shown)
    assert {} == find_secrets_in_folder(tmp_path)
