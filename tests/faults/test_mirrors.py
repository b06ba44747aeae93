"""Whole histories of a table against an API that fails in every way, with runs killed at any instant.

What the API holds is read from the demo API. Beside these, unit tests drive the queue alone through more.
"""

import collections
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.forked_runs import KILLED, ForkedRuns, held
from support.tables import Table, histories

from ondatra_dagster.delivery.queue.letters import hasten, replay
from ondatra_dagster.delivery.queue.states import queue_state
from ondatra_dagster.delivery.queue.tables import open_queue
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.testing.demo_api import DemoApi, running_demo_api

pytestmark = pytest.mark.faults

HISTORIES = int(os.environ.get("ONDATRA_TEST_HISTORIES", "5"))
FAULTS = ({"status": 500}, {"status": 422}, {"drop": "before"}, {"drop": "after"}, {"status": 400})


@pytest.fixture(scope="module")
def api() -> Iterator[DemoApi]:
    with running_demo_api() as api:
        yield api


def break_some(api: DemoApi, chance: random.Random) -> None:
    """A few of the coming calls go wrong, here and there among those that don't."""
    api.recover()
    for key in chance.sample("abcdef", chance.randint(0, 4)):
        api.fail(path=f"/erp/invoices/{key}", times=chance.randint(1, 2), **chance.choice(FAULTS))


def ask_again(runs: ForkedRuns) -> None:
    """What an operator does who sees that rows wait or were given up."""
    with open_queue(runs.queue, shape=runs.shape) as queue:
        hasten(queue)
        replay(queue, now=runs.now)


def live(runs: ForkedRuns, table: Table, api: DemoApi, chance: random.Random) -> int:
    """One history, in runs that meet faults and are killed; how many of them were."""
    kills, calls = 0, 400
    for key, values in histories(Shape.GROUP, chance, keys="abcdef", steps=24):
        table.write(key, values)
        if chance.random() < 0.4:
            continue
        break_some(api, chance)
        if runs.queue.exists() and chance.random() < 0.5:
            ask_again(runs)
        end = runs.run(table, die_at=chance.randint(1, calls) if chance.random() < 0.4 else None)
        assert end in (0, KILLED)
        kills += end == KILLED
        calls = runs.calls if end == 0 else calls
    return kills


def overwritten(api: DemoApi) -> dict[str, list[int]]:
    """Invoices that were given older values than they had, with what they were given in order."""
    given = collections.defaultdict(list)
    for call in api.calls:
        if call.method == "PUT":
            given[call.path].append(min(line["quantity"] for line in call.body["lines"]))
    return {path: values for path, values in given.items() if values != sorted(values)}


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_any_history_of_groups_ends_as_a_mirror_at_the_api(
    batch_size: int, api: DemoApi, tmp_path: Path
) -> None:
    """What the users pay for: errors, rejects, silence and kills leave no difference behind."""
    kills = 0
    with ForkedRuns(api, Shape.GROUP, batch_size=batch_size) as runs:
        for seed in range(HISTORIES):
            api.clear()
            table, chance = Table(Shape.GROUP), random.Random(f"{seed} {batch_size}")
            runs.begin(tmp_path / str(seed))
            kills += live(runs, table, api, chance)
            api.recover()
            # a frozen batch ends as its journal says, or is given up: what is left then goes by itself
            for _ in range(3):
                assert 0 == runs.run(table)
                ask_again(runs)
            assert 0 == runs.run(table)
            state = queue_state(runs.queue, now=runs.now)
            assert state
            assert (0, 0) == (state.depth, state.dead), f"seed {seed}"
            assert table.content() == held(api, Shape.GROUP), f"seed {seed}"
            assert {} == overwritten(api), f"seed {seed}"
    assert kills > HISTORIES
