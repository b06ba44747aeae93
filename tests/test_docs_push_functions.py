"""The push functions that the documents show, written differently: each works with its kind and with an API.

Everything except the table is real: Starlark, HTTP, queue, records. The details of each mode have separate tests.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.syncs.kind_feed_table import KindFeedTable
from support.syncs.real_sync import build_ports, build_sync

from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.run_summary import RunSummary
from ondatra_dagster.sync.sync_run import run_sync
from ondatra_dagster.testing import Answer, Request, State, running_fake_api
from ondatra_dagster.testing.fake_api import AnswerFunction, FakeApi

API = """
API = {
    "base_url": "%s/v3",
    "auth": {"env": "API_KEY"},
    "retry": 3,
    "backoff": 2,
    "rate_limit": {"requests": 1000, "per": "10s"},
    "push": {%s},
}
"""
HELPERS = """
def name_of(row):
    return str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]

def own(row):
    return {k: v for k, v in row.items() if not k.startswith("_")}

def said(answer):
    return "ok" if answer.ok else "error: " + answer.text
"""
# one call for each row, by its change type
BY_CHANGE = """
def push(rows):
    results = {}
    for r in rows:
        ct = r["__ondatra_change_type"]
        place = "/people/" + str(r["id"])
        if ct == "insert":
            answer = http.post("/people", json=own(r))
        elif ct == "update_postimage":
            answer = http.patch(place, json=own(r))
        elif ct == "delete":
            answer = http.delete(place)
        elif ct == "update_preimage":
            results[name_of(r)] = "ok"  # how it was is of no use here
            continue
        results[name_of(r)] = said(answer)
    return results
"""
# one call for each group: its current rows, or a delete when it has none
BY_GROUP = """
def push(rows=[], batch_number=1, kind="tracked", key_columns=[]):
    results = {}
    groups = {}
    for row in rows:
        key = row.get(key_columns[0], "")
        if key not in groups:
            groups[key] = {"inserts": [], "deletes": []}
        groups[key]["inserts" if row["__ondatra_change_type"] == "insert" else "deletes"].append(row)
    for key, group in groups.items():
        if group["inserts"]:
            order = {"order": key, "kind": kind, "lines": [own(line) for line in group["inserts"]]}
            answer = http.put("/orders/" + key, json=order)
        else:
            answer = http.delete("/orders/" + key)
        for row in group["inserts"] + group["deletes"]:
            results[name_of(row)] = said(answer)
    return results
"""
# one call for each batch, with one status for all its rows
BY_BATCH = """
def push(rows):
    new = [own(r) for r in rows if r["__ondatra_change_type"] == "insert"]
    answer = http.post("/batches", json={"id": name_of(rows[0]), "rows": new})
    if not answer.ok:
        return {name_of(r): "error: " + answer.text for r in rows}
    return {name_of(r): "ok" for r in rows}
"""
# all current rows in one call
WHOLE = """
def push(rows):
    answer = http.put("/sheet", json=[own(r) for r in rows if r["__ondatra_change_type"] == "insert"])
    return {name_of(r): said(answer) for r in rows}
"""
# every version that a row has had
VERSIONS = """
def push(rows):
    results = {}
    for r in rows:
        if r["__ondatra_change_type"] == "update_preimage":
            results[name_of(r)] = "ok"
        else:
            results[name_of(r)] = said(http.put("/archive/" + str(r["__ondatra_rowid"]), json=own(r)))
    return results
"""

# the API's answer as the status of each row
JUDGED = """
def judged(answer):
    if answer.status_code == 202:
        return "warn: " + answer.json["why"]
    if answer.status_code == 422:
        return "reject: " + answer.json["why"]
    return said(answer)
"""
# one function for several places, which the model's @sink names
BY_PLACE = """
def push(rows, team, place):
    return {name_of(r): send(r, "/" + team + "/" + place + "/" + r["id"]) for r in rows}

def send(row, path):
    return said(http.put(path, json=own(row)))
"""

# all rows or none
ATOMIC = """
def push(rows):
    answer = http.post("/batches", json={"id": name_of(rows[0]), "rows": [own(r) for r in rows]})
    if not answer.ok:
        fail("the batch failed: " + answer.text)
