"""The storage of record files in a bucket, or at any other address that fsspec opens.

A file is written on this machine and uploaded when it is complete. So readers never see a partial file, and a
failure leaves nothing. On S3, a killed process may leave an unfinished upload, which no reader sees.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast

import fsspec
from pyarrow.fs import FileSelector, FileType, LocalFileSystem, copy_files

from ondatra_dagster.errors import SettingsError, StateError
from ondatra_dagster.project.settings.storage_access import S3Access
from ondatra_dagster.records.local_storage import TEMPORARY_NAME, make_temporary_name
from ondatra_dagster.storage.s3_filesystem_and_listing import bucket_path, open_s3_filesystem

# file systems on which a file appears under its name only when it is complete
ATOMIC_SCHEMES = frozenset({"gs", "gcs", "az", "abfs", "abfss", "adl", "oss"})


class _UploadingStorage:
    """The base class of both storages, which uploads a file when it is complete."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")
        self._root = ""

    def address(self, name: str) -> str:
        return f"{self._address}/{name}"

    @contextlib.contextmanager
    def open_writer(self, name: str) -> Iterator[BinaryIO]:
        with tempfile.NamedTemporaryFile(prefix="ondatra-") as file:
            yield cast("BinaryIO", file)
            file.flush()
            with _explain_unreachable(self._address):
                self._upload(file.name, self._path(name))

    def _upload(self, file: str, path: str) -> None:
        raise NotImplementedError

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")


class S3Storage(_UploadingStorage):
    """The storage below a prefix of an S3 bucket, with the same access as the warehouse's tables on S3."""

    def __init__(self, address: str, access: S3Access) -> None:
        super().__init__(address)
        self._root = bucket_path(self._address)
        self._file_system = open_s3_filesystem(access)

    def _upload(self, file: str, path: str) -> None:
        # one call, because an interruption between two calls would publish an incomplete file
        copy_files(file, path, source_filesystem=LocalFileSystem(), destination_filesystem=self._file_system)

    def open_reader(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        return cast("BinaryIO", self._file_system.open_input_file(self._path(name)))

    def remove_file(self, name: str) -> int:
        with _explain_unreachable(self._address):
            (file_info,) = self._file_system.get_file_info([self._path(name)])
            if file_info.type == FileType.File:
                self._file_system.delete_file(file_info.path)
            elif file_info.type == FileType.Directory:
                entries = self._file_system.get_file_info(FileSelector(file_info.path))
                if all(entry.base_name.startswith(".") for entry in entries):
                    self._file_system.delete_dir(file_info.path)  # with its marker object, as an empty folder has one
        return file_info.size or 0

    def remove_leftovers(self, folder: str, *, before: float) -> list[int]:
        """Remove nothing, because an unfinished upload isn't a file."""
        return []

    def list_names(self, folder: str) -> list[str]:
        with _explain_unreachable(self._address):
            files = self._file_system.get_file_info(FileSelector(self._path(folder), allow_not_found=True))
        return sorted(file.base_name for file in files if not file.base_name.startswith("."))


class FsspecStorage(_UploadingStorage):
    """The storage at an address of any file system that fsspec supports; the file system's package finds the keys."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        try:
            self._file_system, self._root = fsspec.core.url_to_fs(self._address)
        except (ImportError, ValueError) as error:
            raise SettingsError(
                f"tracking = {address!r} can't be opened: {error}; give a folder or s3://…, or install the"
                " package that fsspec needs for it"
            ) from error
        self._writes_atomically = address.partition("://")[0] in ATOMIC_SCHEMES

    def _upload(self, file: str, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._file_system.makedirs(folder, exist_ok=True)
        if self._writes_atomically:
            self._file_system.put_file(file, path)
            return
        temporary_path = f"{folder}/{make_temporary_name(name)}"
        try:
            self._file_system.put_file(file, temporary_path)
            self._file_system.mv(temporary_path, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                self._file_system.rm_file(temporary_path)
            raise

    def open_reader(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        return cast("BinaryIO", self._file_system.open(self._path(name), "rb"))

    def remove_file(self, name: str) -> int:
        path = self._path(name)
        with _explain_unreachable(self._address), contextlib.suppress(FileNotFoundError):
            file_info = self._file_system.info(path)
            if file_info["type"] == "directory":
                freed_bytes = sum(map(self._remove_one, filter(_is_hidden, self._list_folder(path))))
                self._file_system.rmdir(path)
                return freed_bytes
            return self._remove_one(file_info)
        return 0

    def remove_leftovers(self, folder: str, *, before: float) -> list[int]:
        if self._writes_atomically:
            return []
        removed_sizes = []
        with _explain_unreachable(self._address), contextlib.suppress(FileNotFoundError):
            self._file_system.invalidate_cache()
            for file in self._file_system.find(self._path(folder), detail=True).values():
                with contextlib.suppress(FileNotFoundError):
                    if TEMPORARY_NAME.fullmatch(_base_name(file)) and self._modified_at(file) < before:
                        removed_sizes.append(self._remove_one(file))
        return removed_sizes

    def _modified_at(self, file: Mapping[str, Any]) -> float:
        """Return the file's time of modification in seconds since 1970.

        Return infinity, as for a new file, if the file system doesn't have this time.
        """
        try:
            modified_at = self._file_system.modified(file["name"])
        except NotImplementedError:
            modified_at = file.get("mtime")
        if not isinstance(modified_at, datetime):
            return float("inf")
        return (modified_at if modified_at.tzinfo else modified_at.replace(tzinfo=UTC)).timestamp()

    def _remove_one(self, file: Mapping[str, Any]) -> int:
        self._file_system.rm_file(file["name"])
        return int(file["size"] or 0)

    def list_names(self, folder: str) -> list[str]:
        files: list[Mapping[str, Any]] = []
        with _explain_unreachable(self._address), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            files = self._list_folder(self._path(folder))
        return sorted(_base_name(file) for file in files if not _is_hidden(file))

    def _list_folder(self, path: str) -> list[Mapping[str, Any]]:
        self._file_system.invalidate_cache()  # other processes write there too
        return list(self._file_system.ls(path, detail=True))


def _base_name(file: Mapping[str, Any]) -> str:
    return str(file["name"]).rstrip("/").rpartition("/")[2]


def _is_hidden(file: Mapping[str, Any]) -> bool:
    return _base_name(file).startswith(".")


@contextlib.contextmanager
def _explain_unreachable(address: str) -> Iterator[None]:
    """Raise StateError for an OSError inside; its message says that the storage can't be reached."""
    try:
        yield
    except OSError as error:
        raise StateError(
            f"{address} can't be reached: {str(error).strip()}; check its address and keys. Settled"
            " rows stay in the queue, and the next run publishes them"
        ) from error
