"""The one JVM of a test run: the first worker that needs Spark starts it, the others connect to it.

Each worker has its own session there, so settings and temporary views are separate.
"""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from pyspark.sql import SparkSession

from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.warehouse.spark.engine_session import connect_session
from ondatra_dagster.warehouse.spark.session import Warehouse


class _JvmAddress(NamedTuple):
    """The port and the secret of the JVM."""

    port: int
    secret: str


@contextlib.contextmanager
def shared_session(settings: Settings, folder: Path) -> Iterator[Warehouse]:
    """Yield a warehouse with a session in the run's one JVM; `folder` has its address and the workers' locks."""
    if settings.spark.remote:
        with Warehouse(settings) as warehouse:
            yield warehouse
        return
    door = folder / "jvm.json"
    with _lock_file(folder / "jvm.lock", fcntl.LOCK_EX):
        address = _JvmAddress(*orjson.loads(door.read_bytes())) if door.exists() else None
        guest = _lock_file(folder / "guests.lock", fcntl.LOCK_SH)
        warehouse = Warehouse(settings)
        if address:
            guest.__enter__()
            warehouse._session = _connect_to_jvm(address)
        else:
            _ = warehouse.session
            assert warehouse._jvm is not None
            # a test that interrupts its own process must not end the JVM of all tests
            warehouse._interruption_hooks.close()
            door.write_bytes(orjson.dumps([warehouse._jvm.port, warehouse._jvm.secret]))
    if address:
        yield warehouse
        guest.__exit__(None, None, None)
        return
    yield warehouse
    with _lock_file(folder / "jvm.lock", fcntl.LOCK_EX):
        door.unlink()  # a worker that comes later starts its own JVM
    with _lock_file(folder / "guests.lock", fcntl.LOCK_EX):  # waits until the last other worker has ended
        warehouse.close()


@contextlib.contextmanager
def _lock_file(path: Path, lock_type: int) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, lock_type)
        yield


def _connect_to_jvm(address: _JvmAddress) -> SparkSession:
    gateway = ClientServer(
        java_parameters=JavaParameters(port=address.port, auth_token=address.secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    return connect_session(gateway)
