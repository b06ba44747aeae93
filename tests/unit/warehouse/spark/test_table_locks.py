"""The locks of tables: one writer per table, and none while the JVM of a killed run may still commit."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ondatra_dagster.warehouse.spark.table_locks import SessionLocks, lock_table, wait_for_orphans

# a run: it starts a "JVM" that lives on until its stdin is closed, and prints the process id of the JVM
RUN = """
import os, subprocess, sys
from pathlib import Path
from ondatra_dagster.warehouse.spark.table_locks import SessionLocks
locks = SessionLocks(Path(sys.argv[1]))
jvm = subprocess.Popen(
    [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=int(sys.argv[2]), pass_fds=[locks.jvm_descriptor]
)
locks.close_jvm_descriptor()
print(jvm.pid, flush=True)
sys.stdin.read()
"""


def test_a_run_waits_for_the_jvm_of_a_killed_run(tmp_path: Path) -> None:
    """The other JVM must not commit between this run's reading and its writing."""
    jvm_stdin, keeps_jvm = os.pipe()
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path), str(jvm_stdin)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[jvm_stdin],
    )
    os.close(jvm_stdin)
    assert run.stdout is not None
    assert run.stdin is not None
    assert int(run.stdout.readline())
    wait_for_orphans(tmp_path)  # the run is alive, so it has no orphaned JVM
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdin.close()
    run.stdout.close()
    waiter = threading.Thread(target=wait_for_orphans, args=[tmp_path])
    waiter.start()
    waiter.join(0.3)
    assert waiter.is_alive()
    os.close(keeps_jvm)
    waiter.join(10)
    assert not waiter.is_alive()
    assert [] == list(tmp_path.iterdir())


def test_an_ended_session_leaves_no_files(tmp_path: Path) -> None:
    locks = SessionLocks(tmp_path / "sessions")
    locks.close_jvm_descriptor()
    assert 2 == len(list((tmp_path / "sessions").iterdir()))
    locks.release()
    wait_for_orphans(tmp_path / "sessions")
    assert [] == list((tmp_path / "sessions").iterdir())


def test_the_second_writer_of_a_table_waits_and_logs_the_first_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A Delta identity column allows only one writer at a time."""
    writers: list[str] = []

    def write_too() -> None:
        with lock_table(tmp_path, "mart.things", run_id="second"):
            writers.append("second")

    with lock_table(tmp_path, "mart.things", run_id="first"), lock_table(tmp_path, "mart.others", run_id="first"):
        second = threading.Thread(target=write_too)
        second.start()
        second.join(0.4)
        assert [] == writers
        writers.append("first")
    second.join(10)
    assert ["first", "second"] == writers
    assert "(run first), which holds mart.things" in caplog.text
