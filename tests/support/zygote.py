"""A process with no threads that forks one sync run after another, and lets each die where it is told.

A run dies by SIGKILL at the n-th call that its Python makes into C: between any two statements, system calls
included. The parent says what to do in a JSON line, and gets one back.
"""

import json
import os
import pickle
import signal
import sys
from pathlib import Path

from ondatra_dagster.delivery.push_source import read_source
from ondatra_dagster.delivery.pusher import PushContext, open_pusher
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.model import Model, SinkUse
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.run import Occasion, run_sync
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.testing.demo_api import DEMO_KEY
from ondatra_dagster.tracking.history import History
from ondatra_dagster.tracking.store import TrackingStore


def the_sync(state: Path, shape: Shape) -> Sync:
    kind = KINDS["tracked" if shape is Shape.GROUP else "merge"]
    sink = SinkUse(name="api", arguments=(), sync_id="sync.api", line=1)
    library = state / "lib" / "api.star"
    source, problems = read_source(library, "lib/api.star")
    assert source, problems
    model = Model(
        name="sync.api",
        path=state / "api.sql",
        file="models/sync/api.sql",
        kind=kind,
        sql="select 1",
        sql_line=1,
        definition="d",
        key_columns=("id",),
        sink=sink,
    )
    return Sync(model=model, sink=sink, config=source.config, library=library, state=state)


def ports(state: Path, sync: Sync, now: float) -> Ports:
    table = pickle.loads((state / "table.pickle").read_bytes())
    context = PushContext(sync_id=sync.id, kind=sync.model.kind.name, key_columns=("id",), arguments=())
    secrets = {"API_KEY": DEMO_KEY}
    return Ports(
        source=table.source,
        feed=table,
        push=lambda: open_pusher(sync.library, context, secrets=secrets.get, rates=state / "rates.sqlite"),
        tracking=TrackingStore(str(state / "tracking")),
        history=History(state / "history.sqlite"),
        clock=lambda: now,
    )


def count_calls(die_at: int | None) -> list[int]:
    """Count the calls into C from here on, and die at the one of that number."""
    counted = [0]

    def count(_frame: object, event: str, _argument: object) -> None:
        if event == "c_call":
            counted[0] += 1
            if counted[0] == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    return counted


def run(state: Path, shape: Shape, now: float, die_at: int | None) -> None:
    sync = the_sync(state, shape)
    counted = count_calls(die_at)
    run_sync(sync, ports(state, sync, now), Occasion(trigger="test"))
    sys.setprofile(None)
    (state / "calls").write_text(str(counted[0]))


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run(Path(order["state"]), Shape(order["shape"]), order["now"], order["die_at"])
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


main()
