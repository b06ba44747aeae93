"""Locations of tracking files: a folder, a bucket, an fsspec address. Tests read them without the store."""

import dataclasses
import io
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, PyFileSystem
from pyarrow.fs import FSSpecHandler as Handler
from support.apis.moto_s3_server import BUCKET

from ondatra_dagster.project.settings.storage_access import S3Access, StorageAddress, read_s3_access
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.storage.s3_filesystem_and_listing import open_s3_filesystem

LOCATION_KINDS = ("folder", "S3", "fsspec")
_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class TrackingLocation:
    """A location that only one test uses."""

    address: str
    root: str  # the same location, as `filesystem` names it
    filesystem: FileSystem

    def open_store(self, **options: str) -> RecordStore:
        return RecordStore(self.address, **options)

    def list_files(self, folder: str = "") -> list[str]:
        """Return all files below a folder, by their names in it."""
        if isinstance(self.filesystem, LocalFileSystem):  # Arrow's listing fails when a file disappears meanwhile
            here = Path(self.root, folder)
            return sorted(str(path.relative_to(here)) for path in here.rglob("*") if path.is_file())
        root = f"{self.root}/{folder}".rstrip("/")
        try:
            files = self.filesystem.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
        except NotADirectoryError:  # Arrow asks fsspec twice, and the folder was created in between
            return self.list_files(folder)
        return sorted(file.path[len(root) + 1 :] for file in files if file.type == FileType.File)

    def read_file(self, name: str) -> bytes:
        """Return the content of a file, by its name or by the address that the store gave."""
        inside = name.removeprefix(self.address).lstrip("/")
        with self.filesystem.open_input_stream(f"{self.root}/{inside}", compression=None) as file:
            return bytes(file.read())

    def write_file(self, name: str, content: bytes) -> None:
        """Write a file without the store's knowledge."""
        with self.filesystem.open_output_stream(f"{self.root}/{name}", compression=None) as file:
            file.write(content)

    def delete_files(self) -> None:
        """Delete all files of the location."""
        self.filesystem.delete_dir_contents(self.root)

    def read_parquet(self, name: str) -> pa.Table:
        return pq.read_table(io.BytesIO(self.read_file(name)), partitioning=None)

    def read_json(self, name: str) -> Any:
        return json.loads(self.read_file(name))


def open_location(kind: str, folder: Path, variables: Mapping[str, str]) -> Iterator[TrackingLocation]:
    """Yield a new location of that kind; `variables` give access to S3."""
    if kind == "folder":
        yield TrackingLocation(str(folder), str(folder), LocalFileSystem())
    elif kind == "S3":
        access = read_s3_access(variables, {})
        root = f"{BUCKET}/test {next(_numbers)}"
        yield TrackingLocation(StorageAddress(f"s3://{root}", access), root, open_s3_filesystem(access))
    else:
        root = f"/test {next(_numbers)}"
        memory = fsspec.filesystem("memory")
        yield TrackingLocation(StorageAddress(f"memory:/{root}", S3Access()), root, PyFileSystem(Handler(memory)))
        memory.rm(root, recursive=True) if memory.exists(root) else None
