"""The jars that Spark needs besides pyspark's own: their pins, their folder and their download.

pinned_jars.txt has version, size and SHA-256 of each; `.ci/pin_jars.py` writes it. The first start of Spark fetches
them. `python -m ondatra_dagster.warehouse.spark.jar_download` does so beforehand.
"""

import base64
import contextlib
import dataclasses
import functools
import hashlib
import http.client
import os
import re
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit, urlunsplit

from ondatra_dagster.count_time_and_size_format import format_size
from ondatra_dagster.errors import SparkSetupError, StateError
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.warehouse.spark.jvm_process import pyspark_jars

PINS_FILE = Path(__file__).with_name("pinned_jars.txt")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PinnedJar:
    """A jar's Maven coordinate, and its pinned size and content."""

    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """Return the file's name, which is the one in Maven repositories."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Return the file's path in a Maven repository."""
        return "/".join((self.group.replace(".", "/"), self.artifact, self.version, self.name))

    def is_in(self, folder: Path) -> bool:
        """Return whether the folder has a file of the pinned size. To read it would delay the start of Spark."""
        with contextlib.suppress(OSError):
            return (folder / self.name).stat().st_size == self.size
        return False

    def is_intact_in(self, folder: Path) -> bool:
        """Return whether the folder has the file with the pinned content."""
        with contextlib.suppress(OSError), (folder / self.name).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == self.sha256
        return False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """A set of jars that are fetched together."""

    title: str
    jars: tuple[PinnedJar, ...]

    @property
    def size(self) -> int:
        return sum(jar.size for jar in self.jars)


