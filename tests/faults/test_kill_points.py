"""Kills at every named point of a sync run, in every batch mode, with one thread and three.

SYNC_KILL_POINTS lists the points, from the commit to the polls of a job. The next runs deliver all rows. Calls
made twice are at most those in flight, and no job is submitted twice.
Starlark, HTTP, queue, journals and records are the real ones; the table and its feed are plain Python.
"""

import collections
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes.forked_sync_runs import KILLED_STATUS, ForkedSyncRuns, read_delivered_values
from support.processes.sync_kill_points import SYNC_KILL_POINTS
from support.syncs.keyed_feed_table import KeyedFeedTable

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.queue_status import read_status_of_file
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.testing.demo_api import DemoApi, running_demo_api

pytestmark = pytest.mark.faults

ROUNDS = int(os.environ.get("ONDATRA_TEST_KILL_ROUNDS", "1"))
BATCH_SIZE = 4
API = """
API = {
    "base_url": "BASE", "auth": {"env": "API_KEY"}, "retry": 0,
    "push": {"batch_size": SIZE, "batch_mode": "MODE", "max_concurrent": THREADS},
}

def key(row):
    return str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]

def finalize(succeeded, failed):
    answer = http.put("/erp/invoices/end", json={"invoice_id": "end", "lines": [{"quantity": succeeded + 1}]})
    if not answer.ok:
        fail(answer.text)

def operations(rows):
    found = []
    for row in rows:
        if row["__ondatra_change_type"] == "delete":
            found.append({"key": key(row), "delete": row["id"]})
        elif row["__ondatra_change_type"] != "update_preimage":
            contact = {"customer_id": row["id"], "email": str(row["value"]) + "@example.com"}
            found.append({"key": key(row), "upsert": contact})
    return found
"""
SYNC = """
def push(rows):
    results = {}
    for row in rows:
        answer = None
        for operation in operations([row]):
            answer = http.post("/crm/batches", json={"operations": [operation]})
        results[key(row)] = "ok" if answer == None or answer.ok else "error: " + answer.text
    return results
"""
ATOMIC = """
def push(rows):
    answer = http.post("/crm/batches", json={"operations": operations(rows)})
    if not answer.ok:
        fail(answer.text)
"""
ASYNC = """
def push(rows):
    return {"id": http.post("/crm/jobs", json={"operations": operations(rows)}).json["id"]}

def poll(job_ref, rows):
    answer = http.get("/crm/jobs/" + job_ref["id"])
    if answer.json["status"] == "complete":
        return {key(row): "ok" for row in rows} | {name: status for name, status in answer.json["results"]}
"""
MODES = {"sync": SYNC, "atomic": ATOMIC, "async": ASYNC}
OF_JOBS = {"after async submit", "between polls"}


@pytest.fixture(scope="module")
def api() -> Iterator[DemoApi]:
    with running_demo_api() as api:
        yield api


def write(table: KeyedFeedTable, step: int) -> None:
    """Write new rows, change some, and remove some."""
    for number in range(16):
        if step == 0 or number % 3 != step % 3:
            gone = step > 0 and number % 5 == step % 5
            table.write(f"C-{number:02}", [] if gone else [1000 * step + number])


def doubled(api: DemoApi) -> int:
    """Return how many calls that change something were made a second time."""
    call_counts = collections.Counter(json.dumps(call.body) for call in api.calls if call.method == "POST")
    return call_counts.total() - len(call_counts)


def run_until_clean(runs: ForkedSyncRuns, table: KeyedFeedTable) -> None:
    for _ in range(4):
        assert 0 == runs.run(table)
        state = read_status_of_file(runs.queue_path, now=runs.now)
        if state and state.depth == 0 and not state.can_finalize:
            return
        runs.now += 60


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_a_kill_at_any_point_loses_nothing_and_repeats_only_calls_in_flight(
    mode: str, threads: int, api: DemoApi, tmp_path: Path
) -> None:
    """Delivery tools lose or duplicate rows in crashes, and a job may be a thousand invoices."""
    library = (API + MODES[mode]).replace("MODE", mode).replace("THREADS", str(threads))
    api.clear()
    table, step = KeyedFeedTable(UnitKind.ROW), 0
    with ForkedSyncRuns(api, UnitKind.ROW, batch_size=BATCH_SIZE, library=library) as runs:
        runs.use_state_folder(tmp_path / "state")
        for point in [point for point in SYNC_KILL_POINTS if mode == "async" or point not in OF_JOBS] * ROUNDS:
            for time in (1, 2):
                before = doubled(api)
                write(table, step)
                step += 1
                end = runs.run(table, point=(point, time))
                if end == 0 and time == 2:
                    continue  # a run passes it only once
                assert end == KILLED_STATUS, point
                run_until_clean(runs, table)
                assert table.content() == read_delivered_values(api, UnitKind.ROW), f"{point} {time}"
                assert doubled(api) - before <= threads, f"{point} {time}"
        state = read_status_of_file(runs.queue_path, now=runs.now)
        assert state
        assert (0, 0, 0, False) == (state.depth, state.dead_units, state.open_jobs, state.has_open_run)
        jobs = [call for call in api.calls if call.path == "/crm/jobs"]
        assert len(api.jobs()) == len({json.dumps(call.body) for call in jobs})  # no job was started twice
        records = collections.Counter(
            (record.identifier, record.rowid, record.change_type, record.table_version)
            for record in RecordStore(str(runs.state / "tracking")).read_delivered_since("sync.api", None)
        )
        assert {1} == set(records.values())  # each outcome has one record
