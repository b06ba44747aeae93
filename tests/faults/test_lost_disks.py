"""A machine that is lost with its disk during a run: the next machine repeats the calls with the same keys.

The table and the tracking store are left, as with a pod whose records go to a bucket.
"""

import collections
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes.forked_sync_runs import KILLED_STATUS, ForkedSyncRuns, read_delivered_values
from support.random_histories.random_seeds import new_random
from support.syncs.keyed_feed_table import KeyedFeedTable

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.testing.demo_api import DemoApi, running_demo_api

pytestmark = pytest.mark.faults

STEPS = 25


@pytest.fixture(scope="module")
def api() -> Iterator[DemoApi]:
    with running_demo_api() as api:
        yield api


def lose_disk(runs: ForkedSyncRuns) -> None:
    """Remove all of the state folder but the tracking store, which is elsewhere."""
    shutil.rmtree(runs.queue_path.parent, ignore_errors=True)
    for path in runs.state.glob("*.sqlite*"):
        path.unlink()


def repeated_keys(api: DemoApi, first: int) -> tuple[int, int]:
    """Count the calls from that one on that were made again, and those of them with the same key."""
    keys = collections.defaultdict(list)
    for call in api.calls[first:]:
        if call.idempotency_key:
            keys[call.method, call.path, json.dumps(call.body)].append(call.idempotency_key)
    again = [(call_keys[0], key) for call_keys in keys.values() for key in call_keys[1:]]
    return len(again), sum(first == key for first, key in again)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_new_machine_repeats_the_calls_of_a_lost_one_with_their_keys(
    tmp_path: Path, api: DemoApi, batch_size: int
) -> None:
    """With one row in a batch, this is true of each call.

    Larger batches may be cut differently once some rows have records.
    """
    api.clear()
    chance = new_random("disks", batch_size)
    table = KeyedFeedTable(UnitKind.ROW)
    with ForkedSyncRuns(api, UnitKind.ROW, batch_size=batch_size) as runs:
        runs.use_state_folder(tmp_path / "state")
        table.write("a", [1])
        assert 0 == runs.run(table)
        kills = repeats = same = 0
        for step in range(1, STEPS + 1):
            for number, key in enumerate(chance.sample("abcdefghij", 6)):
                gone = chance.random() < 0.2
                table.write(key, [] if gone else [100 * step + number])
            first = len(api.calls)
            kills += KILLED_STATUS == runs.run(
                table, die_at=chance.randint(runs.last_call_count // 4, runs.last_call_count)
            )
            lose_disk(runs)
            assert 0 == runs.run(table)
            assert table.content() == read_delivered_values(api, UnitKind.ROW), f"step {step}"
            again, under_same_key = repeated_keys(api, first)
            repeats, same = repeats + again, same + under_same_key
            if chance.random() < 0.3:  # between two runs a disk may be lost, too
                lose_disk(runs)
    print(f"batch_size {batch_size}: {kills} kills, {same} of {repeats} repeated calls under the same key")
    assert kills > STEPS / 3
    assert repeats > kills / 3
    if batch_size == 1:
        assert same == repeats
