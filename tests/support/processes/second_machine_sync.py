"""A machine that runs a sync once, with the table in a pickle in its state folder.

Start it with `python -m support.processes.second_machine_sync STATE KIND`.

It has its own state folder and shares the tracking store, which is below that folder or a link there.
"""

import dataclasses
import pickle
import subprocess
import sys
import time
from pathlib import Path

from support.syncs.real_sync import build_ports, build_sync

from ondatra_dagster.errors import OtherStateFolderError
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.sync_run import run_sync
from ondatra_dagster.testing.demo_api import DEMO_KEY

TESTS = Path(__file__).parents[2]
OTHER_STATE_EXIT_CODE = 3  # of a run that another state folder blocks


def start_machine_run(state: Path, *, kind: str = "merge", publish_seconds: float = 2.0) -> subprocess.Popen[str]:
    """Start a run on the machine with that state folder."""
    command = [sys.executable, "-m", __name__, str(state), kind, str(publish_seconds)]
    return subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True)


def main(state: Path, kind: str, publish_seconds: float) -> int:
    table = pickle.loads((state / "table.pickle").read_bytes())
    sync = build_sync(state, kind)
    ports = dataclasses.replace(
        build_ports(sync, table, {"API_KEY": DEMO_KEY}, now=0),
        clock=time.time,
        publish_seconds=publish_seconds,
        notify=lambda text: print(text, flush=True),
    )
    try:
        summary = run_sync(sync, ports, RunOptions(trigger="test"))
    except OtherStateFolderError as met:
        print(met)
        return OTHER_STATE_EXIT_CODE
    print(summary.message)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
