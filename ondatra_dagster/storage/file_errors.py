"""The errors of SQLite and of the operating system on ondatra's files, each as a sentence with its remedy.

Every module that opens, reads, writes or locks a file below .ondatra raises these StateErrors. "Move it away" is
the remedy for a damaged file only. The module that owns the file writes this advice, because it knows what the loss
of the file costs.
"""

import contextlib
import enum
import errno
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from ondatra_dagster.errors import BusyError, DiskFullError, StateError

FILE_ERRORS = (sqlite3.Error, OSError, UnicodeDecodeError)
RESTORE_FROM_BACKUP = "bring it back from a backup"
INTEGRITY_CHECK = "pragma integrity_check(3)"  # reports at most three errors
PAGE_ERROR = re.compile(r"unable to get the page. error code=(\d+)")
PRIMARY_CODE_MASK = 0xFF  # the other bits of SQLite's code say where in SQLite it failed
CHUNK_BYTES = 1_048_576
SMALLEST_FREE_BYTES = 65_536  # with less, SQLite can't create the files that it needs


class FileFault(enum.Enum):
    """A reason why a file can't be used."""

    FULL = enum.auto()
    READ_ONLY = enum.auto()
    DISK = enum.auto()
    BUSY = enum.auto()
    ACCESS = enum.auto()  # no permission, or not a file that can be opened
    DAMAGED = enum.auto()
    TEXT = enum.auto()  # damaged text, which SQLite doesn't check
    TOO_LARGE = enum.auto()
    REPLACED = enum.auto()


FAULT_BY_SQLITE_CODE: Mapping[int, FileFault] = {
    sqlite3.SQLITE_FULL: FileFault.FULL,
    sqlite3.SQLITE_IOERR: FileFault.DISK,
    sqlite3.SQLITE_READONLY: FileFault.READ_ONLY,
    sqlite3.SQLITE_BUSY: FileFault.BUSY,
    sqlite3.SQLITE_LOCKED: FileFault.BUSY,
    sqlite3.SQLITE_PROTOCOL: FileFault.BUSY,
    sqlite3.SQLITE_CANTOPEN: FileFault.ACCESS,
    sqlite3.SQLITE_PERM: FileFault.ACCESS,
    sqlite3.SQLITE_CORRUPT: FileFault.DAMAGED,
    sqlite3.SQLITE_NOTADB: FileFault.DAMAGED,
    sqlite3.SQLITE_FORMAT: FileFault.DAMAGED,
}
FAULT_BY_ERRNO: Mapping[int, FileFault] = {
    errno.ENOSPC: FileFault.FULL,
    errno.EDQUOT: FileFault.FULL,
    errno.EIO: FileFault.DISK,
    errno.EROFS: FileFault.READ_ONLY,
    errno.EFBIG: FileFault.TOO_LARGE,
}
FAULT_BY_MESSAGE: Mapping[str, FileFault] = {
    "is full": FileFault.FULL,
    "readonly": FileFault.READ_ONLY,
    "unable to open": FileFault.ACCESS,
    "locked": FileFault.BUSY,
    "malformed": FileFault.DAMAGED,
    "not a database": FileFault.DAMAGED,
}
DISK_FAULTS = frozenset({FileFault.FULL, FileFault.READ_ONLY, FileFault.DISK, FileFault.TOO_LARGE})


@contextlib.contextmanager
def explain_file_errors(
    path: Path, damage_advice: str = RESTORE_FROM_BACKUP, *, is_opening: bool = False
) -> Iterator[None]:
    """Raise StateError in place of an error of SQLite or of the operating system on the file at `path`.

    An error that says nothing about the file is raised unchanged. With `is_opening`, while a database is opened, it
    becomes a StateError too, because the file's tables can't be read then.
    """
    try:
        yield
    except FILE_ERRORS as error:
        raise_state_error(error, path, damage_advice, is_opening=is_opening)


def raise_state_error(
    error: Exception, path: Path, damage_advice: str = RESTORE_FROM_BACKUP, *, is_opening: bool = False
) -> NoReturn:
    """Raise the StateError for this error on the file; raise the error itself if it says nothing about the file."""
    fault = _find_fault(error, path)
    if fault is None and is_opening:
        fault = FileFault.TEXT
    if fault is None:
        raise error
    obstacle = _find_obstacle(path) if fault in (FileFault.ACCESS, FileFault.DISK) else None
    fault = FileFault.ACCESS if obstacle else fault
    raise _state_error(fault, error, path, damage_advice, obstacle) from error


def damage_error(path: Path, damage: str, damage_advice: str) -> StateError:
    """Return the error of a file whose content can't be trusted."""
    return StateError(f"{path} is damaged ({damage}); {damage_advice}")


def storage_error(reason: str, folder: Path, damage_advice: str = RESTORE_FROM_BACKUP) -> StateError:
    """Return the StateError for a library's database in the folder, when only SQLite's message (`reason`) is known."""
    fault = next((fault for message, fault in FAULT_BY_MESSAGE.items() if message in reason), FileFault.DISK)
    return _state_error(_refine_fault(fault, folder), sqlite3.OperationalError(reason), folder, damage_advice)


