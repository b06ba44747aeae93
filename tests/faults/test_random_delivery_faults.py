"""Histories of a table against an API that fails in every way, with runs killed at any instant.

The delivered rows are read from the demo API. Unit tests take the queue alone through more histories.
"""

import collections
import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes.forked_sync_runs import (
    GROUP_PUSH,
    KILLED_STATUS,
    ROWID_PUSH,
    WHOLE_CONTENT_PUSH,
    ForkedSyncRuns,
    read_delivered_values,
)
from support.random_histories.random_seeds import new_seeds
from support.syncs.keyed_feed_table import KeyedFeedTable, random_steps
from support.syncs.kind_feed_table import KindFeedTable, random_kind_steps

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import replay_dead_letters, retry_waiting_now
from ondatra_dagster.delivery.queue.queue_status import read_status_of_file
from ondatra_dagster.testing.demo_api import DemoApi, running_demo_api

pytestmark = pytest.mark.faults

HISTORIES = max(1, int(os.environ.get("ONDATRA_TEST_HISTORIES", "1")) // 5)  # each over HTTP
KEYS = "abcdef"
STEPS = 24
MORE_STEPS = 20
WHOLE = 0
FAULTS = ({"status": 500}, {"status": 422}, {"drop": "before"}, {"drop": "after"}, {"status": 400})
# kind, batch size, batches at once
SINKS = [
    *(("tracked", size, 1) for size in (1, 2, 3, 100)),
    *(("table", 1, 8), ("table", 3, 1), ("table", WHOLE, 1)),
    *(("partition", 2, 8), ("partition", 100, 1), ("partition", WHOLE, 8)),
    *(("scd2", 3, 8), ("append", 2, 8)),
]


@pytest.fixture(scope="module")
def api() -> Iterator[DemoApi]:
    with running_demo_api() as api:
        yield api


def a_table(kind: str, batch_size: int) -> KeyedFeedTable | KindFeedTable:
    if kind == "tracked":  # with groups that are removed
        return KeyedFeedTable(UnitKind.GROUP)
    return KindFeedTable(kind, by_key=batch_size == WHOLE and kind == "partition")


def expected(table: KeyedFeedTable | KindFeedTable, batch_size: int) -> dict[str, list[int]]:
    """Return what the API must have at the end, in the form of read_delivered_values()."""
    if isinstance(table, KeyedFeedTable):
        return table.content()
    if batch_size == WHOLE:
        parts = table.content_by_key()
        everything = sorted(value for values in parts.values() for value in values)
        return parts if table.by_key else {"all": everything} if everything else {}
    return {
        rowid: [2 * int(str(row[2])) + (row[-1] is False)]  # a version that has ended is odd
        for rowid, row in table.content_by_rowid().items()
    }


def break_some(api: DemoApi, table: KeyedFeedTable | KindFeedTable, chance: random.Random) -> None:
    """Let a few of the next calls fail, here and there among those that don't."""
    api.recover()
    names = [*KEYS, "all"]
    if isinstance(table, KindFeedTable):
        names += list(table.content_by_rowid())
    for name in chance.sample(names, min(len(names), chance.randint(0, 2 + len(names) // 3))):
        api.fail(path=f"/erp/invoices/{name}", times=chance.randint(1, 2), **chance.choice(FAULTS))


def ask_again(runs: ForkedSyncRuns) -> None:
    """Retry and replay rows, as an operator does who sees waiting rows or dead letters."""
    with runs.sync.open_queue() as queue:
        retry_waiting_now(queue)
        replay_dead_letters(queue, now=runs.now)


def random_history(
    table: KeyedFeedTable | KindFeedTable, chance: random.Random, steps: int
) -> Iterator[tuple[str, list[int]]]:
    """Return random changes of the table's keys."""
    if isinstance(table, KeyedFeedTable):
        return random_steps(UnitKind.GROUP, chance, keys=KEYS, steps=steps)
    return random_kind_steps(table.kind, chance, keys=KEYS, count=steps)


def live(runs: ForkedSyncRuns, table: KeyedFeedTable | KindFeedTable, api: DemoApi, chance: random.Random) -> int:
    """Run one history with faults and kills, and return the number of killed runs."""
    kills, calls = 0, 400
    history = random_history(table, chance, STEPS + MORE_STEPS)
    for key, values in itertools.islice(history, STEPS):
        table.write(key, values)
        if not table.version or chance.random() < 0.4:
            continue
        break_some(api, table, chance)
        if runs.queue_path.exists() and chance.random() < 0.5:
            ask_again(runs)
        end = runs.run(table, die_at=chance.randint(1, calls) if chance.random() < 0.4 else None)
        assert end in (0, KILLED_STATUS)
        kills += end == KILLED_STATUS
        calls = runs.last_call_count if end == 0 else calls
    for key, values in history:  # in one history of a hundred no run was killed
        if kills:
            break
        table.write(key, values)
        kills += runs.run(table, die_at=1) == KILLED_STATUS
    return kills


def overwritten(api: DemoApi) -> dict[str, list[int]]:
    """Return the invoices that got older values than they had, with all their values in order."""
    quantities = collections.defaultdict(list)
    for call in api.calls:
        if call.method == "PUT" and not call.path.endswith("/all"):
            quantities[call.path].append(min(line["quantity"] for line in call.body["lines"]))
    return {path: values for path, values in quantities.items() if values != sorted(values)}


@pytest.mark.parametrize(("kind", "batch_size", "max_concurrent"), SINKS)
def test_at_the_end_of_any_history_the_api_equals_the_table(
    kind: str, batch_size: int, max_concurrent: int, api: DemoApi, tmp_path: Path
) -> None:
    """Users pay for this: errors, rejects, silence and kills leave no difference behind."""
    kills = 0
    text = GROUP_PUSH if kind == "tracked" else ROWID_PUSH if batch_size else WHOLE_CONTENT_PUSH
    library = text.replace("AT_ONCE", str(max_concurrent))
    with ForkedSyncRuns(api, UnitKind.GROUP, batch_size=batch_size, library=library, kind=kind) as runs:
        for seed in new_seeds(HISTORIES):
            api.clear()
            chance = random.Random(f"{seed} {kind} {batch_size}")
            table = a_table(kind, batch_size)
            runs.use_state_folder(tmp_path / seed)
            kills += live(runs, table, api, chance)
            api.recover()
            # a frozen batch ends as its journal says, or as dead letters; the rest is then sent separately
            for _ in range(3):
                assert 0 == runs.run(table)
                ask_again(runs)
            assert 0 == runs.run(table)
            state = read_status_of_file(runs.queue_path, now=runs.now)
            assert state
            assert (0, 0) == (state.depth, state.dead_units), f"seed {seed}"
            assert expected(table, batch_size) == read_delivered_values(api, UnitKind.GROUP), f"seed {seed}"
            assert {} == overwritten(api), f"seed {seed}"
    assert kills >= HISTORIES
