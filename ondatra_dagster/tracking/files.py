"""Where tracking files lie: whole files, told apart by their names, which others may read at any moment.

Here is the folder of this machine, and which kind of place an address means; what is in a file belongs to the
modules beside.
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

from ondatra_dagster.project.settings.addresses import S3_SCHEMES, local_path, s3_access, scheme_of
from ondatra_dagster.store.file_errors import raise_explained
from ondatra_dagster.store.private_folder import open_private

LEFTOVER_SECONDS = 3600  # a part that nobody has finished by then belonged to a killed process
PART = re.compile(r"\..+\.[0-9a-f]{8}\.part")  # the name of a file until it is whole


class Folder(Protocol):
    """Whole files below one address; names have forward slashes."""

    def address(self, name: str) -> str:
        """What to tell people and other programs to open."""

    def writing(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file, empty and open to read and write, that is seen under its name when it is kept, or never."""

    def reading(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file that may be read from anywhere in it; raises OSError."""

    def remove(self, name: str) -> int:
        """Let the file, or the empty folder, be gone; how many bytes that frees: none when it was gone.

        What `names` doesn't tell of goes with its folder.
        """

    def sweep(self, folder: str, *, before: float) -> list[int]:
        """Take away the parts in the folder and below to which nobody has written since then.

        The bytes of each: what killed processes have left.
        """

    def names(self, folder: str) -> list[str]:
        """What the folder holds, files and folders, sorted; nothing when it isn't there."""


class LocalFolder:
    """Files below one folder of this machine; names have forward slashes."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def address(self, name: str) -> str:
        """What to tell people and other programs to open."""
        return str(self._root / name)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A file that is seen under its name when it is whole and on disk, or never.

        Until then it has a name that no `*.parquet` and no `*.json` matches.
        """
        path = self._root / name
        self._make(path.parent)
        _sweep(path)
        part = path.with_name(part_of(path.name))
        try:
            with open_private(part, "x+b") as file:
                yield cast("BinaryIO", file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _sync(path.parent)

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        with (self._root / name).open("rb") as file:
            yield file

    def remove(self, name: str) -> int:
        path = self._root / name
        try:
            if path.is_dir():
                freed = sum(map(_unlink, filter(_is_hidden, list(path.iterdir()))))
                path.rmdir()
                return freed
            return _unlink(path)
        except FileNotFoundError:
            return 0

    def sweep(self, folder: str, *, before: float) -> list[int]:
        swept = []
        for here, _, names in os.walk(self._root / folder):  # which lets pass what goes meanwhile
            for part in (Path(here, name) for name in names if PART.fullmatch(name)):
                with contextlib.suppress(FileNotFoundError):
                    if part.stat().st_mtime < before:
                        swept.append(_unlink(part))
        return swept

    def names(self, folder: str) -> list[str]:
        try:
            # parts, and what desktops leave in folders, are hidden
            return sorted(path.name for path in (self._root / folder).iterdir() if not _is_hidden(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise_explained(error, self._root / folder)

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make(folder.parent)
        # records hold people's data: a root that the user made keeps its permissions, ours are private
        folder.mkdir(mode=0o700 if folder.is_relative_to(self._root) else 0o777, exist_ok=True)
        _sync(folder.parent)


class Forgetful:
    """A folder's files to be read; what is written or removed stays as it was."""

    def __init__(self, folder: Folder) -> None:
        self.address = folder.address
        self.reading = folder.reading
        self.names = folder.names

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        yield io.BytesIO()

    def remove(self, name: str) -> int:
        """Nothing goes."""
        return 0

    def sweep(self, folder: str, *, before: float) -> list[int]:
        """Nothing goes."""
        return []


def open_folder(address: str) -> Folder:
    """The place that the setting `tracking` names: a folder, a bucket, or what else fsspec can open."""
    path = local_path(address)
    if path is not None:
        return LocalFolder(path.absolute())
    from ondatra_dagster.tracking.remote_files import FsspecFolder, S3Folder  # here: most are on this machine

    if scheme_of(address) in S3_SCHEMES:
        return S3Folder(address, s3_access(address))
    return FsspecFolder(address)


def part_of(name: str) -> str:
    """What a file is called until it is whole: nobody looks for that, and no other writer takes it."""
    return f".{name}.{secrets.token_hex(4)}.part"


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".")


def _unlink(path: Path) -> int:
    """How many bytes that frees."""
    size = path.stat().st_size
    path.unlink()
    return size


def _sync(folder: Path) -> None:
    # a new name is on disk only when the folder that lists it is
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(path: Path) -> None:
    """Remove what killed processes left of this file."""
    for part in path.parent.glob(f".{path.name}.*.part"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - part.stat().st_mtime > LEFTOVER_SECONDS:
                part.unlink()
