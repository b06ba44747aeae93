"""The errors of SQLite and of the operating system on a file of ours, each as a sentence with its remedy.

Every module that opens, reads, writes or locks a file below .ondatra raises these StateErrors. "Move it away"
is the remedy for a damaged file only, and the module that owns the file words it: it knows what that costs.
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

from ondatra_dagster.errors import BusyError, FullError, StateError

FILE_ERRORS = (sqlite3.Error, OSError, UnicodeDecodeError)
FROM_BACKUP = "bring it back from a backup"
CHECK = "pragma integrity_check(3)"  # the first three of what is wrong
PAGE_ERROR = re.compile(r"unable to get the page. error code=(\d+)")
PRIMARY = 0xFF  # of SQLite's code: the rest tells where SQLite was
CHUNK_BYTES = 1_048_576
SMALLEST_FREE_BYTES = 65_536  # with less, SQLite can't make the files that it works with


class Fault(enum.Enum):
    """A reason why a file can't be used."""

    FULL = enum.auto()
    READ_ONLY = enum.auto()
    DISK = enum.auto()
    BUSY = enum.auto()
    ACCESS = enum.auto()  # no permission, or nothing that can be opened
    DAMAGED = enum.auto()
    TEXT = enum.auto()  # damaged where SQLite doesn't look
    TOO_LARGE = enum.auto()
    REPLACED = enum.auto()


BY_SQLITE_CODE: Mapping[int, Fault] = {
    sqlite3.SQLITE_FULL: Fault.FULL,
    sqlite3.SQLITE_IOERR: Fault.DISK,
    sqlite3.SQLITE_READONLY: Fault.READ_ONLY,
    sqlite3.SQLITE_BUSY: Fault.BUSY,
    sqlite3.SQLITE_LOCKED: Fault.BUSY,
    sqlite3.SQLITE_PROTOCOL: Fault.BUSY,
    sqlite3.SQLITE_CANTOPEN: Fault.ACCESS,
    sqlite3.SQLITE_PERM: Fault.ACCESS,
    sqlite3.SQLITE_CORRUPT: Fault.DAMAGED,
    sqlite3.SQLITE_NOTADB: Fault.DAMAGED,
    sqlite3.SQLITE_FORMAT: Fault.DAMAGED,
}
BY_ERRNO: Mapping[int, Fault] = {
    errno.ENOSPC: Fault.FULL,
    errno.EDQUOT: Fault.FULL,
    errno.EIO: Fault.DISK,
    errno.EROFS: Fault.READ_ONLY,
    errno.EFBIG: Fault.TOO_LARGE,
}
BY_WORDS: Mapping[str, Fault] = {
    "is full": Fault.FULL,
    "readonly": Fault.READ_ONLY,
    "unable to open": Fault.ACCESS,
    "locked": Fault.BUSY,
    "malformed": Fault.DAMAGED,
    "not a database": Fault.DAMAGED,
}
OF_THE_DISK = frozenset({Fault.FULL, Fault.READ_ONLY, Fault.DISK, Fault.TOO_LARGE})


@contextlib.contextmanager
def explained(path: Path, if_damaged: str = FROM_BACKUP, *, is_opening: bool = False) -> Iterator[None]:
    """Raise StateError in place of an error of SQLite or of the operating system on the file at `path`.

    An error that says nothing of the file is raised as it is, but for one while a database `is_opening`: then
    its tables can't be read.
    """
    try:
        yield
    except FILE_ERRORS as error:
        raise_explained(error, path, if_damaged, is_opening=is_opening)


def raise_explained(
    error: Exception, path: Path, if_damaged: str = FROM_BACKUP, *, is_opening: bool = False
) -> NoReturn:
    """Raise the StateError for this error on the file; the error itself where it says nothing of the file."""
    fault = _fault_of(error, path)
    if fault is None and is_opening:
        fault = Fault.TEXT
    if fault is None:
        raise error
    obstacle = _obstacle(path) if fault in (Fault.ACCESS, Fault.DISK) else None
    fault = Fault.ACCESS if obstacle else fault
    raise _state_error(fault, error, path, if_damaged, obstacle) from error


def damage(path: Path, what: str, if_damaged: str) -> StateError:
    """Return the error of a file whose content can't be trusted."""
    return StateError(f"{path} is damaged ({what}); {if_damaged}")


def storage_error(reason: str, folder: Path, if_damaged: str = FROM_BACKUP) -> StateError:
    """Return the error of a library's database in the folder, of which only SQLite's words are known."""
    fault = next((fault for words, fault in BY_WORDS.items() if words in reason), Fault.DISK)
    return _state_error(_looked_at(fault, folder), sqlite3.OperationalError(reason), folder, if_damaged)


