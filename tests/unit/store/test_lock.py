"""A name that one process holds."""

import os
import signal
import subprocess
import sys

import pytest

from ondatra_dagster.errors import BusyError
from ondatra_dagster.store.lock import FileLock, last_holder_lives

HOLD = """
import sys
from pathlib import Path
from ondatra_dagster.store.lock import FileLock
with FileLock(Path(sys.argv[1]), purpose="delivers"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "crm.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert "held\n" == process.stdout.readline()
    yield process
    process.stdin.close()
    process.stdout.close()
    process.wait()


def test_who_holds_the_lock_is_named(tmp_path, holder):
    """The user wants to know which process to end, or to wait for."""
    with pytest.raises(BusyError, match=rf"crm is held by process {holder.pid} \(delivers\)"):
        FileLock(tmp_path / "crm.lock", purpose="test").acquire()


def test_a_killed_holder_s_lock_is_free_at_once(tmp_path, holder):
    """Ten minutes of waiting for a dead process is what users of others complain of."""
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with FileLock(tmp_path / "crm.lock", purpose="test"):
        assert f"process {os.getpid()} (test)" == (tmp_path / "crm.lock").read_text()


def test_a_waiter_says_so_once_and_gives_up_in_time(tmp_path, holder):
    """A silent wait looks like a hang."""
    told, slept, now = [], [], [0.0]

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    lock = FileLock(
        tmp_path / "crm.lock",
        purpose="test",
        wait_seconds=1,
        clock=lambda: now[0],
        sleep=sleep,
        on_wait=told.append,
    )
    with pytest.raises(BusyError):
        lock.acquire()
    assert 1 == len(told)
    assert 1 <= sum(slept) < 1.5


def test_whether_the_last_holder_lives_is_told_without_taking_the_lock(tmp_path, holder):
    """Who wants it must not be turned away because somebody looks."""
    path = tmp_path / "crm.lock"
    assert last_holder_lives(path)
    holder.kill()
    holder.wait()
    assert not last_holder_lives(path)
    with FileLock(path, purpose="looks"):
        assert last_holder_lives(path)


def test_a_lock_that_nobody_ever_took_has_no_holder(tmp_path):
    assert not last_holder_lives(tmp_path / "none.lock")
    (tmp_path / "empty.lock").touch()
    assert not last_holder_lives(tmp_path / "empty.lock")
