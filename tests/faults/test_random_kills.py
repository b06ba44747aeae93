"""Kills at any instant of a sync run: nothing is lost, and at most the call in flight is made twice.

Queue, journal, records, Starlark and HTTP are the real ones; the table and its feed are plain Python, so that
a round takes no JVM. With ONDATRA_TEST_KILLS more rounds are made than in an ordinary test run.
"""

import collections
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes.forked_sync_runs import KILLED_STATUS, ForkedSyncRuns, read_delivered_values
from support.random_histories.random_seeds import new_random
from support.syncs.keyed_feed_table import KeyedFeedTable

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.queue_status import read_status_of_file
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.testing.demo_api import DemoApi, running_demo_api

pytestmark = pytest.mark.faults

KILLS = int(os.environ.get("ONDATRA_TEST_KILLS", "25"))


@pytest.fixture(scope="module")
def api() -> Iterator[DemoApi]:
    with running_demo_api() as api:
        yield api


@pytest.fixture(params=(UnitKind.ROW, UnitKind.GROUP))
def runs(request: pytest.FixtureRequest, tmp_path: Path, api: DemoApi) -> Iterator[ForkedSyncRuns]:
    api.clear()
    with ForkedSyncRuns(api, request.param, batch_size=20) as runs:
        runs.use_state_folder(tmp_path / "state")
        yield runs


def change(table: KeyedFeedTable, chance: random.Random, step: int) -> None:
    """Give a few keys of one round new values, or remove them."""
    for key in chance.sample("abcdefghij", 6):
        count = 0 if chance.random() < 0.2 else 1 if table.shape is UnitKind.ROW else chance.randint(1, 3)
        table.write(key, [1000 * step + table.version * 4 + n + 1 for n in range(count)])  # the ERP refuses 0


def doubled(api: DemoApi) -> int:
    """Return how many calls were made a second time; a delete doesn't show which row it is for."""
    call_counts = collections.Counter(
        (call.method, call.path, json.dumps(call.body)) for call in api.calls if call.method != "DELETE"
    )
    return call_counts.total() - len(call_counts)


def test_a_kill_at_any_call_loses_nothing_and_repeats_only_the_call_in_flight(
    runs: ForkedSyncRuns, api: DemoApi
) -> None:
    """All other promises depend on this one."""
    chance = new_random("kills", runs.shape)
    table = KeyedFeedTable(runs.shape)
    change(table, chance, 0)
    assert 0 == runs.run(table)
    calls, kills = runs.last_call_count, 0
    for step in range(1, KILLS + 1):
        change(table, chance, step)
        doubled_before = doubled(api)
        ends = [runs.run(table, die_at=chance.randint(1, calls)) for _ in range(chance.choice((1, 1, 2)))]
        ends.append(runs.run(table))
        assert {0, KILLED_STATUS} >= set(ends)
        assert table.content() == read_delivered_values(api, runs.shape), f"step {step}"
        # only one call is in flight at a time
        assert doubled(api) - doubled_before <= ends.count(KILLED_STATUS), f"step {step}"
        kills += ends.count(KILLED_STATUS)
    assert kills > KILLS / 3
    state = read_status_of_file(runs.queue_path, now=runs.now)
    assert state
    assert (0, 0, False) == (state.depth, state.dead_units, state.has_open_run)
    records = collections.Counter(
        (record.identifier, record.rowid, record.change_type, record.table_version)
        for record in RecordStore(str(runs.state / "tracking")).read_delivered_since("sync.api", None)
    )
    assert {1} == set(records.values())  # each outcome has one record