def disk_error(error: BaseException, path: Path, if_damaged: str = FROM_BACKUP) -> StateError | None:
    """Return the StateError for a file error behind a library's exception; None where there is none.

    Dagster's storage, for one, wraps what SQLite says. `path` names the file where the error doesn't.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, sqlite3.Error):
            if fault := _by_sqlite_code(cause):
                return _state_error(_looked_at(fault, path), cause, path, if_damaged)
        elif isinstance(cause, OSError) and BY_ERRNO.get(cause.errno or 0) in OF_THE_DISK:
            file = Path(os.fsdecode(cause.filename)) if isinstance(cause.filename, str | bytes) else path
            return _state_error(BY_ERRNO[cause.errno or 0], cause, file, if_damaged)
        cause = cause.__cause__
    return None


def integrity_errors(connection: sqlite3.Connection) -> list[str]:
    """Return the first of what SQLite finds wrong in a database; raise OSError where it can't read a page."""
    lines = [str(line) for (line,) in connection.execute(CHECK)]
    if any(
        int(code) & PRIMARY == sqlite3.SQLITE_IOERR for line in lines for code in PAGE_ERROR.findall(line)
    ):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return [] if lines == ["ok"] else lines


def _fault_of(error: Exception, path: Path) -> Fault | None:
    if isinstance(error, sqlite3.Error):
        fault = _by_sqlite_code(error)
        return _looked_at(fault, path) if fault else None
    if isinstance(error, OSError):
        return BY_ERRNO.get(error.errno or 0, Fault.ACCESS)
    return Fault.TEXT  # SQLite's text, or its message, isn't UTF-8


def _by_sqlite_code(error: sqlite3.Error) -> Fault | None:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # Python's own error
        return Fault.TEXT if "decode to UTF-8" in str(error) else None
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return Fault.REPLACED
    return BY_SQLITE_CODE.get(code & PRIMARY)


def _looked_at(fault: Fault, path: Path) -> Fault:
    """Return the fault as a second look shows it: SQLite says of a full disk that it can't open a file."""
    if fault is Fault.DAMAGED:
        return _checked(path)
    if fault not in (Fault.DISK, Fault.ACCESS, Fault.READ_ONLY):
        return fault
    try:
        disk = os.statvfs(_mount_of(path))
    except OSError:
        return fault
    if disk.f_flag & os.ST_RDONLY:
        return Fault.READ_ONLY
    if disk.f_bavail * disk.f_frsize < SMALLEST_FREE_BYTES or (disk.f_files and not disk.f_favail):
        return Fault.FULL
    return Fault.ACCESS if fault is Fault.READ_ONLY else fault


def _checked(path: Path) -> Fault:
    """Return whether the file is damaged, or the disk failed to read it: SQLite calls both malformed."""
    if not path.is_file():
        return Fault.DAMAGED
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with path.open("rb", buffering=0) as file:
            while file.read(CHUNK_BYTES):
                """A page that the disk can't read raises OSError."""
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection:
            return Fault.DAMAGED if integrity_errors(connection) else Fault.DISK
    except sqlite3.Error as error:
        fault = _by_sqlite_code(error)
        return Fault.DISK if fault is Fault.DISK else Fault.DAMAGED
    except OSError:
        return Fault.DISK


def _state_error(
    fault: Fault, error: BaseException, path: Path, if_damaged: str, obstacle: str | None = None
) -> StateError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    disk = f"the disk at {_mount_of(path)}"
    if fault in (Fault.DAMAGED, Fault.TEXT):
        return damage(path, reason, if_damaged)
    sentences = {
        Fault.FULL: f"be written: {disk} is full; make room there, then try again",
        Fault.TOO_LARGE: "grow: files have a largest size here; raise it (`ulimit -f`), then try again",
        Fault.BUSY: f"be used: it is being written by another process ({reason}); try again after that",
        Fault.READ_ONLY: f"be used: {disk} is read-only; mount it for writing, then try again",
        Fault.DISK: f"be used: {disk} fails ({reason}); look at it and at the system's log, then try again",
        Fault.REPLACED: "be used: it was moved or removed meanwhile; try again",
        Fault.ACCESS: f"be used: {obstacle or f'{reason}; see who owns it and who may write'}",
    }
    kinds = {Fault.FULL: FullError, Fault.TOO_LARGE: FullError, Fault.BUSY: BusyError}
    return kinds.get(fault, StateError)(f"{path} can't {sentences[fault]}")


def _obstacle(path: Path) -> str | None:
    """Return what is in the file's place, and the remedy; None where nothing is in its way."""
    with contextlib.suppress(OSError):
        if path.is_dir():
            return "it is a folder; put the folder elsewhere, then try again"
        if path.is_symlink() and not path.exists():
            return (
                f"it is a link to {path.readlink()}, which isn't there; bring that back, or remove the link"
            )
        blocked = next((above for above in path.parents if above.exists() and not above.is_dir()), None)
        if blocked:
            return f"{blocked} is no folder; put that file elsewhere, then try again"
    return None


def _mount_of(path: Path) -> Path:
    here = path.absolute()
    return next((above for above in (here, *here.parents) if os.path.ismount(above)), Path(here.anchor))
