"""The files of a table's Delta log, in a folder of this machine or on S3.

log_reader parses their content.
"""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.settings.storage_access import S3_SCHEMES, local_path, s3_access_of, scheme_of
from ondatra_dagster.storage.s3_filesystem_and_listing import bucket_path, explain_unreachable, open_s3_filesystem

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

LOG_FOLDER = "_delta_log"


class LogStorage(Protocol):
    """A table's log, whose files are accessed by their names."""

    def list_files(self) -> list[str]:
        """Return the names of all files in the log; none if there is no log."""

    def read_file(self, name: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError."""

    def remove_file(self, name: str) -> int:
        """Remove a file if it exists. Return the number of bytes that this frees."""


def open_log(table: str | Path) -> LogStorage:
    """Return the log of the table at a path or an address. Raises WarehouseError if only Spark can read it."""
    path = local_path(table)
    if path is not None:
        return LocalLogStorage(path / LOG_FOLDER)
    if scheme_of(table) in S3_SCHEMES:
        return S3LogStorage(open_s3_filesystem(s3_access_of(table)), f"{bucket_path(str(table))}/{LOG_FOLDER}")
    raise WarehouseError(f"{table} can't be read without Spark: use a folder, or an s3a:// address")


class LocalLogStorage:
    """A log in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list_files(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return [entry.name for entry in self._folder.iterdir()]
        return []

    def read_file(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def remove_file(self, name: str) -> int:
        file = self._folder / name
        size = file.stat().st_size if file.exists() else 0
        file.unlink(missing_ok=True)
        return size

    def __str__(self) -> str:
        return str(self._folder)


class S3LogStorage:
    """A log on S3."""

    def __init__(self, files: "S3FileSystem", folder: str) -> None:
        self._files = files
        self._folder = folder

    def list_files(self) -> list[str]:
        from pyarrow.fs import FileSelector

        with explain_unreachable(self):
            files = self._files.get_file_info(FileSelector(self._folder, allow_not_found=True))
        return [file.base_name for file in files]

    def read_file(self, name: str) -> bytes:
        path = f"{self._folder}/{name}"
        with (
            explain_unreachable(self, FileNotFoundError),
            self._files.open_input_stream(path, compression=None) as stream,
        ):
            return bytes(stream.readall())

    def remove_file(self, name: str) -> int:
        path = f"{self._folder}/{name}"
        with explain_unreachable(self):
            (file,) = self._files.get_file_info([path])
            if file.is_file:
                self._files.delete_file(path)
        return file.size or 0

    def __str__(self) -> str:
        return f"s3a://{self._folder}"
