"""A process without threads that forks one sync run after another, and can kill each at a given point.

SIGKILL ends a run at the n-th call that its Python makes into C: between any two statements, system calls
included; or at a named point. Its clock moves only while it sleeps, and a sleep takes no real time.
The parent sends an order as a line of JSON, and gets the status as another.
"""

import dataclasses
import json
import os
import pickle
import signal
import sys
import threading
import traceback
from pathlib import Path

from support.processes import sync_kill_points
from support.syncs.real_sync import build_ports, build_sync

from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.sync_run import run_sync
from ondatra_dagster.testing.demo_api import DEMO_KEY

SECRETS = {"API_KEY": DEMO_KEY}


def count_c_calls(die_at: int | None) -> list[int]:
    """Count the calls into C from now on, in all threads, and kill the process at that number."""
    counted = [0]

    def count_call(_frame: object, event: str, _argument: object) -> None:
        if event == "c_call":
            counted[0] += 1
            if counted[0] == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(count_call)
    sys.setprofile(count_call)
    return counted


def run_forked_sync(state: Path, kind: str, now: float, die_at: int | None, point: tuple[str, int] | None) -> None:
    if point:
        sync_kill_points.kill_sync_at(*point)
    sync = build_sync(state, kind)
    counted = count_c_calls(die_at)
    table = pickle.loads((state / "table.pickle").read_bytes())
    clock = [now]

    def advance_clock(seconds: float) -> None:
        clock[0] += seconds

    ports = dataclasses.replace(build_ports(sync, table, SECRETS, now=now), clock=lambda: clock[0], sleep=advance_clock)
    run_sync(sync, ports, RunOptions(trigger="test"))
    sys.setprofile(None)
    (state / "calls").write_text(str(counted[0]))


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run_forked_sync(Path(order["state"]), order["kind"], order["now"], order["die_at"], order["point"])
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


main()
