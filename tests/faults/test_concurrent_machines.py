"""Two machines that run one sync at once, with two state folders, one table and one tracking store."""

import collections
import json
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes.forked_sync_runs import ROW_PUSH, read_delivered_values
from support.processes.second_machine_sync import OTHER_STATE_EXIT_CODE, start_machine_run
from support.syncs.keyed_feed_table import KeyedFeedTable

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.testing.demo_api import DemoApi, running_demo_api

pytestmark = pytest.mark.faults

KEYS = [f"c{number}" for number in range(40)]


@pytest.fixture
def api() -> Iterator[DemoApi]:
    with running_demo_api() as api:
        yield api


@pytest.fixture
def machines(tmp_path: Path, api: DemoApi) -> tuple[Path, Path]:
    """Return the state folders of both machines."""
    (tmp_path / "shared").mkdir()
    for name in ("one", "two"):
        state = tmp_path / name
        (state / "lib").mkdir(parents=True)
        (state / "lib" / "api.star").write_text(ROW_PUSH.replace("BASE", api.url).replace("SIZE", "1"))
        (state / "tracking").symlink_to(tmp_path / "shared")
    return tmp_path / "one", tmp_path / "two"


def write(table: KeyedFeedTable, value: int, *states: Path) -> None:
    """Give every key this value, as both machines see it."""
    for key in KEYS:
        table.write(key, [value])
    for state in states:
        (state / "table.pickle").write_bytes(pickle.dumps(table))


def end(run: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = run.communicate(timeout=120)
    return run.returncode, output


def doubled(api: DemoApi, first: int) -> int:
    """Return how many calls from that one on were made again."""
    call_counts = collections.Counter((call.path, json.dumps(call.body)) for call in api.calls[first:])
    return call_counts.total() - len(call_counts)


def test_one_of_two_concurrent_runs_delivers_and_the_other_stops(machines: tuple[Path, Path], api: DemoApi) -> None:
    """Neither machine knows of the other one, and both have all rows to send."""
    one, two = machines
    table = KeyedFeedTable(UnitKind.ROW)
    write(table, 1, one)
    assert (0, True) == ((ended := end(start_machine_run(one)))[0], "runs for the first time" in ended[1])
    first = len(api.calls)
    write(table, 2, one, two)
    api.fail(path="/crm/*", times=None, delay_seconds=0.2)
    runs = [start_machine_run(one), start_machine_run(two)]
    ends = [end(run) for run in runs]
    api.recover()
    assert {0, OTHER_STATE_EXIT_CODE} == {code for code, _ in ends}
    assert 0 == doubled(api, first)
    (stopped,) = [output for code, output in ends if code == OTHER_STATE_EXIT_CODE]
    assert "is delivered from another state folder too" in stopped
    assert table.content() == read_delivered_values(api, UnitKind.ROW)


def test_a_second_machine_stops_before_its_first_call(machines: tuple[Path, Path], api: DemoApi) -> None:
    """The first machine has sent some of its rows."""
    one, two = machines
    table = KeyedFeedTable(UnitKind.ROW)
    write(table, 1, one, two)
    api.fail(path="/crm/*", times=None, delay_seconds=0.3)
    running = start_machine_run(one)
    assert running.stdout
    assert "runs for the first time" in running.stdout.readline()
    code, output = end(start_machine_run(two))
    assert (OTHER_STATE_EXIT_CODE, True) == (code, "waiting 4 s for its heartbeat" in output)
    assert 0 == end(running)[0]
    api.recover()
    assert (len(KEYS), 0) == (len(api.calls), doubled(api, 0))
    assert 0 == end(start_machine_run(two))[0]
    assert len(KEYS) == len(api.calls)


def test_a_machine_continues_the_work_of_a_killed_one(machines: tuple[Path, Path], api: DemoApi) -> None:
    """The killed machine gives no sign any more. Its calls with unknown results are repeated with their keys."""
    one, two = machines
    table = KeyedFeedTable(UnitKind.ROW)
    write(table, 1, one, two)
    api.fail(path="/crm/*", times=None, delay_seconds=0.1)
    running = start_machine_run(one)
    assert running.stdout
    assert "runs for the first time" in running.stdout.readline()
    while len(api.calls) < 10:
        assert running.poll() is None
    running.kill()
    running.communicate()
    code, output = end(start_machine_run(two))
    assert 0 == code, output
    assert "is new to this sync; it continues from the queue snapshot" in output
    keys = collections.defaultdict(set)
    for call in api.calls:
        keys[call.path, json.dumps(call.body)].add(call.idempotency_key)
    assert {1} == {len(call_keys) for call_keys in keys.values()}
    assert table.content() == read_delivered_values(api, UnitKind.ROW)
