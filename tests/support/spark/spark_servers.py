"""Servers of Spark outside the test's process, on loopback: a Connect server, and a standalone master with a worker."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.warehouse.spark.jar_download import DELTA_JARS, fetch_jar_set
from ondatra_dagster.warehouse.spark.java_finder import find_java
from ondatra_dagster.warehouse.spark.jvm_process import JVM_OPTIONS, pyspark_jars
from ondatra_dagster.warehouse.spark.session import DELTA_CONF

START_SECONDS = 90
LOOPBACK = "127.0.0.1"
SMALL_TABLE_CONF = {  # for tables of ten rows
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.ui.enabled": "false",
}


@contextlib.contextmanager
def running_connect_server(settings: Settings, log: Path) -> Iterator[str]:
    """Run a Spark Connect server until the block ends; yield its address."""
    port = find_free_port()
    conf = {
        **DELTA_CONF,
        **SMALL_TABLE_CONF,
        "spark.master": "local[2]",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(log.parent / "spark-warehouse"),
    }
    words = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = ["org.apache.spark.deploy.SparkSubmit", *words, "--class", server, "spark-internal"]
    with _running_process(settings, command, log, memory="2g"):
        _wait_for_port(port)
        yield f"sc://{LOOPBACK}:{port}"


@contextlib.contextmanager
def running_standalone_cluster(settings: Settings, log: Path) -> Iterator[str]:
    """Run a master and one worker until the block ends; yield the master's address."""
    port = find_free_port()
    master = f"spark://{LOOPBACK}:{port}"
    kinds = "org.apache.spark.deploy"
    listen = ["--host", LOOPBACK, "--webui-port", "0"]
    worker = [f"{kinds}.worker.Worker", *listen, "--cores", "2", "--memory", "1g"]
    with (
        _running_process(settings, [f"{kinds}.master.Master", *listen, "--port", str(port)], log, memory="512m"),
        _running_process(settings, [*worker, "--work-dir", str(log.parent / "work"), master], log, memory="512m"),
    ):
        _wait_for_port(port)
        yield master


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def _running_process(settings: Settings, command: Sequence[str], log: Path, *, memory: str) -> Iterator[None]:
    java = find_java(settings.java_home).executable
    class_path = ":".join(str(jar) for jar in (*pyspark_jars(), *fetch_jar_set(settings.jars, DELTA_JARS, None)))
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(java), f"-Xmx{memory}", *JVM_OPTIONS, "-cp", class_path, *command],
            stdout=output,
            stderr=output,
            env=_environment(java),
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def _environment(java: Path) -> Mapping[str, str]:
    home = pyspark_jars()[0].parent.parent
    return {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",  # without it a worker looks for the folders in which Spark is built
        "JAVA_HOME": str(java.resolve().parent.parent),
    }


def _wait_for_port(port: int) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"nothing listens at {LOOPBACK}:{port}")
        time.sleep(0.1)