def disk_error(error: BaseException, path: Path, damage_advice: str = RESTORE_FROM_BACKUP) -> StateError | None:
    """Return the StateError for a file error behind a library's exception; None if there is no file error.

    Dagster's storage, for example, wraps SQLite's errors. `path` names the file when the error doesn't.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, sqlite3.Error):
            if fault := _find_sqlite_fault(cause):
                return _state_error(_refine_fault(fault, path), cause, path, damage_advice)
        elif isinstance(cause, OSError) and FAULT_BY_ERRNO.get(cause.errno or 0) in DISK_FAULTS:
            file = Path(os.fsdecode(cause.filename)) if isinstance(cause.filename, str | bytes) else path
            return _state_error(FAULT_BY_ERRNO[cause.errno or 0], cause, file, damage_advice)
        cause = cause.__cause__
    return None


def integrity_errors(connection: sqlite3.Connection) -> list[str]:
    """Return the first errors that SQLite finds in a database; raise OSError if the disk can't read a page of it."""
    lines = [str(line) for (line,) in connection.execute(INTEGRITY_CHECK)]
    if any(
        int(code) & PRIMARY_CODE_MASK == sqlite3.SQLITE_IOERR for line in lines for code in PAGE_ERROR.findall(line)
    ):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return [] if lines == ["ok"] else lines


def _find_fault(error: Exception, path: Path) -> FileFault | None:
    if isinstance(error, sqlite3.Error):
        fault = _find_sqlite_fault(error)
        return _refine_fault(fault, path) if fault else None
    if isinstance(error, OSError):
        return FAULT_BY_ERRNO.get(error.errno or 0, FileFault.ACCESS)
    return FileFault.TEXT  # SQLite's text, or its message, isn't UTF-8


def _find_sqlite_fault(error: sqlite3.Error) -> FileFault | None:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # Python's own error
        return FileFault.TEXT if "decode to UTF-8" in str(error) else None
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return FileFault.REPLACED
    return FAULT_BY_SQLITE_CODE.get(code & PRIMARY_CODE_MASK)


def _refine_fault(fault: FileFault, path: Path) -> FileFault:
    """Return the real fault, after a check of the disk: on a full disk, SQLite says that it can't open a file."""
    if fault is FileFault.DAMAGED:
        return _check_damage(path)
    if fault not in (FileFault.DISK, FileFault.ACCESS, FileFault.READ_ONLY):
        return fault
    try:
        disk = os.statvfs(_find_mount(path))
    except OSError:
        return fault
    if disk.f_flag & os.ST_RDONLY:
        return FileFault.READ_ONLY
    if disk.f_bavail * disk.f_frsize < SMALLEST_FREE_BYTES or (disk.f_files and not disk.f_favail):
        return FileFault.FULL
    return FileFault.ACCESS if fault is FileFault.READ_ONLY else fault


def _check_damage(path: Path) -> FileFault:
    """Return DAMAGED, or DISK if the disk can't read the file: SQLite calls both faults malformed."""
    if not path.is_file():
        return FileFault.DAMAGED
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with path.open("rb", buffering=0) as file:
            while file.read(CHUNK_BYTES):
                """A page that the disk can't read raises OSError."""
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection:
            return FileFault.DAMAGED if integrity_errors(connection) else FileFault.DISK
    except sqlite3.Error as error:
        fault = _find_sqlite_fault(error)
        return FileFault.DISK if fault is FileFault.DISK else FileFault.DAMAGED
    except OSError:
        return FileFault.DISK


def _state_error(
    fault: FileFault, error: BaseException, path: Path, damage_advice: str, obstacle: str | None = None
) -> StateError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    disk = f"the disk at {_find_mount(path)}"
    if fault in (FileFault.DAMAGED, FileFault.TEXT):
        return damage_error(path, reason, damage_advice)
    sentences = {
        FileFault.FULL: f"be written: {disk} is full; make room there, then try again",
        FileFault.TOO_LARGE: "grow: files have a largest size here; raise it (`ulimit -f`), then try again",
        FileFault.BUSY: f"be used: it is being written by another process ({reason}); try again after that",
        FileFault.READ_ONLY: f"be used: {disk} is read-only; mount it for writing, then try again",
        FileFault.DISK: f"be used: {disk} fails ({reason}); check the disk and the system's log, then try again",
        FileFault.REPLACED: "be used: it was moved or removed meanwhile; try again",
        FileFault.ACCESS: f"be used: {obstacle or f'{reason}; check who owns it and who may write'}",
    }
    kinds = {FileFault.FULL: DiskFullError, FileFault.TOO_LARGE: DiskFullError, FileFault.BUSY: BusyError}
    return kinds.get(fault, StateError)(f"{path} can't {sentences[fault]}")


def _find_obstacle(path: Path) -> str | None:
    """Return the obstacle in the file's path, and the remedy; None if there is no obstacle."""
    with contextlib.suppress(OSError):
        if path.is_dir():
            return "it is a folder; move the folder elsewhere, then try again"
        if path.is_symlink() and not path.exists():
            return f"it is a link to {path.readlink()}, which isn't there; bring that back, or remove the link"
        obstacle = next((parent for parent in path.parents if parent.exists() and not parent.is_dir()), None)
        if obstacle:
            return f"{obstacle} is not a folder; move that file elsewhere, then try again"
    return None


def _find_mount(path: Path) -> Path:
    absolute_path = path.absolute()
    return next(
        (folder for folder in (absolute_path, *absolute_path.parents) if os.path.ismount(folder)),
        Path(absolute_path.anchor),
    )