def _read_jar_set(set_name: str, title: str) -> JarSet:
    lines = [line.split() for line in PINS_FILE.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    jars = []
    for name, coordinate, size, sha256 in lines:
        if name == set_name:
            group, artifact, version = coordinate.split(":")
            jars.append(PinnedJar(group=group, artifact=artifact, version=version, size=int(size), sha256=sha256))
    return JarSet(title=title, jars=tuple(jars))


DELTA_JARS = _read_jar_set("delta", "Delta's jars")
S3A_JARS = _read_jar_set("s3a", "the jars for S3")


S3A_FOLDER = "s3a"  # in the folder of Delta's jars
FETCH_COMMAND = "python -m ondatra_dagster.warehouse.spark.jar_download"
LOCK_SECONDS = 900  # another process may have a slow connection


class FetchListener:
    """A listener to the progress of a fetch. This one does nothing."""

    def on_start(self, message: str) -> None:
        """Handle the start. Called once before the first byte, and when another process fetches."""

    def on_progress(self, received_bytes: int, total: int) -> None:
        """Handle progress. Called with the number of bytes received so far, and the total."""


NULL_LISTENER = FetchListener()


def fetch_needed_jars(settings: Settings, listener: FetchListener = NULL_LISTENER) -> tuple[Path, ...]:
    """Return the jars that Spark needs besides pyspark's, and fetch the missing ones."""
    jars = fetch_jar_set(settings.jars, DELTA_JARS, settings.maven_mirror, listener)
    if settings.uses_s3:
        jars += fetch_jar_set(settings.jars / S3A_FOLDER, S3A_JARS, settings.maven_mirror, listener)
    return jars


def missing_jars(folder: Path, jar_set: JarSet = DELTA_JARS) -> list[PinnedJar]:
    """Return the jars of the set that the folder doesn't have, or not with the pinned size."""
    return [jar for jar in jar_set.jars if not jar.is_in(folder)]


def damaged_jars(folder: Path, jar_set: JarSet = DELTA_JARS) -> list[PinnedJar]:
    """Return the jars of the set whose content in the folder isn't the pinned one. Reads each file."""
    return [jar for jar in jar_set.jars if not jar.is_intact_in(folder)]


def jar_addresses(mirror: str | None, jar_set: JarSet = DELTA_JARS) -> list[str]:
    """Return the addresses from which the jars of the set are fetched."""
    return [f"{without_password(mirror or default_repository()).rstrip('/')}/{jar.path}" for jar in jar_set.jars]


def fetch_jar_set(
    folder: Path, jar_set: JarSet, mirror: str | None, listener: FetchListener = NULL_LISTENER
) -> tuple[Path, ...]:
    """Return the jars of a set. Fetch those that the folder lacks from the mirror or the default repository.

    If several processes call this at once, one fetches and the others wait. Raises SparkSetupError.
    """
    if missing_jars(folder, jar_set):
        try:
            lock = folder / "jars.lock"
            with FileLock(lock, purpose="fetches jars", wait_seconds=LOCK_SECONDS, on_wait=listener.on_start):
                _fetch_missing(folder, jar_set, mirror or default_repository(), listener)
        except (OSError, StateError, SparkSetupError) as error:
            raise SparkSetupError(_fetch_failure_message(folder, jar_set, error)) from error
    return tuple(sorted(folder / jar.name for jar in jar_set.jars))


def _fetch_missing(folder: Path, jar_set: JarSet, repository: str, listener: FetchListener) -> None:
    """Fetch what is missing now: while this process waited for the lock, another one may have fetched all."""
    jars = missing_jars(folder, jar_set)
    if not jars:
        return
    for partial_file in folder.glob(f"*{PARTIAL_SUFFIX}"):  # left by a killed process
        partial_file.unlink(missing_ok=True)
    total, done = sum(jar.size for jar in jars), 0
    listener.on_start(f"fetching {jar_set.title} into {folder}: {format_size(total)}, once on this machine")

    def on_bytes(size: int) -> None:
        nonlocal done
        done += size
        listener.on_progress(done, total)

    for jar in jars:
        download_jar(jar, folder, repository, on_bytes)


def _fetch_failure_message(folder: Path, jar_set: JarSet, error: Exception) -> str:
    """Return a message with both remedies: a repository that answers, or a download by hand."""
    title = jar_set.title[0].upper() + jar_set.title[1:]
    option = " --list s3" if jar_set is S3A_JARS else " --list"
    return (
        f"{title} are not in {folder} and could not be fetched: {error}. Set maven_mirror in [tool.ondatra]"
        f" to a Maven repository that answers; or, on another machine, download the {len(jar_set.jars)} files"
        f" that `{FETCH_COMMAND}{option}` lists, and put them into {folder}"
    )


RESOLVER_CLASS = "org/apache/ivy/plugins/resolver/IBiblioResolver.class"  # in pyspark's jar of Ivy
RESOLVER_ADDRESS = re.compile(rb"https://[\w.-]+/maven2")
PARTIAL_SUFFIX = ".part"  # the end of a file's name until it is complete
TIMEOUT_SECONDS = 30
BLOCK_BYTES = 1 << 18
OnBytesReceived = Callable[[int], None]  # gets the number of bytes received since the last call


@functools.cache
def default_repository() -> str:
    """Return the address of the Maven repository that Spark's own resolver uses by default."""
    for jar in pyspark_jars():
        if jar.name.startswith("ivy-"):
            with zipfile.ZipFile(jar) as classes:
                if match := RESOLVER_ADDRESS.search(classes.read(RESOLVER_CLASS)):
                    return match[0].decode()
    raise SparkSetupError("pyspark's jars name no Maven repository; name one by the setting maven_mirror")


def download_jar(jar: PinnedJar, folder: Path, repository: str, on_bytes: OnBytesReceived) -> None:
    """Download the jar to the folder. Raises SparkSetupError with the reason if that fails."""
    partial_file, source = folder / (jar.name + PARTIAL_SUFFIX), without_password(repository)
    try:
        with _open_address(f"{repository.rstrip('/')}/{jar.path}") as response, partial_file.open("wb") as file:
            digest, size = _copy_response(response, file, on_bytes)
            os.fsync(file.fileno())
        if size < jar.size:
            raise SparkSetupError(f"{jar.name} from {source} ended after {size} of {jar.size} bytes")
        if digest != jar.sha256:
            raise SparkSetupError(
                f"{source} gave a {jar.name} that isn't the one pinned in this release:"
                f" its SHA-256 is {digest[:12]}…, not {jar.sha256[:12]}…"
            )
        partial_file.replace(folder / jar.name)
    except urllib.error.HTTPError as error:
        error.close()
        raise SparkSetupError(f"{jar.name} from {source}: HTTP {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        raise SparkSetupError(f"{jar.name} from {source}: {_error_reason(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            partial_file.unlink(missing_ok=True)


def without_password(repository: str) -> str:
    """Return the repository's address without a password."""
    url = urlsplit(repository)
    return urlunsplit(url._replace(netloc=url.netloc.rpartition("@")[2]))


def _open_address(address: str) -> IO[bytes]:
    """Open the address; a name and password in it are sent as Basic authentication."""
    request = urllib.request.Request(without_password(address), headers={"User-Agent": "ondatra"})  # noqa: S310 - of a setting
    user, has_user, _ = urlsplit(address).netloc.rpartition("@")
    if has_user:
        encoded = base64.b64encode(unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {encoded}")
    opener = urllib.request.build_opener(ProtectedRedirects)
    response: IO[bytes] = opener.open(request, timeout=TIMEOUT_SECONDS)
    return response


class ProtectedRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that refuses redirects from https to another scheme."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise urllib.error.URLError(
                f"it redirects from https to {without_password(newurl)}, and http isn't trusted"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _copy_response(answer: IO[bytes], file: IO[bytes], on_bytes: OnBytesReceived) -> tuple[str, int]:
    """Copy the answer to the file; return its SHA-256 and its size."""
    digest, size = hashlib.sha256(), 0
    while block := answer.read(BLOCK_BYTES):
        digest.update(block)
        file.write(block)
        size += len(block)
        on_bytes(len(block))
    return digest.hexdigest(), size


def _error_reason(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


if __name__ == "__main__":
    from ondatra_dagster.warehouse.spark.jars_and_class_archive_setup import main  # here: it uses this module

    sys.exit(main(sys.argv[1:]))
