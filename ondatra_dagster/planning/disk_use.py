"""How much of the disk a folder takes, of this machine: every file in it, whatever it is."""

import os
from pathlib import Path

from ondatra_dagster.project.settings.addresses import local_path


def disk_use(address: str | Path) -> int | None:
    """Bytes below a path or an address; 0 when nothing is there, None where nobody can look."""
    path = local_path(address)
    return None if path is None else _below(str(path))


def _below(folder: str) -> int:
    size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    size += _below(entry.path)
                else:
                    size += entry.stat(follow_symlinks=False).st_size
    except (FileNotFoundError, NotADirectoryError):
        return size  # it went while we looked
    return size