"""
# a job that is polled; poll() returns nothing while the job runs
JOB = """
def push(rows):
    sent = [dict(own(r), name=name_of(r)) for r in rows]
    answer = http.post("/jobs", json={"id": name_of(rows[0]), "rows": sent})
    if not answer.ok:
        fail(answer.text)
    return {"job": answer.json["id"]}

def poll(job_ref):
    answer = http.get("/jobs/" + job_ref["job"])
    state = answer.json["state"]
    if state == "done":
        return {rowid + ":" + change: "ok" for rowid, change in answer.json["results"]}
    if state == "failed":
        fail("the job failed: " + answer.json["why"])
"""
# the same job, with the other result of poll()
JOB_THAT_SAYS_DONE = (
    JOB[: JOB.index("def poll")]
    + """
def poll(job_ref):
    told = http.get("/jobs/" + job_ref["job"]).json
    if told["state"] == "failed":
        fail("the job failed: " + told["why"])
    if told["state"] == "running":
        return {"done": False}
    return {"done": True, "per_row": {rowid + ":" + change: "ok" for rowid, change in told["results"]}}
"""
)
FINALIZE = """
def finalize(succeeded, failed):
    if failed == 0:
        http.post("/hooks", json={"id": str(succeeded), "event": "done"})
"""

JOB_SETTINGS = '"batch_mode": "async", "poll_interval": "1ms", "poll_timeout": "1h"'


@dataclasses.dataclass
class DocumentedPushHarness:
    """A sync of one table to one API."""

    state: Path
    api: FakeApi
    kind: str
    now: float = 1_800_000_000.0

    def __post_init__(self) -> None:
        self.table = KindFeedTable(self.kind)

    def sink(self, push: str, settings: str = '"batch_size": 100, "batch_mode": "sync"') -> None:
        (self.state / "lib").mkdir(exist_ok=True)
        text = API % (self.api.url, settings) + HELPERS + push
        (self.state / "lib" / "api.star").write_text(text, encoding="utf-8")

    def write(self, **values: list[int]) -> None:
        for key, row_values in values.items():
            self.table.write(key, row_values)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def run(self, *arguments: str) -> RunSummary:
        sync = build_sync(self.state, self.kind, *arguments)
        ports = build_ports(sync, self.table, {"API_KEY": "s3cr3t"}, now=self.now)
        ports = dataclasses.replace(ports, clock=lambda: self.now, sleep=self.sleep)
        return run_sync(sync, ports, RunOptions(trigger="test"))


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with running_fake_api() as api:
        yield api


def calls_of(api: FakeApi) -> list[tuple[str, str]]:
    """Return the methods and paths since the last call, sorted: the order of keys isn't promised."""
    calls = sorted((call.method, call.path) for call in api.calls)
    api.calls.clear()
    return calls


def a_desk(kind: str, tmp_path: Path, api: FakeApi) -> DocumentedPushHarness:
    return DocumentedPushHarness(tmp_path, api, kind)


def test_a_merge_sends_a_contact_for_each_changed_row(tmp_path: Path, api: FakeApi) -> None:
    """The first run sends all rows, and a later one the changed rows. Without changes a run sends nothing."""
    desk = a_desk("merge", tmp_path, api)
    desk.sink(BY_CHANGE)
    desk.write(ada=[1], ben=[2])
    desk.run()
    assert [("POST", "/v3/people")] * 2 == calls_of(api)
    desk.write(ada=[3], cyn=[4])
    desk.run()
    assert [("PATCH", "/v3/people/ada"), ("POST", "/v3/people")] == calls_of(api)
    desk.run()

    assert [] == calls_of(api)
    assert {"ada": 3, "ben": 2, "cyn": 4} == {row["id"]: row["value"] for row in api.state.values()}


def test_a_tracked_model_sends_an_order_for_each_changed_group(tmp_path: Path, api: FakeApi) -> None:
    """A group is sent whole when any of its lines changed, and deleted when it has none."""
    desk = a_desk("tracked", tmp_path, api)
    desk.sink(BY_GROUP)
    desk.write(a=[1, 2], b=[3])
    desk.run()
    assert [("PUT", "/v3/orders/a"), ("PUT", "/v3/orders/b")] == calls_of(api)
    desk.write(a=[1, 5], b=[])
    desk.run()

    assert [("DELETE", "/v3/orders/b"), ("PUT", "/v3/orders/a")] == calls_of(api)
    (order,) = api.state.values()
    assert ("a", "tracked", [1, 5]) == (order["order"], order["kind"], sorted(line["value"] for line in order["lines"]))


