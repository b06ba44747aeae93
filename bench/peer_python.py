"""A Python of its own for dlt, whose dependencies aren't ours: made once, in the user's cache."""

import os
import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENT = "dlt==1.31.*"


class MissingPeerError(Exception):
    """The peer can't be had here; the text says why."""


def dlt_python() -> Path:
    """The Python that has dlt, or MissingPeerError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "ondatra" / "bench" / f"dlt-1.31-py{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    made = folder / "made"  # written last: a folder that was begun only is made anew
    if not made.exists():
        venv.create(folder, clear=True, with_pip=True)
        _install(python)
        made.touch()
    return python


def _install(python: Path) -> None:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise MissingPeerError(
            f"pip can't install {REQUIREMENT}: {lines[0] if lines else done.stderr[-200:]}"
        )
