"""A lock that one process holds."""

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from ondatra_dagster.errors import BusyError
from ondatra_dagster.storage.file_lock import FileLock, is_locked

HOLD = """
import sys
from pathlib import Path
from ondatra_dagster.storage.file_lock import FileLock
with FileLock(Path(sys.argv[1]), purpose="delivers"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lock_process(tmp_path):
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


def test_the_error_names_the_process_that_holds_the_lock(tmp_path, lock_process):
    """The user needs to know which process to end, or to wait for."""
    with pytest.raises(BusyError, match=rf"crm is held by process {lock_process.pid} \(delivers\)"):
        FileLock(tmp_path / "crm.lock", purpose="test").acquire()


def test_the_lock_of_a_killed_process_is_free_immediately(tmp_path, lock_process):
    """In other tools users complain about a wait of ten minutes for a dead process."""
    lock_process.send_signal(signal.SIGKILL)
    lock_process.wait()
    with FileLock(tmp_path / "crm.lock", purpose="test"):
        assert f"process {os.getpid()} (test)" == (tmp_path / "crm.lock").read_text()


def test_a_waiting_process_says_so_once_and_gives_up_in_time(tmp_path, lock_process):
    """A wait without a message looks like a hang."""
    messages, slept, now = [], [], [0.0]

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    lock = FileLock(
        tmp_path / "crm.lock",
        purpose="test",
        wait_seconds=1,
        clock=lambda: now[0],
        sleep=sleep,
        on_wait=messages.append,
    )
    with pytest.raises(BusyError):
        lock.acquire()
    assert 1 == len(messages)
    assert 1 <= sum(slept) < 1.5


def test_is_locked_says_whether_a_process_holds_the_lock(tmp_path, lock_process):
    """The file has the name of the process, even after the process has released the lock."""
    path = tmp_path / "crm.lock"
    assert is_locked(path)
    lock_process.kill()
    lock_process.wait()
    assert not is_locked(path)
    with FileLock(path, purpose="looks"):
        assert is_locked(path)
    assert not is_locked(path)


def test_a_process_number_in_the_file_alone_does_not_hold_the_lock(tmp_path):
    """Numbers are reused: after a restart of the machine, any process may have that one."""
    path = tmp_path / "crm.lock"
    path.write_text(f"process {os.getppid()} (delivers)")
    assert not is_locked(path)


def test_a_status_check_does_not_keep_a_process_from_taking_the_lock(tmp_path):
    """A page checks the lock every two seconds, and a run doesn't wait for a lock that another run holds."""
    path = tmp_path / "crm.lock"
    path.touch()
    looks = [os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY)]
    for descriptor in looks:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    with FileLock(path, purpose="delivers", sleep=lambda _: os.close(looks.pop())):
        assert [] == looks
        assert is_locked(path)


def test_a_status_check_does_not_hide_the_process_that_holds_the_lock(tmp_path, lock_process):
    looked = [is_locked(tmp_path / "crm.lock") for _ in range(3)]
    with pytest.raises(BusyError, match=f"process {lock_process.pid}"):
        FileLock(tmp_path / "crm.lock", purpose="test").acquire()
    assert [True] * 3 == looked


def test_a_lock_that_no_process_ever_took_is_not_held(tmp_path):
    assert not is_locked(tmp_path / "none.lock")
    (tmp_path / "empty.lock").touch()
    assert not is_locked(tmp_path / "empty.lock")
