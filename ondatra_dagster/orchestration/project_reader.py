"""The project as its files say it now: read again when one of them has changed, and not at each request."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from ondatra_dagster.errors import OndatraError
from ondatra_dagster.orchestration.workspace import Workspace, load_workspace

Seen: TypeAlias = frozenset[tuple[str, int, int]]
FILES = ("models/*/*.sql", "lib/*.star", "pyproject.toml", ".env")


class ProjectReader:
    """Used by several threads at once. Raises what is wrong with the project when it is read first."""

    def __init__(self, root: Path, *, load: Callable[[Path], Workspace] = load_workspace) -> None:
        self._root = root
        self._load = load
        self._lock = threading.Lock()
        self._seen = self._look()
        self._workspace = load(root)
        self._fault = ""

    def read(self) -> tuple[Workspace, str]:
        """The project, and what is wrong with its files: then it is as it was before."""
        with self._lock:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._read_again()
            return self._workspace, self._fault

    def _read_again(self) -> None:
        try:
            self._workspace, self._fault = self._load(self._root), ""
        except OndatraError as error:
            self._fault = f"The project can't be read, so it is shown as it was before. {error}"

    def _look(self) -> Seen:
        return frozenset(self._files())

    def _files(self) -> Iterator[tuple[str, int, int]]:
        for pattern in FILES:
            for path in self._root.glob(pattern):
                with contextlib.suppress(FileNotFoundError):
                    state = path.stat()
                    yield str(path), state.st_mtime_ns, state.st_size
