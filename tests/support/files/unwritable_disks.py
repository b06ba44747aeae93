"""The full and read-only disks of tests: a small mounted disk where this user may mount one, otherwise a file limit."""

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_BYTES = 4000  # the largest file where nothing can be mounted: a database is larger
UNWRITABLE_MESSAGE = r"can't (be used|be written|grow): .*(is full|is read-only|largest size|fails|who may write)"


@contextlib.contextmanager
def mount_small_disk(folder: Path) -> Iterator[bool]:
    """Mount a disk of 40 MB at the folder; yield False where this user may not mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    completed = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m,mode=700", "tmpfs", str(folder)], capture_output=True
    )
    try:
        yield completed.returncode == 0
    finally:
        if completed.returncode == 0:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def fill_disk(folder: Path, *, is_mounted: bool) -> Iterator[None]:
    """Fill the folder's disk; if none is mounted, limit the files of this process instead."""
    if not is_mounted:
        with limit_file_size():
            yield
        return
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        for size in (1_000_000, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    try:
        yield
    finally:
        filler.unlink()


@contextlib.contextmanager
def make_read_only(folder: Path, *, is_mounted: bool) -> Iterator[None]:
    """Make the folder read-only."""
    if not is_mounted and os.geteuid() == 0:  # root may write whatever the file's mode says
        with limit_file_size():
            yield
        return
    _set_writable(folder, is_mounted=is_mounted, is_writable=False)
    try:
        yield
    finally:
        _set_writable(folder, is_mounted=is_mounted, is_writable=True)


def _set_writable(folder: Path, *, is_mounted: bool, is_writable: bool) -> None:
    if is_mounted:
        how = f"remount,{'rw' if is_writable else 'ro'},size=40m"
        subprocess.run(["mount", "-o", how, str(folder)], check=True)
        return
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if is_writable else 0o500)


@contextlib.contextmanager
def limit_file_size() -> Iterator[None]:
    """Limit each file of this process to a few kilobytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
