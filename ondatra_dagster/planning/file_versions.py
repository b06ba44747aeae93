"""The version of the files that a query reads: a digest of what tells one state of them from another.

On this machine that is every file's path, size and time; on S3 its path, size and ETag. Files anywhere else
can't be looked at without Spark.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ondatra_dagster.planning.s3_objects import objects_at
from ondatra_dagster.project.inputs.file_patterns import files_in, matches
from ondatra_dagster.project.settings.addresses import S3_SCHEMES, local_path, scheme_of
from ondatra_dagster.project.settings.settings import Settings


class _File(NamedTuple):
    name: str
    size: int
    mark: str  # its time, or its ETag


def files_version(settings: Settings, written: str) -> str | None:
    """The version of the files at a path, a pattern or an address; "": none is there, None: unknown."""
    path = local_path(written)
    if path is not None:
        return _digest(_files_here(settings.root, str(path)))
    if scheme_of(written) not in S3_SCHEMES:
        return None
    found = objects_at(written, settings.s3)
    return _digest(_File(each.path, each.size, each.etag) for each in found)


def bytes_here(settings: Settings, written: str) -> int | None:
    """How large the files are together; None when they are not on this machine."""
    path = local_path(written)
    return None if path is None else sum(file.size for file in _files_here(settings.root, str(path)))


def _files_here(root: Path, written: str) -> Iterator[_File]:
    for path in (file for match in matches(root, written) for file in files_in(match)):
        try:
            state = path.stat()
        except FileNotFoundError:
            continue  # it went while we looked
        inside = path.relative_to(root) if path.is_relative_to(root) else path
        yield _File(str(inside), state.st_size, str(state.st_mtime_ns))


def _digest(files: Iterable[_File]) -> str:
    listed = sorted(set(files))
    digest = hashlib.sha256()
    for file in listed:
        digest.update(f"{file.name}\0{file.size}\0{file.mark}\n".encode(errors="surrogateescape"))
    return digest.hexdigest() if listed else ""
