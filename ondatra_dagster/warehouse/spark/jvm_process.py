"""The start and the end of Spark's JVM: from `java` itself, without shell scripts or a second JVM.

session.py configures Spark; memory_and_tuning_by_work_size.py has the JVM's memory.
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

START_SECONDS = 120
POLL_SECONDS = 0.02
TERMINATE_SECONDS = 4
LOG_BYTES = 5_000_000  # a longer log is begun anew
OPENED_PACKAGES = (  # what Spark's own launcher opens of the JDK
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
UTC_OPTION = "-Duser.timezone=UTC"  # else a local time that summer time leaves out can't pass through unharmed
JVM_OPTIONS = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED_PACKAGES),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djdk.reflect.useDirectMethodHandle=false",
    UTC_OPTION,
)
JAVA_IMPORTS = (  # what pyspark expects to find in a gateway
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
    """Everything that a JVM is started with."""

    java: Java
    conf: Mapping[str, str]
    log: Path  # takes what Java and Spark print
    jars: Sequence[Path] = ()  # beside those that pyspark brings
    options: Sequence[str] = ()  # Java's own, before ours
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    inherited_files: Sequence[int] = ()  # descriptors that stay open as long as the JVM lives


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Jvm:
    process: subprocess.Popen[bytes]
    port: int
    secret: str

    def connect(self) -> ClientServer:
        """The way from Python into the JVM, as pyspark expects it."""
        gateway = ClientServer(
            java_parameters=JavaParameters(port=self.port, auth_token=self.secret, auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
        gateway.proc = self.process
        for name in JAVA_IMPORTS:
            java_import(gateway.jvm, name)
        return gateway

    def terminate_soon(self) -> None:
        """Let the JVM end though Spark works: whoever waits for an answer of it gets an error."""
        threading.Thread(target=self._terminate, name="end-spark", daemon=True).start()

    def _terminate(self) -> None:
        self.process.terminate()  # Spark removes its files
        try:
            self.process.wait(TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def stop(self, *, wait_seconds: float) -> None:
        """Let the JVM end by itself, as it does when nobody is there to talk to; by force if it doesn't."""
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def pyspark_jars() -> list[Path]:
    """The jars of the installed pyspark, always in the same order: an archive of classes depends on it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkSetupError("pyspark is not installed; install this project's requirements.txt")
    return sorted((Path(found.origin).parent / "jars").glob("*.jar"))


def start_jvm(launch: JvmLaunch) -> Jvm:
    """A JVM in which a Spark context can be made; raises SparkSetupError when it doesn't come up."""
    make_private_folder(launch.log.parent)
    with tempfile.TemporaryDirectory() as folder, _open_log(launch.log) as log:
        answer = Path(folder) / "connection"
        said_before = log.tell()  # before Java starts: it writes to the same place in the same file
        process = subprocess.Popen(  # noqa: S603 - our own command, with no shell
            _command(launch, answer),
            stdin=subprocess.PIPE,  # its end is what tells the JVM that we are gone
            stdout=log,
            stderr=log,
            pass_fds=launch.inherited_files,
            process_group=0,  # Ctrl-C is for us: a JVM that hears it too ends before we have told it how
        )
        try:
            _wait_for_connection(answer, process, launch.log, said_before=said_before)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        with answer.open("rb") as stream:
            port, length = (int.from_bytes(stream.read(4)) for _ in range(2))
            return Jvm(process=process, port=port, secret=stream.read(length).decode())


def _command(launch: JvmLaunch, answer: Path) -> list[str]:
    variables = {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer), **launch.variables}
    class_path = ":".join(str(jar) for jar in (*pyspark_jars(), *launch.jars))
    settings = [part for name, value in launch.conf.items() for part in ("--conf", f"{name}={value}")]
    return [
        "/usr/bin/env",
        *(f"{name}={value}" for name, value in variables.items()),
        *(str(launch.java.executable), *launch.options, *JVM_OPTIONS, "-cp", class_path),
        *("org.apache.spark.deploy.SparkSubmit", *settings, "pyspark-shell"),
    ]


def _open_log(log: Path) -> IO[bytes]:
    """The log to add to: several JVMs may share it."""
    is_long = log.exists() and log.stat().st_size > LOG_BYTES
    stream = open_private_file(log, "wb" if is_long else "ab")
    stream.seek(0, os.SEEK_END)
    return stream


def _wait_for_connection(answer: Path, process: subprocess.Popen[bytes], log: Path, *, said_before: int) -> None:
    """Until the JVM has said where it listens: by a file, since that is how Spark tells."""
    give_up_at = time.monotonic() + START_SECONDS
    while not answer.exists():
        if process.poll() is not None:
            raise SparkSetupError(
                f"Java ended while Spark was starting: {_failure_reason(log, said_before)} (see {log})"
            )
        if time.monotonic() > give_up_at:
            raise SparkSetupError(f"Spark did not start in {START_SECONDS} s; see {log}")
        interruption.sleep(POLL_SECONDS)


def _failure_reason(log: Path, said_before: int) -> str:
    """The line of the log that most likely says why."""
    with log.open(encoding="utf-8", errors="replace") as stream:
        stream.seek(said_before)
        lines = [line.strip() for line in stream]
    telling = [line for line in lines if "rror" in line or "xception" in line] or lines
    return telling[0] if telling else "it printed nothing"


def class_archive_path(java: Java, jars: Sequence[Path]) -> Path:
    """Where the archive for this Java and these jars is, or would be."""
    listed = "\n".join(f"{jar} {jar.stat().st_size}" for jar in (*pyspark_jars(), *jars))
    made_of = f"{java.executable} {java.release} {hashlib.sha256(listed.encode()).hexdigest()[:12]}"
    return jars[0].parent / f"classes-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jsa"
