"""What lies on S3, asked without Spark: files by path or pattern, with what tells their states apart."""

import concurrent.futures
import functools
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.inputs.file_patterns import SPECIAL, alternatives, is_unread, pattern
from ondatra_dagster.project.settings.s3_access import S3Access

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, S3FileSystem

AT_ONCE = 16  # requests for one listing
DEFAULT_REGION = "us-east-1"  # what a store that isn't AWS takes for its own


class S3Object(NamedTuple):
    path: str  # with its bucket
    size: int
    etag: str


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
        region=access.region or (DEFAULT_REGION if access.endpoint else None),
        connect_timeout=10,
        request_timeout=60,
        **where,
    )


def s3_path(address: str) -> str:
    """bucket/folder, as the store's own tools have it."""
    _, _, rest = address.partition("://")
    return rest.rstrip("/")


def unreachable(what: object, error: OSError) -> WarehouseError:
    return WarehouseError(
        f"{what} can't be read: {error}; look at the endpoint, the region and the keys (AWS_…)"
    )


def objects_at(address: str, access: S3Access) -> list[S3Object]:
    """The objects that an address or a pattern means, with those below it; raises WarehouseError."""
    files = s3_files(access)
    try:
        found = {file.path: file for one in alternatives(s3_path(address)) for file in _found(files, one)}
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return sorted(pool.map(functools.partial(_looked_at, files), found.values()))
    except OSError as error:
        raise unreachable(address, error) from error


def remove_below(address: str, access: S3Access) -> None:
    """Whatever is below a folder's address goes; raises WarehouseError."""
    files = s3_files(access)
    try:
        files.delete_dir_contents(s3_path(address), missing_dir_ok=True)
    except OSError as error:
        raise unreachable(address, error) from error


def _found(files: "S3FileSystem", path: str) -> "list[FileInfo]":
    """All files whose path fits a pattern, or lies below one that does."""
    from pyarrow.fs import FileSelector

    special = SPECIAL.search(path)
    if special is None:
        (here,) = files.get_file_info([path])
        if here.is_file:
            return [here]
    base = path if special is None else path[: special.start()].rpartition("/")[0]
    below = files.get_file_info(FileSelector(base, allow_not_found=True, recursive=True))
    if special is None:
        return [file for file in below if file.is_file and _is_read(file.path[len(path) + 1 :])]
    fits = pattern(path)
    depth = path.count("/")
    return [file for file in below if file.is_file and _fits(file.path, fits, depth)]


def _fits(path: str, fits: "re.Pattern[str]", depth: int) -> bool:
    parts = path.split("/")
    matched = "/".join(parts[: depth + 1])
    return bool(fits.fullmatch(matched)) and _is_read("/".join(parts[depth:]))


def _is_read(inside: str) -> bool:
    return not any(map(is_unread, inside.split("/")))


def _looked_at(files: "S3FileSystem", file: "FileInfo") -> S3Object:
    with files.open_input_file(file.path) as opened:
        etag = opened.metadata().get("ETag", str(file.mtime_ns).encode())
    return S3Object(file.path, file.size, etag.decode())