def test_an_append_sends_only_new_rows(tmp_path: Path, api: FakeApi) -> None:
    """The new rows of each run are one batch, which has one status."""
    desk = a_desk("append", tmp_path, api)
    desk.sink(BY_BATCH)
    desk.write(a=[1], b=[2])
    desk.run()
    desk.write(a=[1, 3])
    desk.run()

    batches = [[row["value"] for row in batch["rows"]] for batch in api.state.values()]
    assert [[1, 2], [3]] == batches


@pytest.mark.parametrize("settings", ['"batch_size": 100', '"batch_size": 0'])
def test_a_table_replaces_all_rows_of_a_sheet(tmp_path: Path, api: FakeApi, settings: str) -> None:
    """The deletes are the old rows; a function that replaces everything doesn't need them."""
    desk = a_desk("table", tmp_path, api)
    desk.sink(WHOLE, settings)
    desk.write(north=[1], south=[2])
    desk.run()
    desk.write(north=[5])
    desk.run()

    assert [("north", 5), ("south", 2)] == [(row["id"], row["value"]) for row in api.state["/v3/sheet"]]


def test_an_scd2_model_sends_every_version_of_a_row(tmp_path: Path, api: FakeApi) -> None:
    """The closed version arrives with its end, and the next version as a new row."""
    desk = a_desk("scd2", tmp_path, api)
    desk.sink(VERSIONS)
    desk.write(lamp=[10])
    desk.run()
    desk.write(lamp=[12])
    desk.run()

    versions = [(row["value"], row["is_current"]) for row in api.state.values()]
    assert [(10, False), (12, True)] == versions
    closed, current = api.state.values()
    assert closed["valid_to_snapshot"] == current["valid_from_snapshot"]


def test_a_partition_replaces_the_rows_of_a_region(tmp_path: Path, api: FakeApi) -> None:
    """Deletes are sent before inserts."""
    desk = a_desk("partition", tmp_path, api)
    desk.sink(BY_CHANGE.replace('str(r["id"])', 'str(r["value"])').replace("json=own(r)", 'json={"id": r["value"]}'))
    desk.write(north=[1, 2], south=[3])
    desk.run()
    calls_of(api)
    desk.write(north=[2, 4])
    desk.run()

    assert {2, 3, 4} == {row["id"] for row in api.state.values()}
    assert ("DELETE", "/v3/people/3") not in calls_of(api)


def test_the_answer_for_a_row_decides_only_about_that_row(tmp_path: Path, api: FakeApi) -> None:
    """The four rows are delivered, delivered with a warning, retried later, and rejected."""
    desk = a_desk("merge", tmp_path, api)
    push = BY_CHANGE.replace("= said(answer)", "= judged(answer)") + JUDGED
    desk.sink(push, '"max_attempts": 2')
    statuses = {"a": 201, "b": 202, "c": 409, "d": 422}

    def answer(request: Request, _state: State) -> Answer:
        return Answer(statuses[request.body["id"]], {"why": request.body["id"]})

    api.answer = answer
    desk.write(a=[1], b=[1], c=[1], d=[1])
    summary = desk.run()

    assert summary.queue
    assert (1, 1) == (summary.queue.waiting_units, summary.queue.dead_units)
    assert [("d",)] == [reason.keys for reason in summary.reject_reasons]
    calls_of(api)
    statuses["c"] = 201
    desk.now += 3600
    desk.run()
    assert [("POST", "/v3/people")] == calls_of(api)


def test_the_strings_of_the_sink_are_passed_by_name(tmp_path: Path, api: FakeApi) -> None:
    """The strings follow the order of "args", whatever the order of push()'s parameters."""
    desk = a_desk("merge", tmp_path, api)
    desk.sink(BY_PLACE, '"args": ["place", "team"]')
    desk.write(ada=[1])
    desk.run("people", "red")

    assert [("PUT", "/v3/red/people/ada")] == calls_of(api)


def refusing(status: int) -> AnswerFunction:
    return lambda request, _: Answer(status, {"why": "no"}) if "666" in str(request.body) else None


