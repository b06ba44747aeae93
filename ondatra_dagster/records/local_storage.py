"""The storage of record files: whole files by name, which other programs may read at any moment.

This module has the interface and its implementation for a local folder. open_storage() chooses the
implementation for an address.
"""

import contextlib
import io
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from ondatra_dagster.project.settings.storage_access import S3_SCHEMES, local_path, s3_access_of, scheme_of
from ondatra_dagster.storage.file_errors import raise_state_error
from ondatra_dagster.storage.private_files import open_private_file

LEFTOVER_SECONDS = 3600  # an older temporary file belonged to a killed process
TEMPORARY_NAME = re.compile(r"\..+\.[0-9a-f]{8}\.part")  # the name of a file until it is complete


class FileStorage(Protocol):
    """The interface of a storage: whole files below one address. File names have forward slashes."""

    def address(self, name: str) -> str:
        """Return the file's address, for users and other programs."""

    def open_writer(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open an empty file for reading and writing. The file gets its name only when it is complete."""

    def open_reader(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a file for reading at any position; raise OSError if the file can't be opened."""

    def remove_file(self, name: str) -> int:
        """Remove the file or the empty folder; return how many bytes were freed, 0 if it didn't exist.

        A folder that has only files which `list_names` leaves out counts as empty; these files are removed,
        too.
        """

    def remove_leftovers(self, folder: str, *, before: float) -> list[int]:
        """Remove the temporary files of killed processes in the folder and its subfolders.

        Only files that were last written before `before` are removed. Return the size in bytes of each
        removed file.
        """

    def list_names(self, folder: str) -> list[str]:
        """Return the sorted names of the folder's files and subfolders; an empty list if it doesn't exist."""


class LocalStorage:
    """The storage in one folder of this machine. File names have forward slashes."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def address(self, name: str) -> str:
        """Return the file's path, for users and other programs."""
        return str(self._root / name)

    @contextlib.contextmanager
    def open_writer(self, name: str) -> Iterator[BinaryIO]:
        """Open a file that gets its name only when it is complete and on disk.

        Until then it has a temporary name, which neither `*.parquet` nor `*.json` matches.
        """
        path = self._root / name
        self._make_folder(path.parent)
        _remove_leftovers_of(path)
        temporary_path = path.with_name(make_temporary_name(path.name))
        try:
            with open_private_file(temporary_path, "x+b") as file:
                yield cast("BinaryIO", file)
                file.flush()
                os.fsync(file.fileno())
            temporary_path.replace(path)
        except BaseException:
            temporary_path.unlink(missing_ok=True)
            raise
        _fsync_folder(path.parent)

    def open_reader(self, name: str) -> AbstractContextManager[BinaryIO]:
        return (self._root / name).open("rb")

    def remove_file(self, name: str) -> int:
        path = self._root / name
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir():
                freed_bytes = sum(map(_unlink, filter(_is_hidden, list(path.iterdir()))))
                path.rmdir()
                return freed_bytes
            return _unlink(path)
        return 0

    def remove_leftovers(self, folder: str, *, before: float) -> list[int]:
        removed_sizes = []
        for parent, _, names in os.walk(self._root / folder):  # skips folders that are removed meanwhile
            for temporary_path in (Path(parent, name) for name in names if TEMPORARY_NAME.fullmatch(name)):
                with contextlib.suppress(FileNotFoundError):
                    if temporary_path.stat().st_mtime < before:
                        removed_sizes.append(_unlink(temporary_path))
        return removed_sizes

    def list_names(self, folder: str) -> list[str]:
        try:
            # temporary files, and files that desktops leave in folders, are hidden
            return sorted(path.name for path in (self._root / folder).iterdir() if not _is_hidden(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise_state_error(error, self._root / folder)

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        # records hold people's data: a root that the user created keeps its permissions, new folders are private
        folder.mkdir(mode=0o700 if folder.is_relative_to(self._root) else 0o777, exist_ok=True)
        _fsync_folder(folder.parent)


class DiscardingStorage:
    """A storage that reads the files of another storage, and discards writes and removals."""

    def __init__(self, folder: FileStorage) -> None:
        self.address = folder.address
        self.open_reader = folder.open_reader
        self.list_names = folder.list_names

    @contextlib.contextmanager
    def open_writer(self, name: str) -> Iterator[BinaryIO]:
        yield io.BytesIO()

    def remove_file(self, name: str) -> int:
        """Remove nothing."""
        return 0

    def remove_leftovers(self, folder: str, *, before: float) -> list[int]:
        """Remove nothing."""
        return []


def open_storage(address: str) -> FileStorage:
    """Return the storage for the setting `tracking`: a folder, a bucket, or another address that fsspec opens."""
    path = local_path(address)
    if path is not None:
        return LocalStorage(path.absolute())
    from ondatra_dagster.records.remote_storage import FsspecStorage, S3Storage  # imported here: most stores are local

    if scheme_of(address) in S3_SCHEMES:
        return S3Storage(address, s3_access_of(address))
    return FsspecStorage(address)


def make_temporary_name(name: str) -> str:
    """Return a name for an incomplete file, which no reader looks for and no other writer uses."""
    return f".{name}.{secrets.token_hex(4)}.part"


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".")


def _unlink(path: Path) -> int:
    """Delete the file; return how many bytes were freed."""
    size = path.stat().st_size
    path.unlink()
    return size


def _fsync_folder(folder: Path) -> None:
    # the new name of a file is on disk only after its folder was synced
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_leftovers_of(path: Path) -> None:
    """Remove old temporary files of `path`, which killed processes left."""
    for temporary_path in path.parent.glob(f".{path.name}.*.part"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - temporary_path.stat().st_mtime > LEFTOVER_SECONDS:
                temporary_path.unlink()
