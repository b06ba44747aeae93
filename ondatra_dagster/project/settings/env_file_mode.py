"""Whether others than its owner may read .env."""

import stat
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.errors import Problem

READABLE = stat.S_IRGRP | stat.S_IROTH


def readable_env_file(root: Path) -> Iterator[Problem]:
    """Yield a warning where other users of this machine may read the project's .env."""
    try:
        mode = stat.S_IMODE((root / ".env").stat().st_mode)
    except OSError:  # there is none, or reading the settings has said why it can't be read
        return
    if mode & READABLE:
        what = f"other users of this machine may read the secrets in it (mode {mode:04o})"
        yield Problem(file=".env", line=0, what=what, remedy="chmod 600 .env")
