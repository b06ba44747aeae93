"""The Python environments of the peers, whose dependencies differ from ondatra's.

Each is created once, in the cache.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

DLT = "dlt==1.31.*"
DRT = "drt-core==1.2.*"


class MissingPeerError(Exception):
    """The error for a peer that can't be installed here. The error's text has the reason."""


def install_peer(requirement: str) -> Path:
    """Return the Python of the environment with the package. Install the package if needed; raise MissingPeerError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = requirement.replace("==", "-").removesuffix(".*")
    folder = cache / "ondatra" / "bench" / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    marker = folder / "made"  # written last, so that an incomplete folder is created again
    if not marker.exists():
        venv.create(folder, clear=True, with_pip=True)
        _install(python, requirement)
        marker.touch()
    return python


def _install(python: Path, requirement: str) -> None:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", requirement]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        lines = [line for line in process.stderr.splitlines() if line.startswith("ERROR")]
        raise MissingPeerError(f"pip can't install {requirement}: {lines[0] if lines else process.stderr[-200:]}")