def test_an_atomic_batch_is_accepted_as_a_whole_or_not_at_all(tmp_path: Path, api: FakeApi) -> None:
    """A batch without statuses is a success; an error from fail() holds for every row."""
    desk = a_desk("merge", tmp_path, api)
    desk.sink(ATOMIC, '"batch_mode": "atomic", "batch_size": 2')
    desk.write(a=[1], b=[2], c=[666])
    api.answer = refusing(400)
    summary = desk.run()

    assert [["a", "b"]] == [[row["id"] for row in batch["rows"]] for batch in api.state.values()]
    assert summary.queue
    assert 1 == summary.queue.waiting_units
    assert 'the batch failed: {"why":"no"}' in summary.first_errors[0]


def test_the_bad_row_of_an_atomic_batch_is_found(tmp_path: Path, api: FakeApi) -> None:
    """Halving the batch finds the row: it alone is refused, and all others arrive."""
    desk = a_desk("merge", tmp_path, api)
    desk.sink(ATOMIC, '"batch_mode": "atomic", "on_batch_error": "bisect"')
    desk.write(**{f"row{number}": [666 if number == 5 else number] for number in range(16)})
    api.answer = refusing(422)
    summary = desk.run()

    assert [("row5",)] == [reason.keys for reason in summary.reject_reasons]
    arrived = {row["id"] for batch in api.state.values() for row in batch["rows"]}
    assert {f"row{number}" for number in range(16)} - {"row5"} == arrived


class FakeJobs:
    """The jobs of an API: each answers "running" to its first poll, or always fails."""

    def __init__(self, api: FakeApi) -> None:
        self.poll_counts: dict[str, int] = {}
        self.is_failing = False
        api.answer = self.answer

    def answer(self, request: Request, state: State) -> Answer | None:
        if request.method != "GET":
            return None
        self.poll_counts[request.path] = self.poll_counts.get(request.path, 0) + 1
        if self.is_failing:
            return Answer(200, {"state": "failed", "why": "no room"})
        if self.poll_counts[request.path] == 1:
            return Answer(200, {"state": "running"})
        names = [row["name"].split(":") for row in state[request.path]["rows"]]
        return Answer(200, {"state": "done", "results": names})


@pytest.mark.parametrize("push", [JOB, JOB_THAT_SAYS_DONE])
def test_a_job_is_polled_until_it_has_ended(tmp_path: Path, api: FakeApi, push: str) -> None:
    """A job's rows are delivered when its poll says so."""
    desk = a_desk("merge", tmp_path, api)
    jobs = FakeJobs(api)
    desk.sink(push + FINALIZE, JOB_SETTINGS)
    desk.write(a=[1], b=[2])
    summary = desk.run()

    assert [2] == list(jobs.poll_counts.values())
    assert summary.queue
    assert (0, 0) == (summary.queue.depth, summary.queue.dead_units)
    assert {"id": "2", "event": "done"} == api.state["/v3/hooks/2"]


@pytest.mark.parametrize("push", [JOB, JOB_THAT_SAYS_DONE])
def test_the_rows_of_a_failed_job_are_sent_again(tmp_path: Path, api: FakeApi, push: str) -> None:
    """They wait, and are sent in another job when they are due."""
    desk = a_desk("merge", tmp_path, api)
    jobs = FakeJobs(api)
    jobs.is_failing = True
    desk.sink(push + FINALIZE, JOB_SETTINGS)
    desk.write(a=[1])
    summary = desk.run()
    assert "the job failed: no room" in summary.first_errors[0]
    assert "/v3/hooks/1" not in api.state
    jobs.is_failing = False
    api.state.clear()
    desk.now += 3600
    desk.run()

    assert {"id": "1", "event": "done"} == api.state["/v3/hooks/1"]


def test_finalize_is_called_once_for_a_run(tmp_path: Path, api: FakeApi) -> None:
    """It is called when none of the run's rows waits any more, with the counts of all of them."""
    desk = a_desk("merge", tmp_path, api)
    desk.sink(BY_CHANGE + FINALIZE)
    desk.write(a=[1], b=[2], c=[3])
    api.answer = lambda request, _: Answer(409, {}) if request.body.get("id") == "c" else None
    desk.run()
    assert [] == [path for path in api.state if "hooks" in path]
    api.answer = None
    desk.now += 3600
    desk.run()
    desk.run()

    assert ["/v3/hooks/3"] == [path for path in api.state if "hooks" in path]
