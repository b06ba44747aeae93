"""The download of one pinned jar from a Maven repository: whole, with the pinned content, or not at all."""

import base64
import contextlib
import functools
import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit, urlunsplit

from ondatra_dagster.errors import SetUpError
from ondatra_dagster.warehouse.pinned_jars import PinnedJar
from ondatra_dagster.warehouse.spark_jvm import pyspark_jars

RESOLVER = "org/apache/ivy/plugins/resolver/IBiblioResolver.class"  # in pyspark's jar of Ivy
RESOLVER_ADDRESS = re.compile(rb"https://[\w.-]+/maven2")
PARTIAL = ".part"  # the end of a file's name until it is whole
TIMEOUT_SECONDS = 30
BLOCK_BYTES = 1 << 18

Received = Callable[[int], None]  # told how many bytes have come since it was last told


@functools.cache
def default_repository() -> str:
    """Return the address of the Maven repository that Spark's own resolver takes by default."""
    for jar in pyspark_jars():
        if jar.name.startswith("ivy-"):
            with zipfile.ZipFile(jar) as classes:
                if found := RESOLVER_ADDRESS.search(classes.read(RESOLVER)):
                    return found[0].decode()
    raise SetUpError("pyspark's jars name no Maven repository; name one by the setting maven_mirror")


def download(jar: PinnedJar, folder: Path, repository: str, received: Received) -> None:
    """Write the jar to the folder. Raises SetUpError with the reason when the repository doesn't give it."""
    partial = folder / (jar.name + PARTIAL)
    try:
        with _open(f"{repository.rstrip('/')}/{jar.path}") as answer, partial.open("wb") as file:
            digest, size = _copy(answer, file, received)
            os.fsync(file.fileno())
        if size < jar.size:
            raise SetUpError(f"{jar.name} from {shown(repository)} ended after {size} of {jar.size} bytes")
        if digest != jar.sha256:
            raise SetUpError(
                f"{shown(repository)} gave a {jar.name} that isn't the one pinned in this release:"
                f" its SHA-256 is {digest[:12]}…, not {jar.sha256[:12]}…"
            )
        partial.replace(folder / jar.name)
    except urllib.error.HTTPError as error:
        error.close()
        raise SetUpError(f"{jar.name} from {shown(repository)}: HTTP {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        raise SetUpError(f"{jar.name} from {shown(repository)}: {_reason(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def remove_partial_downloads(folder: Path) -> None:
    """Remove what a killed process left. The caller holds the folder's lock."""
    for partial in folder.glob(f"*{PARTIAL}"):
        partial.unlink(missing_ok=True)


def shown(repository: str) -> str:
    """Return the repository's address without a password."""
    parts = urlsplit(repository)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _open(address: str) -> IO[bytes]:
    """Open the address; a name and password in it are sent as Basic authentication."""
    request = urllib.request.Request(shown(address), headers={"User-Agent": "ondatra"})  # noqa: S310 - of a setting
    user, is_given, _ = urlsplit(address).netloc.rpartition("@")
    if is_given:
        encoded = base64.b64encode(unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {encoded}")
    opener = urllib.request.build_opener(ProtectedRedirects)
    opened: IO[bytes] = opener.open(request, timeout=TIMEOUT_SECONDS)
    return opened


class ProtectedRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects that don't leave https."""

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
            raise urllib.error.URLError(f"it redirects from https to {shown(newurl)}, and http isn't trusted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _copy(answer: IO[bytes], file: IO[bytes], received: Received) -> tuple[str, int]:
    """Copy the answer to the file; return its SHA-256 and its size."""
    digest, size = hashlib.sha256(), 0
    while block := answer.read(BLOCK_BYTES):
        digest.update(block)
        file.write(block)
        size += len(block)
        received(len(block))
    return digest.hexdigest(), size


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
