"""The start and the end of Spark's JVM. This module runs `java` directly, without shell scripts or a second JVM.

session.py configures Spark; memory_and_tuning_by_work_size.py sets the JVM's memory.
"""

import dataclasses
import hashlib
import importlib.util
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import java_import

from ondatra_dagster import interruption
from ondatra_dagster.errors import SparkSetupError
from ondatra_dagster.storage.private_files import make_private_folder, open_private_file
from ondatra_dagster.warehouse.spark.java_finder import Java
from ondatra_dagster.warehouse.spark.table_locks import SessionLocks

START_SECONDS = 120
POLL_SECONDS = 0.02
TERMINATE_SECONDS = 4
LOG_BYTES = 5_000_000  # a longer log is overwritten
OPENED_PACKAGES = (  # the packages of the JDK that Spark's own launcher opens with --add-opens
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
# with another time zone, a local time that daylight saving time skips would be changed
UTC_OPTION = "-Duser.timezone=UTC"
JVM_OPTIONS = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED_PACKAGES),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djdk.reflect.useDirectMethodHandle=false",
    UTC_OPTION,
)
JAVA_IMPORTS = (  # the imports that pyspark expects in the gateway's JVM
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JvmLaunch:
    """The parameters for the start of a JVM."""

    java: Java
    conf: Mapping[str, str]
    log: Path  # the file that gets the output of Java and Spark
    jars: Sequence[Path] = ()  # the jars in addition to pyspark's
    options: Sequence[str] = ()  # options for Java; they come before JVM_OPTIONS
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    inherited_files: Sequence[int] = ()  # file descriptors that stay open as long as the JVM lives


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Jvm:
    process: subprocess.Popen[bytes]
    port: int
    secret: str

    def connect(self) -> ClientServer:
        """Return the gateway from Python to the JVM, in the form that pyspark expects."""
        gateway = ClientServer(
            java_parameters=JavaParameters(port=self.port, auth_token=self.secret, auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
        gateway.proc = self.process
        for name in JAVA_IMPORTS:
            java_import(gateway.jvm, name)
        return gateway

    def terminate_soon(self) -> None:
        """End the JVM in the background, even while Spark is working. A caller that waits for Spark gets an error."""
        threading.Thread(target=self._terminate, name="end-spark", daemon=True).start()

    def _terminate(self) -> None:
        self.process.terminate()  # SIGTERM gives Spark the time to remove its files
        try:
            self.process.wait(TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def stop(self, *, wait_seconds: float) -> None:
        """Close the JVM's input, so that the JVM ends by itself. Kill the JVM if it doesn't end."""
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_locked_jvm(launch: JvmLaunch, locks_folder: Path) -> tuple[Jvm, SessionLocks]:
    """Start a JVM that inherits a lock: it may live for a moment after this process was killed."""
    locks = SessionLocks(locks_folder)
    try:
        jvm = start_jvm(dataclasses.replace(launch, inherited_files=[locks.jvm_descriptor]))
    finally:
        locks.close_jvm_descriptor()  # the JVM holds its own copy, or it didn't start
    return jvm, locks


def pyspark_jars() -> list[Path]:
    """Return the jars of the installed pyspark, always in the same order: a class archive depends on the order."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkSetupError("pyspark is not installed; install this project's requirements.txt")
    return sorted((Path(spec.origin).parent / "jars").glob("*.jar"))


def start_jvm(launch: JvmLaunch) -> Jvm:
    """Start a JVM in which a Spark context can be created. Raises SparkSetupError if the JVM doesn't start."""
    make_private_folder(launch.log.parent)
    with tempfile.TemporaryDirectory() as folder, _open_log(launch.log) as log:
        connection_file = Path(folder) / "connection"
        log_start = log.tell()  # read the position before Java starts, because Java writes to the same file
        process = subprocess.Popen(  # noqa: S603 - our own command, with no shell
            _command(launch, connection_file),
            stdin=subprocess.PIPE,  # when this pipe is closed, the JVM knows that this process has ended
            stdout=log,
            stderr=log,
            pass_fds=launch.inherited_files,
            process_group=0,  # Ctrl-C only goes to this process, which then ends the JVM in an orderly way
        )
        try:
            _wait_for_connection(connection_file, process, launch.log, log_offset=log_start)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        with connection_file.open("rb") as stream:
            port, length = (int.from_bytes(stream.read(4)) for _ in range(2))
            return Jvm(process=process, port=port, secret=stream.read(length).decode())


def _command(launch: JvmLaunch, answer: Path) -> list[str]:
    variables = {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer), **launch.variables}
    class_path = ":".join(str(jar) for jar in (*pyspark_jars(), *launch.jars))
    settings = [argument for name, value in launch.conf.items() for argument in ("--conf", f"{name}={value}")]
    return [
        "/usr/bin/env",
        *(f"{name}={value}" for name, value in variables.items()),
        *(str(launch.java.executable), *launch.options, *JVM_OPTIONS, "-cp", class_path),
        *("org.apache.spark.deploy.SparkSubmit", *settings, "pyspark-shell"),
    ]


def _open_log(log: Path) -> IO[bytes]:
    """Open the log to append to it, because several JVMs may share it. If the log is long, overwrite it."""
    is_long = log.exists() and log.stat().st_size > LOG_BYTES
    stream = open_private_file(log, "wb" if is_long else "ab")
    stream.seek(0, os.SEEK_END)
    return stream


def _wait_for_connection(answer: Path, process: subprocess.Popen[bytes], log: Path, *, log_offset: int) -> None:
    """Wait until the JVM has written its port into a file. Spark reports the port in this way."""
    give_up_at = time.monotonic() + START_SECONDS
    while not answer.exists():
        if process.poll() is not None:
            raise SparkSetupError(
                f"Java ended while Spark was starting: {_failure_reason(log, log_offset)} (see {log})"
            )
        if time.monotonic() > give_up_at:
            raise SparkSetupError(f"Spark did not start in {START_SECONDS} s; see {log}")
        interruption.sleep(POLL_SECONDS)


def _failure_reason(log: Path, log_offset: int) -> str:
    """Return the line after `log_offset` that most likely has the reason why the JVM didn't start."""
    with log.open(encoding="utf-8", errors="replace") as stream:
        stream.seek(log_offset)
        lines = [line.strip() for line in stream]
    error_lines = [line for line in lines if "rror" in line or "xception" in line] or lines
    return error_lines[0] if error_lines else "it printed nothing"


def class_archive_path(java: Java, jars: Sequence[Path]) -> Path:
    """Return the path of the class archive for this Java and these jars. The archive may not exist yet."""
    jar_list = "\n".join(f"{jar} {jar.stat().st_size}" for jar in (*pyspark_jars(), *jars))
    identity = f"{java.executable} {java.release} {hashlib.sha256(jar_list.encode()).hexdigest()[:12]}"
    return jars[0].parent / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"
