"""A session on a Spark Connect server. The server's operator installs Delta; this module checks what a client can.

Without these checks, Spark's client package ends the process or waits for minutes, instead of raising an error.
"""

import contextlib
import importlib.util
import re
import socket
import threading

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ondatra_dagster.errors import SparkSetupError
from ondatra_dagster.warehouse.spark.error_messages import shorten_message

REQUIRED_PACKAGES = ("pandas", "grpc", "grpc_status", "google.rpc", "zstandard")
DEFAULT_PORT = 15002  # the default port of a Spark Connect server
PROBE_SECONDS = 5
ADDRESS = re.compile(r"sc://(?P<host>\[[^\]]+\]|[^:/;]+)(?::(?P<port>\d+))?(?:/.*)?")


def connect_to_server(remote: str, conf: dict[str, str]) -> SparkSession:
    """Return a new session with these settings. Raises SparkSetupError within seconds if there can't be a session."""
    _check_packages()
    _check_server(remote)
    from grpc import RpcError  # imported only here, because it may not be installed

    options: dict[str, bool | float | int | str | None] = {**conf}
    try:
        return SparkSession.builder.remote(remote).config(map=options).create()
    except (PySparkException, RpcError) as error:
        raise SparkSetupError(f"Spark Connect refused a session: {shorten_message(str(error))}") from None


def interrupt_session(session: SparkSession) -> None:
    """Interrupt the server's work for the session. The call that waits for this work then gets an error."""
    threading.Thread(target=_interrupt_all, args=(session,), name="interrupt-spark", daemon=True).start()


def _interrupt_all(session: SparkSession) -> None:
    from grpc import RpcError

    # if the server is lost, the waiting client notices that itself
    with contextlib.suppress(PySparkException, RpcError):
        session.interruptAll()


def _check_packages() -> None:
    missing_packages = [name for name in REQUIRED_PACKAGES if not _is_installed(name)]
    if missing_packages:
        raise SparkSetupError(
            f"spark.remote needs {', '.join(missing_packages)}: install them with `pip install 'ondatra[connect]'`"
        )


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _check_server(remote: str) -> None:
    """Raise SparkSetupError if no server listens at the address.

    The message doesn't show the address's path, which may contain a token.
    """
    address = ADDRESS.fullmatch(remote)
    if address is None:
        raise SparkSetupError("spark.remote isn't an address of Spark Connect; write sc://host:port")
    host, port = address["host"].strip("[]"), int(address["port"] or DEFAULT_PORT)
    try:
        socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
    except OSError as error:
        raise SparkSetupError(
            f"no Spark Connect server answers at {host}:{port} ({error}): start it, or correct spark.remote"
        ) from error
