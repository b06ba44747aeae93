"""The client of an engine: it starts the engine if none runs, opens a lease, and shows and stops engines.

engine_session.py connects a Spark session. This module doesn't import pyspark, so that commands answer quickly.
"""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from ondatra_dagster import interruption
from ondatra_dagster.errors import SparkSetupError
from ondatra_dagster.storage.file_lock import is_locked
from ondatra_dagster.storage.private_files import make_private_folder, open_private_file
from ondatra_dagster.warehouse.spark.engine_files import (
    FOLDER,
    LOOPBACK_HOST,
    EngineAddress,
    EngineLaunch,
    engine_files,
)
from ondatra_dagster.warehouse.spark.table_locks import open_locked_file

ANSWER_SECONDS = 10  # an engine that takes longer is hung
START_SECONDS = 120
STOP_SECONDS = 30
POLL_SECONDS = 0.02
ENGINE_MODULE = "ondatra_dagster.warehouse.spark.engine_process"


class EngineUnavailableError(SparkSetupError):
    """The error of an engine that can't be used: the run starts its own Spark."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineLease:
    """The use of an engine by this process, until close(). Its lock says that this process is alive."""

    name: str
    gateway_port: int  # of the gateway in the JVM that only this lease has
    gateway_secret: str = dataclasses.field(repr=False)
    connection: socket.socket
    lock_file: Path
    lock: int  # a file descriptor

    def cancel(self) -> None:
        """End the lease: the engine cancels this process's work in Spark."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cancel()
        self.connection.close()
        self.lock_file.unlink(missing_ok=True)
        os.close(self.lock)


def open_lease(launch: EngineLaunch, locks: Path, *, on_notice: Callable[[str], None]) -> EngineLease:
    """Return a lease of the engine for this launch; start the engine if none runs. Raises EngineUnavailableError."""
    files = engine_files(launch.state, launch.fingerprint)
    process: subprocess.Popen[bytes] | None = None
    give_up_at = time.monotonic() + START_SECONDS
    while True:
        if address := read_engine_address(files.address, files.lock):
            if process is None:
                on_notice("Spark is warm")
            return _connect(address, locks)
        if process is None and not is_locked(files.lock):
            process = _start_engine(launch)
        if process is not None and process.poll() is not None:
            raise EngineUnavailableError(f"the engine ended while it started; see {files.log}")
        if time.monotonic() > give_up_at:
            raise EngineUnavailableError(f"the engine didn't start in {START_SECONDS} s; see {files.log}")
        interruption.sleep(POLL_SECONDS)


def read_engine_address(address_file: Path, lock: Path) -> EngineAddress | None:
    """Return the address of a running engine; None if there is none, or it is still starting."""
    try:
        content = address_file.read_bytes()
    except FileNotFoundError:
        return None
    return EngineAddress.load(content) if is_locked(lock) else None


def send_request(address: EngineAddress, verb: str, **fields: str) -> socket.socket:
    """Send a request to the engine, and return the connection, on which it answers with one line of JSON."""
    connection = socket.create_connection((LOOPBACK_HOST, address.port), timeout=ANSWER_SECONDS)
    connection.sendall(b"%s %s\n" % (address.secret.encode(), orjson.dumps({"verb": verb, **fields})))
    return connection


def read_answer(connection: socket.socket) -> dict[str, Any]:
    """Return the engine's answer; {} if it closed the connection."""
    with connection.makefile("rb") as stream:
        answer: dict[str, Any] = orjson.loads(stream.readline() or b"{}")
        return answer


def _start_engine(launch: EngineLaunch) -> subprocess.Popen[bytes]:
    """Start an engine that isn't a child of this process's terminal, pipes or locks."""
    files = engine_files(launch.state, launch.fingerprint)
    make_private_folder(files.lock.parent)
    make_private_folder(files.log.parent)
    with open_private_file(files.log, "ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", ENGINE_MODULE],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=launch.state,
            start_new_session=True,
        )
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(launch.dump())
    return process


def _connect(address: EngineAddress, locks: Path) -> EngineLease:
    """Open a lease with a new name. This process holds the lease's lock before the engine holds the other."""
    name = uuid.uuid4().hex
    lock_file = locks / f"{name}.python"
    lock = open_locked_file(lock_file)
    cleanup = contextlib.ExitStack()
    cleanup.callback(os.close, lock)
    cleanup.callback(lock_file.unlink, missing_ok=True)
    try:
        with cleanup:
            connection = cleanup.enter_context(send_request(address, "lease", name=name, locks=str(locks)))
            gateway = read_answer(connection)
            connection.settimeout(None)
            lease = EngineLease(
                name=name,
                gateway_port=int(gateway["port"]),
                gateway_secret=str(gateway["secret"]),
                connection=connection,
                lock_file=lock_file,
                lock=lock,
            )
            cleanup.pop_all()  # the lease closes them
            return lease
    except (OSError, ValueError, KeyError) as error:
        raise EngineUnavailableError(f"the engine (process {address.pid}) doesn't answer ({error})") from error


def find_engines(state: Path) -> dict[str, EngineAddress]:
    """Return the addresses of the engines of a state folder, by fingerprint."""
    address_files = sorted((state / FOLDER).glob("*.json"))
    addresses = {file.stem: read_engine_address(file, file.with_suffix(".lock")) for file in address_files}
    return {fingerprint: address for fingerprint, address in addresses.items() if address}


def read_engine_status(address: EngineAddress) -> dict[str, Any]:
    """Return the engine's numbers of open and ended leases and its heap; {} if it doesn't answer."""
    with contextlib.suppress(OSError, ValueError), send_request(address, "status") as connection:
        return read_answer(connection)
    return {}


def stop_engine(state: Path, fingerprint: str, address: EngineAddress) -> bool:
    """Stop an engine, and return whether it ended. If it doesn't answer, end its process."""
    lock = engine_files(state, fingerprint).lock
    try:
        with send_request(address, "stop") as connection:
            read_answer(connection)
    except OSError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(address.pid, signal.SIGKILL)
    give_up_at = time.monotonic() + STOP_SECONDS
    while is_locked(lock) and time.monotonic() < give_up_at:
        interruption.sleep(POLL_SECONDS)
    return not is_locked(lock)
