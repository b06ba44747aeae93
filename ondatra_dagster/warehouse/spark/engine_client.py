"""The client of an engine: it starts the engine if none runs, opens a lease, and connects a session."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import orjson
from py4j.clientserver import ClientServer, ClientServerConnection, JavaClient, JavaParameters, PythonParameters
from py4j.java_gateway import java_import
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from ondatra_dagster import interruption
from ondatra_dagster.errors import SparkSetupError
from ondatra_dagster.storage.file_lock import is_locked
from ondatra_dagster.storage.private_files import make_private_folder, open_private_file
from ondatra_dagster.warehouse.spark.engine_files import EngineAddress, EngineLaunch, engine_files
from ondatra_dagster.warehouse.spark.jvm_process import JAVA_IMPORTS

CONNECT_SECONDS = 5
START_SECONDS = 120
POLL_SECONDS = 0.02


class EngineLease:
    """The use of an engine by this process, until close()."""

    def __init__(self, connection: socket.socket, gateway_port: int, gateway_secret: str, name: str) -> None:
        self._connection = connection
        self.gateway = _NamedGateway(gateway_port, gateway_secret, name)

    def connect_session(self) -> SparkSession:
        for name in JAVA_IMPORTS:
            java_import(self.gateway.jvm, name)
        jvm = self.gateway.jvm
        java_session = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
        java_context = jvm.JavaSparkContext.fromSparkContext(java_session.sparkContext())
        conf = SparkConf(_jvm=jvm, _jconf=java_context.getConf())
        return SparkSession(SparkContext(gateway=self.gateway, jsc=java_context, conf=conf), java_session.newSession())

    def cancel(self) -> None:
        """End the lease, so that the engine cancels this process's work."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.gateway.close()
        self.cancel()
        self._connection.close()
        SparkContext._active_spark_context = None  # noqa: SLF001 - the context is the engine's, so it isn't stopped
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


class _NamedJavaClient(JavaClient):  # type: ignore[misc]  # py4j has no types
    """A client whose threads in the JVM have the lease's name, so that the engine can wait for their end."""

    lease_name = ""

    def _create_new_connection(self) -> Any:
        connection: ClientServerConnection = super()._create_new_connection()
        thread = connection.send_command("c\nz:java.lang.Thread\ncurrentThread\ne\n")
        connection.send_command(f"c\n{thread[2:].strip()}\nsetName\ns{self.lease_name}\ne\n")
        return connection


class _NamedGateway(ClientServer):  # type: ignore[misc]  # py4j has no types
    def __init__(self, port: int, secret: str, name: str) -> None:
        self._lease_name = name
        super().__init__(
            java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )

    def _create_gateway_client(self) -> Any:
        client = _NamedJavaClient(self.java_parameters, self.python_parameters)
        client.lease_name = self._lease_name
        return client


def open_lease(launch: EngineLaunch, name: str, on_notice: Callable[[str], None]) -> EngineLease:
    """Return a lease of the engine for this launch; start the engine if none runs."""
    files = engine_files(launch.state, launch.fingerprint)
    give_up_at = time.monotonic() + START_SECONDS
    process: subprocess.Popen[bytes] | None = None
    while True:
        if files.address.exists() and is_locked(files.lock):
            with contextlib.suppress(OSError, ValueError):
                lease = _connect(EngineAddress.load(files.address.read_bytes()), name)
                if process is None:
                    on_notice("Spark is warm")
                return lease
        elif process is None and not is_locked(files.lock):
            process = _start(launch)
        if process is not None and process.poll() is not None:
            raise SparkSetupError(f"the engine ended while it started; see {files.log}")
        if time.monotonic() > give_up_at:
            raise SparkSetupError(f"the engine did not answer in {START_SECONDS} s; see {files.log}")
        interruption.sleep(POLL_SECONDS)


def _start(launch: EngineLaunch) -> subprocess.Popen[bytes]:
    files = engine_files(launch.state, launch.fingerprint)
    make_private_folder(files.lock.parent)
    make_private_folder(files.log.parent)
    with open_private_file(files.log, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ondatra_dagster.warehouse.spark.engine_process"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=launch.state,
            start_new_session=True,
        )
    assert process.stdin
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(launch.dump())
    return process


def _connect(address: EngineAddress, name: str) -> EngineLease:
    connection = socket.create_connection(("127.0.0.1", address.port), timeout=CONNECT_SECONDS)
    try:
        connection.sendall(orjson.dumps({"secret": address.secret, "verb": "lease", "name": name}) + b"\n")
        with connection.makefile("rb") as stream:
            gateway = orjson.loads(stream.readline() or b"{}")
        connection.settimeout(None)
        return EngineLease(connection, int(gateway["port"]), str(gateway["secret"]), name)
    except BaseException:
        connection.close()
        raise
