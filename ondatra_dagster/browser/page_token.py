"""The page's token: who knows it may look. It outlives the process, so that a browser is let in once."""

import contextlib
import os
import re
import secrets
from pathlib import Path

from ondatra_dagster.store.file_errors import explained
from ondatra_dagster.store.private_folder import keep_private

FILE = "ui-token"
WHOLE = re.compile(r"[A-Za-z0-9_-]{43}")  # what token_urlsafe makes of 32 bytes


def page_token(state: Path) -> str:
    """The token in the project's state folder, which only its owner reads; a new one where there is none."""
    keep_private(state)
    path = state / FILE
    with explained(path), contextlib.suppress(FileNotFoundError):
        token = path.read_text(encoding="ascii", errors="replace")
        if WHOLE.fullmatch(token) and not path.stat().st_mode & 0o077:
            return token
        path.unlink()  # half written, or open to others, who may have read it
    return _new_token(path)


def _new_token(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    with explained(path):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:  # noqa: PTH123 - it is a descriptor
            file.write(token)
    return token
