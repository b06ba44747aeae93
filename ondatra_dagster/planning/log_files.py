"""The files of a table's Delta log, wherever the table is: in a folder of this machine, or on S3.

What stands in them belongs to delta_log.
"""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.addresses import S3_SCHEMES, local_path, s3_access, scheme_of
from ondatra_dagster.project.s3_access import S3Access

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

FOLDER = "_delta_log"


class LogFiles(Protocol):
    """A log's files by their names."""

    def names(self) -> list[str]:
        """All that are there now; none when there is no log."""

    def read(self, name: str) -> bytes:
        """A whole file; raises FileNotFoundError."""


def open_log(table: str | Path) -> LogFiles:
    """The log of the table at a path or an address; raises WarehouseError where nobody can look."""
    path = local_path(table)
    if path is not None:
        return LocalLog(path / FOLDER)
    if scheme_of(table) in S3_SCHEMES:
        parts = urlsplit(str(table))
        return S3Log(s3_files(s3_access(table)), f"{parts.netloc}{parts.path.rstrip('/')}/{FOLDER}")
    raise WarehouseError(f"{table} can't be looked at without Spark: use a folder, or an s3a:// address")


class LocalLog:
    """A log in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        try:
            return [entry.name for entry in self._folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def __str__(self) -> str:
        return str(self._folder)


class S3Log:
    """A log on S3."""

    def __init__(self, files: "S3FileSystem", folder: str) -> None:
        self._files = files
        self._folder = folder

    def names(self) -> list[str]:
        from pyarrow.fs import FileSelector

        try:
            found = self._files.get_file_info(FileSelector(self._folder, allow_not_found=True))
        except OSError as error:
            raise self._unreachable(error) from error
        return [file.base_name for file in found]

    def read(self, name: str) -> bytes:
        try:
            with self._files.open_input_stream(f"{self._folder}/{name}", compression=None) as stream:
                return bytes(stream.readall())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: OSError) -> WarehouseError:
        return WarehouseError(
            f"{self} can't be read: {error}; look at the endpoint, the region and the keys (AWS_…)"
        )

    def __str__(self) -> str:
        return f"s3a://{self._folder}"


@functools.cache
def s3_files(access: S3Access) -> "S3FileSystem":
    """The store, opened once: what looks at it does so many times."""
    from pyarrow.fs import S3FileSystem  # here: a project on this machine's disk must plan quickly

    endpoint = urlsplit(access.endpoint or "")
    where = {"scheme": endpoint.scheme, "endpoint_override": endpoint.netloc} if access.endpoint else {}
    return S3FileSystem(
        access_key=access.key,
        secret_key=access.secret,
        session_token=access.token,
        region=access.region or ("us-east-1" if access.endpoint else None),
        connect_timeout=10,
        request_timeout=60,
        **where,
    )
