"""The checks of free disk space, write access and free ports."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from ondatra_dagster.count_time_and_size_format import format_size
from ondatra_dagster.doctor.check_context_and_result import (
    CheckContext,
    CheckResult,
    failed_result,
    ok_result,
    warning_result,
)
from ondatra_dagster.project.settings.read_settings_and_defaults import DEFAULT_COLLECTOR_PORT as EVENTS_PORT
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.settings.storage_access import local_path

MIN_FREE_BYTES = 200_000_000  # with less space, Spark's own files don't fit
WARN_FREE_BYTES = 2_000_000_000


def check_disks(machine: CheckContext) -> Iterator[CheckResult]:
    """Yield a result for each disk's free space, and one for each folder that this user can't write to."""
    if machine.settings is None:
        return
    folders = {name: _nearest_folder(path) for name, path in _written_folders(machine, machine.settings).items()}
    for name, folder in folders.items():
        if not os.access(folder, os.W_OK):
            yield failed_result(f"{folder}, for {name}, can't be written", "give this user write permission there")
    for folder, names in _folders_by_disk(folders).items():
        yield _judge_free_space(folder, ", ".join(names))


def _written_folders(machine: CheckContext, settings: Settings) -> dict[str, Path]:
    """Return the folders on this machine that a run writes to, by the name of the data in them."""
    folders: dict[str, Path | None] = {"temporary files": Path(tempfile.gettempdir()), "jars": settings.jars}
    if machine.is_project:
        folders |= {
            "state": settings.state,
            "tables": local_path(settings.warehouse),
            "records": local_path(settings.tracking),
        }
    return {name: path for name, path in folders.items() if path}


def _nearest_folder(path: Path) -> Path:
    """Return the folder if it exists, otherwise its nearest parent that exists."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _folders_by_disk(folders: dict[str, Path]) -> dict[Path, list[str]]:
    """Return one folder for each disk, with the names of the data that a run writes to this disk."""
    names_by_device: dict[int, list[str]] = {}
    for name, folder in folders.items():
        names_by_device.setdefault(folder.stat().st_dev, []).append(name)
    return {folders[names[-1]]: names for names in names_by_device.values()}


def _judge_free_space(folder: Path, names: str) -> CheckResult:
    free_bytes = shutil.disk_usage(folder).free
    description = f"{format_size(free_bytes)} free at {folder} (for {names})"
    if free_bytes < MIN_FREE_BYTES:
        return failed_result(description, "make room, or set TMPDIR, jars, warehouse or tracking to another disk")
    if free_bytes < WARN_FREE_BYTES:
        return warning_result(description, "make room before tables grow")
    return ok_result(description)


LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


def check_ports(machine: CheckContext) -> Iterator[CheckResult]:
    """Yield a result for each port that is in use. If none is, yield one result for all ports."""
    if machine.settings is None:
        return
    servers = _server_ports(machine.settings)
    used_ports = {command: port for command, port in servers.items() if not _is_free(port)}
    for command, port in used_ports.items():
        yield warning_result(
            f"port {port} is in use", f"unless `{command}` runs already, give that command another --port"
        )
    if not used_ports:
        yield ok_result(", ".join(f"{port} is free for `{command}`" for command, port in servers.items()))


def _server_ports(settings: Settings) -> dict[str, int]:
    """Return the port of each command that starts a server on this machine."""
    dagster = urlsplit(settings.dagster_url)
    servers = {"ondatra ui": settings.ui_port, "ondatra events": EVENTS_PORT}
    is_local = dagster.hostname in LOOPBACK_HOSTS and dagster.port
    return servers | ({"dg dev": dagster.port} if is_local and dagster.port else {})


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # as servers do: ports of closed connections count as free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
