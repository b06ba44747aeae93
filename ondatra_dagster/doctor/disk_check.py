"""Whether there is room on the disks that ondatra writes to, and whether it may write there."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.doctor.check_result import CheckResult, failed, ok, warning
from ondatra_dagster.doctor.machine import Machine
from ondatra_dagster.project.settings.addresses import local_path
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.wording import size_of

TOO_LITTLE_BYTES = 200_000_000  # Spark's own files don't fit
LITTLE_BYTES = 2_000_000_000


def check(machine: Machine) -> Iterator[CheckResult]:
    """Return a result for each disk, and one for each folder that can't be written."""
    if machine.settings is None:
        return
    folders = {name: _existing(path) for name, path in _written(machine, machine.settings).items()}
    for name, folder in folders.items():
        if not os.access(folder, os.W_OK):
            yield failed(f"{folder}, for {name}, can't be written", "let this user write there")
    for folder, names in _disks(folders).items():
        yield _judge(folder, ", ".join(names))


def _written(machine: Machine, settings: Settings) -> dict[str, Path]:
    """Return the folders of this machine that a run writes to."""
    places: dict[str, Path | None] = {"temporary files": Path(tempfile.gettempdir()), "jars": settings.jars}
    if machine.is_project:
        places |= {
            "state": settings.state,
            "tables": local_path(settings.warehouse),
            "records": local_path(settings.tracking),
        }
    return {name: path for name, path in places.items() if path}


def _existing(path: Path) -> Path:
    """Return the folder, or the nearest one above that is there."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _disks(folders: dict[str, Path]) -> dict[Path, list[str]]:
    """Return one folder of each disk, with what is written there."""
    by_device: dict[int, list[str]] = {}
    for name, folder in folders.items():
        by_device.setdefault(folder.stat().st_dev, []).append(name)
    return {folders[names[-1]]: names for names in by_device.values()}


def _judge(folder: Path, names: str) -> CheckResult:
    free = shutil.disk_usage(folder).free
    what = f"{size_of(free)} free at {folder} (for {names})"
    if free < TOO_LITTLE_BYTES:
        return failed(what, "make room, or set TMPDIR, jars, warehouse or tracking to another disk")
    if free < LITTLE_BYTES:
        return warning(what, "make room before tables grow")
    return ok(what)
