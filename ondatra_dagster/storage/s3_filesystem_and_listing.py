"""The objects on S3 below a path or matching a pattern, with the ETag of each, listed without Spark."""

import concurrent.futures
import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.inputs.file_patterns import (
    PATTERN_CHARACTERS,
    compile_pattern,
    expand_braces,
    is_ignored_by_spark,
)
from ondatra_dagster.project.settings.storage_access import S3Access

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, S3FileSystem

MAX_CONCURRENT_REQUESTS = 16  # requests for one listing
DEFAULT_REGION = "us-east-1"  # for a store that isn't AWS, if no region is set


class FileState(NamedTuple):
    """The state of a file or an object. If it is replaced, its size or its change tag is different."""

    path: str  # an object's path begins with its bucket
    size: int
    change_tag: str  # its ETag, or its modification time


@functools.cache
def open_s3_filesystem(access: S3Access) -> "S3FileSystem":
    """Return the S3 filesystem. Each is opened once, because its callers use it many times."""
    from pyarrow.fs import S3FileSystem  # imported here: a project on a local disk must plan quickly

    endpoint = urlsplit(access.endpoint or "")
    endpoint_options = {"scheme": endpoint.scheme, "endpoint_override": endpoint.netloc} if access.endpoint else {}
    return S3FileSystem(
        access_key=access.key,
        secret_key=access.secret,
        session_token=access.token,
        region=access.region or (DEFAULT_REGION if access.endpoint else None),
        connect_timeout=10,
        request_timeout=60,
        **endpoint_options,
    )


def bucket_path(address: str) -> str:
    """Return an address as bucket/folder, the form that S3 tools use."""
    _, _, bucket_and_folder = address.partition("://")
    return bucket_and_folder.rstrip("/")


@contextlib.contextmanager
def explain_unreachable(subject: object, *allowed_errors: type[OSError]) -> Iterator[None]:
    """Raise WarehouseError in place of an error of the store.

    Errors of the `allowed_errors` types are raised unchanged.
    """
    try:
        yield
    except allowed_errors:
        raise
    except OSError as error:
        remedy = "check the endpoint, the region and the keys (AWS_…)"
        raise WarehouseError(f"{subject} can't be read: {error}; {remedy}") from error


def list_objects(address: str, access: S3Access) -> list[FileState]:
    """Return the objects at or below an address or a pattern; raise WarehouseError if they can't be read."""
    files = open_s3_filesystem(access)
    with explain_unreachable(address):
        files_by_path = {
            file.path: file for pattern in expand_braces(bucket_path(address)) for file in _list_files(files, pattern)
        }
        with concurrent.futures.ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS) as pool:
            return sorted(pool.map(functools.partial(_read_object_state, files), files_by_path.values()))


def remove_folder_contents(address: str, access: S3Access) -> None:
    """Delete everything below a folder's address; raise WarehouseError if the store refuses that."""
    files = open_s3_filesystem(access)
    with explain_unreachable(address):
        files.delete_dir_contents(bucket_path(address), missing_dir_ok=True)


def _list_files(files: "S3FileSystem", path: str) -> "list[FileInfo]":
    """Return all files whose path matches a pattern, or which are below a folder that matches it."""
    from pyarrow.fs import FileSelector

    wildcard = PATTERN_CHARACTERS.search(path)
    if wildcard is None:
        (file_info,) = files.get_file_info([path])
        if file_info.is_file:
            return [file_info]
    base_folder = path if wildcard is None else path[: wildcard.start()].rpartition("/")[0]
    files_below = files.get_file_info(FileSelector(base_folder, allow_not_found=True, recursive=True))
    if wildcard is None:
        return [file for file in files_below if file.is_file and _is_read_by_spark(file.path[len(path) + 1 :])]
    pattern = compile_pattern(path)
    depth = path.count("/")
    files_and_parts = [(file, file.path.split("/")) for file in files_below if file.is_file]
    return [
        file
        for file, parts in files_and_parts
        if pattern.fullmatch("/".join(parts[: depth + 1])) and _is_read_by_spark("/".join(parts[depth:]))
    ]


def _is_read_by_spark(inside: str) -> bool:
    return not any(map(is_ignored_by_spark, inside.split("/")))


def _read_object_state(files: "S3FileSystem", file: "FileInfo") -> FileState:
    with files.open_input_file(file.path) as stream:
        etag = stream.metadata().get("ETag", str(file.mtime_ns).encode())
    return FileState(file.path, file.size, etag.decode())
