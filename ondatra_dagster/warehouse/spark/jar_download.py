"""The jars that Spark needs in addition to those in pyspark: their pins, their folder and their download.

The file pinned_jars.txt has the version, size and SHA-256 of each jar; `.ci/pin_jars.py` writes it. The first start of
Spark fetches the jars. `python -m ondatra_dagster.warehouse.spark.jar_download` fetches them beforehand.
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
    """A jar's Maven coordinate, and its pinned size and SHA-256."""

    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """Return the name of the jar's file, as in Maven repositories."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Return the path of the jar's file in a Maven repository."""
        return "/".join((self.group.replace(".", "/"), self.artifact, self.version, self.name))

    def is_in(self, folder: Path) -> bool:
        """Return whether the folder has the jar's file with the pinned size.

        The content isn't checked, because reading it would delay the start of Spark.
        """
        with contextlib.suppress(OSError):
            return (folder / self.name).stat().st_size == self.size
        return False

    def is_intact_in(self, folder: Path) -> bool:
        """Return whether the folder has the jar's file with the pinned content."""
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


S3A_FOLDER = "s3a"  # a subfolder of the folder with Delta's jars
FETCH_COMMAND = "python -m ondatra_dagster.warehouse.spark.jar_download"
LOCK_SECONDS = 900  # so long because another process may be fetching over a slow connection


class FetchListener:
    """A listener to the progress of a fetch. This base class does nothing."""

    def on_start(self, message: str) -> None:
        """Handle the start of a fetch.

        It is called once before the first byte, and also if another process fetches and this one waits.
        """

    def on_progress(self, received_bytes: int, total: int) -> None:
        """Handle progress: the number of bytes received so far, and the total number of bytes."""


NULL_LISTENER = FetchListener()


def fetch_needed_jars(settings: Settings, listener: FetchListener = NULL_LISTENER) -> tuple[Path, ...]:
    """Return the jars that Spark needs in addition to pyspark's. Fetch the missing ones."""
    jars = fetch_jar_set(settings.jars, DELTA_JARS, settings.maven_mirror, listener)
    if settings.uses_s3:
        jars += fetch_jar_set(settings.jars / S3A_FOLDER, S3A_JARS, settings.maven_mirror, listener)
    return jars


def missing_jars(folder: Path, jar_set: JarSet = DELTA_JARS) -> list[PinnedJar]:
    """Return the jars of the set that are missing in the folder, or whose files don't have the pinned size."""
    return [jar for jar in jar_set.jars if not jar.is_in(folder)]


def damaged_jars(folder: Path, jar_set: JarSet = DELTA_JARS) -> list[PinnedJar]:
    """Return the jars of the set whose content in the folder isn't the pinned content. Each file is read completely."""
    return [jar for jar in jar_set.jars if not jar.is_intact_in(folder)]


def jar_addresses(mirror: str | None, jar_set: JarSet = DELTA_JARS) -> list[str]:
    """Return the addresses from which the jars of the set can be fetched."""
    return [f"{without_password(mirror or default_repository()).rstrip('/')}/{jar.path}" for jar in jar_set.jars]


def fetch_jar_set(
    folder: Path, jar_set: JarSet, mirror: str | None, listener: FetchListener = NULL_LISTENER
) -> tuple[Path, ...]:
    """Return the files of a set's jars. Fetch those that the folder lacks, from the mirror or the default repository.

    If several processes call this at once, one of them fetches and the others wait. Raises SparkSetupError.
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
    """Fetch the jars that are still missing.

    Another process may have fetched all while this one waited for the lock.
    """
    jars = missing_jars(folder, jar_set)
    if not jars:
        return
    for partial_file in folder.glob(f"*{PARTIAL_SUFFIX}"):  # files that a killed process left
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
    """Return a message with two remedies: another repository, or a download by the user."""
    title = jar_set.title[0].upper() + jar_set.title[1:]
    option = " --list s3" if jar_set is S3A_JARS else " --list"
    return (
        f"{title} are not in {folder} and could not be fetched: {error}. Set maven_mirror in [tool.ondatra]"
        f" to a Maven repository that answers; or, on another machine, download the {len(jar_set.jars)} files"
        f" that `{FETCH_COMMAND}{option}` lists, and put them into {folder}"
    )


# a class in the jar of Ivy, which pyspark contains
RESOLVER_CLASS = "org/apache/ivy/plugins/resolver/IBiblioResolver.class"
RESOLVER_ADDRESS = re.compile(rb"https://[\w.-]+/maven2")
PARTIAL_SUFFIX = ".part"  # the suffix of a file until its download is complete
TIMEOUT_SECONDS = 30
BLOCK_BYTES = 1 << 18
OnBytesReceived = Callable[[int], None]  # gets the number of bytes received since the last call


@functools.cache
def default_repository() -> str:
    """Return the address of the Maven repository that Spark's own resolver of jars uses by default."""
    for jar in pyspark_jars():
        if jar.name.startswith("ivy-"):
            with zipfile.ZipFile(jar) as classes:
                if match := RESOLVER_ADDRESS.search(classes.read(RESOLVER_CLASS)):
                    return match[0].decode()
    raise SparkSetupError("pyspark's jars name no Maven repository; name one by the setting maven_mirror")


def download_jar(jar: PinnedJar, folder: Path, repository: str, on_bytes: OnBytesReceived) -> None:
    """Download the jar to the folder. Raises SparkSetupError with the reason if the download fails."""
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
    """Return the repository's address without the user's name and password."""
    url = urlsplit(repository)
    return urlunsplit(url._replace(netloc=url.netloc.rpartition("@")[2]))


def _open_address(address: str) -> IO[bytes]:
    """Open the address. A user name and password in the address are sent as Basic authentication."""
    request = urllib.request.Request(without_password(address), headers={"User-Agent": "ondatra"})  # noqa: S310 - of a setting
    user, has_user, _ = urlsplit(address).netloc.rpartition("@")
    if has_user:
        encoded = base64.b64encode(unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {encoded}")
    opener = urllib.request.build_opener(ProtectedRedirects)
    response: IO[bytes] = opener.open(request, timeout=TIMEOUT_SECONDS)
    return response


class ProtectedRedirects(urllib.request.HTTPRedirectHandler):
    """A handler of HTTP redirects. It refuses redirects from https to another scheme."""

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
    """Copy the response to the file. Return the file's SHA-256 and size."""
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
    # imported only here, because the imported module imports this one
    from ondatra_dagster.warehouse.spark.jars_and_class_archive_setup import main

    sys.exit(main(sys.argv[1:]))
