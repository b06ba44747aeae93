"""Whether the ports are free that ondatra's own servers take."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from ondatra_dagster.doctor.check_result import CheckResult, ok, warning
from ondatra_dagster.doctor.machine import Machine
from ondatra_dagster.project.settings.event_settings import PORT as EVENTS_PORT
from ondatra_dagster.project.settings.settings import Settings

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check(machine: Machine) -> Iterator[CheckResult]:
    """Return a result for each port that is taken, or one for all."""
    if machine.settings is None:
        return
    servers = _servers(machine.settings)
    taken = {command: port for command, port in servers.items() if not _is_free(port)}
    for command, port in taken.items():
        yield warning(
            f"port {port} is in use", f"unless `{command}` runs already, give that command another --port"
        )
    if not taken:
        yield ok(", ".join(f"{port} is free for `{command}`" for command, port in servers.items()))


def _servers(settings: Settings) -> dict[str, int]:
    """Return the ports by the commands that listen there."""
    dagster = urlsplit(settings.dagster_url)
    servers = {"ondatra ui": settings.ui_port, "ondatra events": EVENTS_PORT}
    is_here = dagster.hostname in LOOPBACK and dagster.port
    return servers | ({"dg dev": dagster.port} if is_here and dagster.port else {})


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: not for closed connections
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
