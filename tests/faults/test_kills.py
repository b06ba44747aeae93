"""Kills at any instant of a sync run: nothing is lost, and at most the call in flight is made twice.

Queue, journal, records, Starlark and HTTP are the real ones; the table and its feed are plain Python, so that
a round takes no JVM. With ONDATRA_TEST_KILLS more rounds are made than in an ordinary test run.
"""

import collections
import json
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tables import Table

from ondatra_dagster.delivery.queue.states import queue_state
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.testing.demo_api import DemoApi, running_demo_api
from ondatra_dagster.tracking.store import TrackingStore

pytestmark = pytest.mark.faults

KILLS = int(os.environ.get("ONDATRA_TEST_KILLS", "25"))
KILLED = -signal.SIGKILL
ROOT = Path(__file__).parents[2]

ROWS = """
API = {"base_url": "BASE", "auth": {"env": "API_KEY"}, "retry": 0, "push": {"batch_size": 20}}

def push(rows):
    results = {}
    for row in rows:
        change = row["__ondatra_change_type"]
        contact = {"customer_id": row["id"], "email": str(row["value"]) + "@example.com"}
        if change == "update_preimage":
            answer = None
        elif change == "delete":
            answer = http.delete("/crm/contacts/" + row["id"])
        elif change == "insert":
            answer = http.post("/crm/contacts", json=contact)
        else:
            answer = http.patch("/crm/contacts/" + row["id"], json=contact)
        ok = answer == None or answer.ok or answer.status_code in [404, 409]
        results[str(row["__ondatra_rowid"]) + ":" + change] = "ok" if ok else "error: " + answer.text
    return results
"""
GROUPS = """
API = {"base_url": "BASE", "auth": {"env": "API_KEY"}, "retry": 0, "push": {"batch_size": 20}}

def push(rows):
    groups = {}
    for row in rows:
        groups.setdefault(row["id"], []).append(row)
    results = {}
    for id, changes in groups.items():
        lines = [{"quantity": r["value"]} for r in changes if r["__ondatra_change_type"] == "insert"]
        if lines:
            answer = http.put("/erp/invoices/" + id, json={"invoice_id": id, "lines": lines})
        else:
            answer = http.delete("/erp/invoices/" + id)
        status = "ok" if answer.ok or answer.status_code == 404 else "error: " + answer.text
        for row in changes:
            results[str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]] = status
    return results
"""
LIBRARIES = {Shape.ROW: ROWS, Shape.GROUP: GROUPS}


class Zygote:
    """The process that forks the runs."""

    def __init__(self, state: Path, shape: Shape) -> None:
        self.state = state
        self.shape = shape
        self.now = 1_800_000_000.0
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        )

    def run(self, table: Table, *, die_at: int | None = None) -> int:
        """How the run ended: 0, or minus the signal's number."""
        self.now += 1
        (self.state / "table.pickle").write_bytes(pickle.dumps(table))
        order = {"state": str(self.state), "shape": self.shape.value, "now": self.now, "die_at": die_at}
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(json.loads(self._process.stdout.readline())["status"])

    @property
    def calls(self) -> int:
        """How many calls into C the last whole run made."""
        return int((self.state / "calls").read_text())

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def api() -> Iterator[DemoApi]:
    with running_demo_api() as api:
        yield api


@pytest.fixture(params=list(Shape))
def zygote(request: pytest.FixtureRequest, tmp_path: Path, api: DemoApi) -> Iterator[Zygote]:
    api.clear()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "api.star").write_text(LIBRARIES[request.param].replace("BASE", api.url))
    zygote = Zygote(tmp_path, request.param)
    yield zygote
    zygote.close()


def held(api: DemoApi, shape: Shape) -> dict[str, list[int]]:
    """What the API has, as the table's content is spelled."""
    if shape is Shape.ROW:
        return {key: [int(str(row["email"]).partition("@")[0])] for key, row in api.contacts().items()}
    return {
        key: sorted(line["quantity"] for line in row["lines"])  # type: ignore[index, union-attr, call-overload]
        for key, row in api.invoices().items()
    }


def change(table: Table, chance: random.Random, step: int) -> None:
    """A few keys of one round get new values, or go."""
    for key in chance.sample("abcdefghij", 6):
        count = 0 if chance.random() < 0.2 else 1 if table.shape is Shape.ROW else chance.randint(1, 3)
        table.write(key, [1000 * step + table.version * 4 + n for n in range(count)])


def doubled(api: DemoApi) -> int:
    """How many calls were made a second time; a delete says nothing of which row it is for."""
    made = collections.Counter(
        (call.method, call.path, json.dumps(call.body)) for call in api.calls if call.method != "DELETE"
    )
    return made.total() - len(made)


def test_killed_at_any_call_nothing_is_lost_and_only_the_call_in_flight_doubles(
    zygote: Zygote, api: DemoApi
) -> None:
    """The promise that everything else rests on."""
    chance = random.Random(f"kills {zygote.shape}")
    table = Table(zygote.shape)
    change(table, chance, 0)
    assert 0 == zygote.run(table)
    calls, kills = zygote.calls, 0
    for step in range(1, KILLS + 1):
        change(table, chance, step)
        doubled_before = doubled(api)
        ends = [zygote.run(table, die_at=chance.randint(1, calls)) for _ in range(chance.choice((1, 1, 2)))]
        ends.append(zygote.run(table))
        assert {0, KILLED} >= set(ends)
        assert table.content() == held(api, zygote.shape), f"step {step}"
        # one call is under way at a time
        assert doubled(api) - doubled_before <= ends.count(KILLED), f"step {step}"
        kills += ends.count(KILLED)
    assert kills > KILLS / 3
    state = queue_state(zygote.state / "queue" / "sync.api.sqlite", now=zygote.now)
    assert state
    assert (0, 0, False) == (state.depth, state.dead, state.has_open_run)
    records = collections.Counter(
        (record.identifier, record.rowid, record.change_type, record.table_version)
        for record in TrackingStore(str(zygote.state / "tracking")).delivered_since("sync.api", None)
    )
    assert {1} == set(records.values())  # each end has one record
