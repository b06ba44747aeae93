"""The folder of the jars that Spark needs: Delta's, and Hadoop's for tables on S3.

The first start of Spark fetches them. `python -m ondatra_dagster.warehouse.jars` does so beforehand.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from ondatra_dagster.errors import SetUpError, StateError
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.store.lock import FileLock
from ondatra_dagster.warehouse.jar_download import (
    default_repository,
    download,
    remove_partial_downloads,
    shown,
)
from ondatra_dagster.warehouse.pinned_jars import DELTA, S3A, JarSet, PinnedJar
from ondatra_dagster.wording import size_of

S3A_FOLDER = "s3a"  # within that of Delta's
COMMAND = "python -m ondatra_dagster.warehouse.jars"
LOCK_SECONDS = 900  # another process may have a slow line


class FetchListener:
    """Told what a fetch does. Nobody has to listen."""

    def begins(self, message: str) -> None:
        """Called once before the first byte, and when another process fetches."""

    def advances(self, done: int, total: int) -> None:
        """Called with the number of bytes that have come, and that will."""


SILENT = FetchListener()


def fetch_jars(
    folder: Path, *, mirror: str | None = None, listener: FetchListener = SILENT
) -> tuple[Path, ...]:
    """Return Delta's jars in the folder, and fetch those that it doesn't have. Raises SetUpError."""
    return fetch_set(folder, DELTA, mirror or default_repository(), listener)


def fetch_s3a_jars(
    folder: Path, *, mirror: str | None = None, listener: FetchListener = SILENT
) -> tuple[Path, ...]:
    """Return the jars for S3, which are in a folder within that of Delta's, likewise."""
    return fetch_set(folder / S3A_FOLDER, S3A, mirror or default_repository(), listener)


def fetch_needed_jars(settings: Settings, listener: FetchListener = SILENT) -> tuple[Path, ...]:
    """Return the jars that Spark needs besides pyspark's, and fetch those that aren't there."""
    mirror = settings.maven_mirror
    jars = fetch_jars(settings.jars, mirror=mirror, listener=listener)
    if not settings.uses_s3:
        return jars
    return (*jars, *fetch_s3a_jars(settings.jars, mirror=mirror, listener=listener))


def missing_jars(folder: Path, wanted: JarSet = DELTA) -> list[PinnedJar]:
    """Return the jars of the set that the folder doesn't have whole."""
    return [jar for jar in wanted.jars if not jar.is_in(folder)]


def damaged_jars(folder: Path, wanted: JarSet = DELTA) -> list[PinnedJar]:
    """Return the jars of the set whose content in the folder isn't the pinned one. Reads each file."""
    return [jar for jar in wanted.jars if not jar.is_intact_in(folder)]


def jar_addresses(mirror: str | None, wanted: JarSet = DELTA) -> list[str]:
    """Return where the jars of the set are fetched from."""
    return [f"{shown(mirror or default_repository()).rstrip('/')}/{jar.path}" for jar in wanted.jars]


def fingerprint(jars: Iterable[Path]) -> str:
    """Return what tells one set of jars from another: their places and sizes."""
    listed = "\n".join(f"{jar} {jar.stat().st_size}" for jar in jars)
    return hashlib.sha256(listed.encode()).hexdigest()[:12]


def fetch_set(folder: Path, wanted: JarSet, repository: str, listener: FetchListener) -> tuple[Path, ...]:
    """Return the jars of a set, and fetch from the repository those that the folder doesn't have.

    Of several processes that call this at once, one fetches and the others wait. Raises SetUpError.
    """
    if missing_jars(folder, wanted):
        try:
            with _lock_of(folder, listener.begins):
                _fetch_missing(folder, wanted, repository, listener)
        except (OSError, StateError, SetUpError) as error:
            raise SetUpError(_refusal(folder, wanted, error)) from error
    return tuple(sorted(folder / jar.name for jar in wanted.jars))


def _lock_of(folder: Path, on_wait: Callable[[str], None]) -> FileLock:
    return FileLock(folder / "jars.lock", purpose="fetches jars", wait_seconds=LOCK_SECONDS, on_wait=on_wait)


def _fetch_missing(folder: Path, wanted: JarSet, repository: str, listener: FetchListener) -> None:
    """Fetch what is missing now: while this process waited for the lock, another one may have fetched all."""
    missing = missing_jars(folder, wanted)
    if not missing:
        return
    remove_partial_downloads(folder)
    total, done = sum(jar.size for jar in missing), 0
    listener.begins(f"fetching {wanted.title} into {folder}: {size_of(total)}, once on this machine")

    def received(size: int) -> None:
        nonlocal done
        done += size
        listener.advances(done, total)

    for jar in missing:
        download(jar, folder, repository, received)


def _refusal(folder: Path, wanted: JarSet, error: Exception) -> str:
    """Say what is missing and both ways out: a repository that answers, or the files by hand."""
    title = wanted.title[0].upper() + wanted.title[1:]
    option = " --list s3" if wanted is S3A else " --list"
    return (
        f"{title} are not in {folder} and could not be fetched: {error}. Set maven_mirror in [tool.ondatra]"
        f" to a Maven repository that answers; or, on another machine, download the {len(wanted.jars)} files"
        f" that `{COMMAND}{option}` lists, and put them into {folder}"
    )


if __name__ == "__main__":
    from ondatra_dagster.warehouse.set_up import main  # here: set-up uses this module

    sys.exit(main(sys.argv[1:]))
