"""Tracking files in a bucket, or at any other address that fsspec opens.

A file is made on this machine and sent when it is whole: readers see nothing of one that is being written,
and nothing is left of one that failed. On S3 a killed process may leave an upload without its end, which no
reader sees.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast

import fsspec
from pyarrow.fs import FileSelector, FileType, LocalFileSystem, copy_files

from ondatra_dagster.errors import SettingsError, StateError
from ondatra_dagster.planning.s3_objects import s3_files, s3_path
from ondatra_dagster.project.settings.s3_access import S3Access
from ondatra_dagster.tracking.files import PART, part_of

# file systems on which a file appears under its name with its last byte, and not before
SENT_WHOLE = frozenset({"gs", "gcs", "az", "abfs", "abfss", "adl", "oss"})


class S3Folder:
    """Files below a prefix of a bucket, reached as the warehouse's tables on S3 are."""

    def __init__(self, address: str, access: S3Access) -> None:
        self._address = address.rstrip("/")
        self._root = s3_path(self._address)
        self._files = s3_files(access)

    def address(self, name: str) -> str:
        return f"{self._address}/{name}"

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        with _made_here() as file:
            yield file
            file.flush()
            with _reached(self._address):
                # one call: an interruption between two would make an object of what is there by then
                copy_files(
                    file.name,
                    self._path(name),
                    source_filesystem=LocalFileSystem(),
                    destination_filesystem=self._files,
                )

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        with self._files.open_input_file(self._path(name)) as file:
            yield cast("BinaryIO", file)

    def remove(self, name: str) -> int:
        with _reached(self._address):
            (found,) = self._files.get_file_info([self._path(name)])
            if found.type == FileType.File:
                self._files.delete_file(found.path)
            elif found.type == FileType.Directory:
                self._remove_folder(found.path)
        return found.size or 0

    def _remove_folder(self, path: str) -> None:
        inside = self._files.get_file_info(FileSelector(path))
        if all(each.base_name.startswith(".") for each in inside):
            self._files.delete_dir(path)  # with what stands for it, as it does for an empty one

    def sweep(self, folder: str, *, before: float) -> list[int]:
        """There are none: an upload without its end isn't a file."""
        return []

    def names(self, folder: str) -> list[str]:
        with _reached(self._address):
            found = self._files.get_file_info(FileSelector(self._path(folder), allow_not_found=True))
        return sorted(file.base_name for file in found if not file.base_name.startswith("."))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")


class FsspecFolder:
    """Files below an address of any file system that fsspec knows; its package finds the keys."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")
        try:
            self._files, self._root = fsspec.core.url_to_fs(self._address)
        except (ImportError, ValueError) as error:
            raise SettingsError(
                f"tracking = {address!r} can't be opened: {error}; give a folder or s3://…, or install the"
                " package that fsspec wants for it"
            ) from error
        self._is_sent_whole = address.partition("://")[0] in SENT_WHOLE

    def address(self, name: str) -> str:
        return f"{self._address}/{name}"

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        with _made_here() as file:
            yield file
            file.flush()
            with _reached(self._address):
                self._send(file.name, self._path(name))

    def _send(self, file: str, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._files.makedirs(folder, exist_ok=True)
        if self._is_sent_whole:
            self._files.put_file(file, path)
            return
        part = f"{folder}/{part_of(name)}"
        try:
            self._files.put_file(file, part)
            self._files.mv(part, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(part)
            raise

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        with self._files.open(self._path(name), "rb") as file:
            yield file

    def remove(self, name: str) -> int:
        path = self._path(name)
        with _reached(self._address), contextlib.suppress(FileNotFoundError):
            found = self._files.info(path)
            if found["type"] == "directory":
                freed = sum(map(self._rm, filter(_is_hidden, self._listed(path))))
                self._files.rmdir(path)
                return freed
            return self._rm(found)
        return 0

    def sweep(self, folder: str, *, before: float) -> list[int]:
        if self._is_sent_whole:
            return []
        swept = []
        with _reached(self._address), contextlib.suppress(FileNotFoundError):
            self._files.invalidate_cache()
            for part in self._files.find(self._path(folder), detail=True).values():
                with contextlib.suppress(FileNotFoundError):
                    if PART.fullmatch(_name(part)) and self._written_at(part) < before:
                        swept.append(self._rm(part))
        return swept

    def _written_at(self, file: Mapping[str, Any]) -> float:
        """In seconds since 1970; where the place doesn't tell, the file is as new as can be."""
        try:
            moment = self._files.modified(file["name"])
        except NotImplementedError:
            moment = file.get("mtime")
        if not isinstance(moment, datetime):
            return float("inf")
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def _rm(self, file: Mapping[str, Any]) -> int:
        self._files.rm_file(file["name"])
        return int(file["size"] or 0)

    def names(self, folder: str) -> list[str]:
        found: list[Mapping[str, Any]] = []
        with _reached(self._address), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = self._listed(self._path(folder))
        return sorted(_name(file) for file in found if not _is_hidden(file))

    def _listed(self, path: str) -> list[Mapping[str, Any]]:
        self._files.invalidate_cache()  # others write there too
        return list(self._files.ls(path, detail=True))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")


def _name(file: Mapping[str, Any]) -> str:
    return str(file["name"]).rstrip("/").rpartition("/")[2]


def _is_hidden(file: Mapping[str, Any]) -> bool:
    return _name(file).startswith(".")


def _made_here() -> BinaryIO:
    return cast("BinaryIO", tempfile.NamedTemporaryFile(prefix="ondatra-"))


@contextlib.contextmanager
def _reached(address: str) -> Iterator[None]:
    """Say of what fails inside that it is the place, and that nothing is lost."""
    try:
        yield
    except OSError as error:
        raise StateError(
            f"{address} can't be reached: {str(error).strip()}; look at its address and keys. What has"
            " settled is kept in the queue, and published by the next run"
        ) from error
