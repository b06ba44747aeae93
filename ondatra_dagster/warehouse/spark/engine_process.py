"""The engine: a process that keeps one JVM with Spark for several runs of one state folder.

`python -m ondatra_dagster.warehouse.spark.engine_process` reads its launch from stdin, starts Spark, and writes its
address into a file. Each run opens a lease: a connection on which the engine returns the address of a gateway that
only this run has. The connection ends when the run closes it, or when the run is killed. The engine then cancels
the run's work, and waits for the end of its threads in the JVM. Until that end, other writers wait for a lock.
"""

import contextlib
import hmac
import io
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.storage.private_files import open_private_file
from ondatra_dagster.warehouse.spark.engine_files import LOOPBACK_HOST, EngineAddress, EngineLaunch, engine_files
from ondatra_dagster.warehouse.spark.jvm_process import start_locked_jvm
from ondatra_dagster.warehouse.spark.table_locks import open_locked_file

HANDSHAKE_SECONDS = 10
MAX_REQUEST_BYTES = 10_000
STOP_SECONDS = 20
CANCEL_AGAIN_MILLISECONDS = 200  # a thread may start another job after its jobs were cancelled
CANCEL_SECONDS = 60  # then the engine ends itself, which ends the work that can't be cancelled


class Engine:
    """The JVM, its Spark context, and the leases that are open."""

    def __init__(self, launch: EngineLaunch) -> None:
        self._launch = launch
        self._files = engine_files(launch.state, launch.fingerprint)
        self._jvm, self._locks = start_locked_jvm(launch.jvm, launch.state / "locks" / "sessions")
        self._gateway = self._jvm.connect()
        conf = SparkConf(_jvm=self._gateway.jvm).setAll(list(launch.secret_conf.items()))
        self._context = SparkContext(gateway=self._gateway, conf=conf)
        self._session = SparkSession(self._context)
        self._listener = socket.create_server((LOOPBACK_HOST, 0))
        self._secret = secrets.token_hex(32)
        self._lock = threading.Condition()
        self._leases = 0
        self._ended_leases = 0
        self._idle_since = time.monotonic()
        self._is_stopping = threading.Event()

    def serve(self) -> None:
        """Write the address, and serve leases until the engine is idle for too long, or its state folder is gone."""
        threading.Thread(target=self._accept, name="accept", daemon=True).start()
        address = EngineAddress(
            pid=os.getpid(), port=self._listener.getsockname()[1], secret=self._secret, started_at=time.time()
        )
        temporary = self._files.address.with_suffix(".new")
        with open_private_file(temporary, "wb") as file:
            file.write(address.dump())
        temporary.replace(self._files.address)
        while not self._is_stopping.wait(1):
            if not self._files.address.exists() or self._is_idle_for_too_long():
                break
        self._stop()

    def stop_soon(self, *_: object) -> None:
        self._is_stopping.set()

    def _is_idle_for_too_long(self) -> bool:
        with self._lock:
            return not self._leases and time.monotonic() - self._idle_since > self._launch.idle_seconds

    def _stop(self) -> None:
        """Accept no new lease, wait for the end of the open ones, and end Spark."""
        self._files.address.unlink(missing_ok=True)
        self._listener.close()
        with self._lock:
            self._lock.wait_for(lambda: not self._leases)
        with contextlib.suppress(Py4JError):
            self._session.stop()
        self._gateway.shutdown()
        self._jvm.stop(wait_seconds=STOP_SECONDS)
        self._locks.release()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve_connection, args=[connection], daemon=True).start()

    def _serve_connection(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(HANDSHAKE_SECONDS)
            stream = connection.makefile("rwb")
            secret, _, text = stream.readline(MAX_REQUEST_BYTES).strip().partition(b" ")
            if not hmac.compare_digest(secret, self._secret.encode()):
                return
            connection.settimeout(None)
            request = orjson.loads(text)
            if request["verb"] == "stop":
                self._is_stopping.set()
                _send_answer(stream, {"is_stopping": True})
            elif request["verb"] == "status":
                _send_answer(stream, self._status())
            else:
                with self._lease(request["name"], Path(request["locks"])) as gateway:
                    _send_answer(stream, gateway)
                    stream.read(1)  # returns when the run closes the connection, or its process ends

    def _status(self) -> dict[str, Any]:
        runtime = self._gateway.jvm.java.lang.Runtime.getRuntime()
        return {
            "open_leases": self._leases,
            "ended_leases": self._ended_leases,
            "heap_bytes": runtime.totalMemory() - runtime.freeMemory(),
        }

    @contextlib.contextmanager
    def _lease(self, name: str, locks: Path) -> Iterator[dict[str, Any]]:
        """Start a gateway for one run. After the block, cancel the run's work and wait for its end."""
        with self._lock:
            self._leases += 1
        lock_file = locks / f"{name}.jvm"
        descriptor = open_locked_file(lock_file)
        try:
            server = self._start_gateway(name)
            try:
                yield {"port": server.getListeningPort(), "secret": server.secret()}
            finally:
                self._end_work(name, server)
        finally:
            lock_file.unlink(missing_ok=True)
            os.close(descriptor)
            with self._lock:
                self._leases -= 1
                self._ended_leases += 1
                self._idle_since = time.monotonic()
                if not self._leases:
                    self._forget_tables()
                    self._lock.notify_all()

    def _start_gateway(self, name: str) -> Any:
        """Start a gateway server. Threads that it starts inherit the tag by which the run's jobs are cancelled."""
        jvm = self._gateway.jvm
        java_context = self._context._jsc.sc()  # noqa: SLF001 - pyspark has no other way to the Java context
        with self._lock:
            java_context.addJobTag(name)
            try:
                server = jvm.org.apache.spark.api.python.Py4JServer(java_context.conf())
                server.start()
            finally:
                java_context.removeJobTag(name)
        return server

    def _end_work(self, name: str, server: Any) -> None:
        """Cancel the jobs of a lease, and wait until its threads in the JVM have ended: they may commit until then."""
        java_context = self._context._jsc.sc()  # noqa: SLF001
        give_up_at = time.monotonic() + CANCEL_SECONDS
        try:
            java_context.cancelJobsWithTag(name)
            server.shutdown()
            while threads := self._threads(name):
                java_context.cancelJobsWithTag(name)
                if time.monotonic() > give_up_at:
                    self._kill()
                threads[0].join(CANCEL_AGAIN_MILLISECONDS)
        except Py4JError:
            self._kill()

    def _threads(self, name: str) -> list[Any]:
        """Return the threads of a lease that are still alive."""
        threads = self._gateway.jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
        return [thread for thread in threads if thread.getName() == name]

    def _forget_tables(self) -> None:
        """Clear what Spark remembers of tables: before the next run, another program may replace them."""
        with contextlib.suppress(Py4JError):
            self._session.catalog.clearCache()
            self._gateway.jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def _kill(self) -> None:
        """End the JVM and this process, because work in Spark can't be cancelled or Spark doesn't answer."""
        self._files.address.unlink(missing_ok=True)
        self._jvm.process.kill()
        self._jvm.process.wait()
        os._exit(1)


def _send_answer(stream: io.BufferedRWPair, answer: dict[str, Any]) -> None:
    stream.write(orjson.dumps(answer) + b"\n")
    stream.flush()


def main() -> None:
    launch = EngineLaunch.load(sys.stdin.buffer.read())
    files = engine_files(launch.state, launch.fingerprint)
    with FileLock(files.lock, purpose="engine"):
        engine = Engine(launch)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, engine.stop_soon)
        engine.serve()


if __name__ == "__main__":
    main()
