"""Where a rotated refresh token is kept: the server takes each one once, so the newest must outlive its run.

The access token that came with it is kept too: else each run would use up a refresh token. Of other sinks no
token is ever on disk. The file is its owner's alone, and named by a digest.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import orjson

from ondatra_dagster.delivery.http.token_grant import Tokens
from ondatra_dagster.store.file_errors import explained
from ondatra_dagster.store.lock import open_lock


class TokenFile:
    """The newest tokens that grew out of one refresh token. One process at a time asks for new ones."""

    def __init__(self, folder: Path, *grown_from: str) -> None:
        name = hashlib.blake2b("\n".join(grown_from).encode(), digest_size=16).hexdigest()
        self._path = folder / f"{name}.json"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else asks meanwhile: a server may take a second use of one refresh token for a theft."""
        path = self._path.with_suffix(".lock")
        with explained(path):
            lock = open_lock(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def read(self) -> Tokens | None:
        """What was kept last; None when nothing was, or what is there can't be read as that."""
        try:
            with explained(self._path), contextlib.suppress(FileNotFoundError):
                return Tokens(**orjson.loads(self._path.read_bytes()))
        except (orjson.JSONDecodeError, TypeError):
            pass
        return None

    def write(self, tokens: Tokens) -> None:
        """Keep them: whole, and before anybody uses them."""
        new = self._path.with_suffix(".new")
        with explained(self._path):
            new.unlink(missing_ok=True)
            file = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as opened:
                opened.write(orjson.dumps(tokens._asdict()))
                opened.flush()
                os.fsync(file)
            new.replace(self._path)
