"""The project as its files define it now. It is read again only when one of the files has changed."""

import threading
from collections.abc import Callable
from pathlib import Path

from ondatra_dagster.app.workspace import Workspace, load_workspace
from ondatra_dagster.errors import OndatraError
from ondatra_dagster.project.model_files import read_file_states

PROJECT_FILES = ("models/*/*.sql", "lib/*.star", "pyproject.toml", ".env")


class ProjectCache:
    """A cached project for several threads. The first read raises the project's problems."""

    def __init__(self, root: Path, *, load: Callable[[Path], Workspace] = load_workspace) -> None:
        self._root = root
        self._load = load
        self._lock = threading.Lock()
        self._file_states = read_file_states(root, PROJECT_FILES)
        self._workspace = load(root)
        self._load_error = ""

    def load_current_project(self) -> tuple[Workspace, str]:
        """The project, and what is wrong with its files: then it is as it was before."""
        with self._lock:
            seen = read_file_states(self._root, PROJECT_FILES)
            if seen != self._file_states:
                self._file_states = seen
                self._reload()
            return self._workspace, self._load_error

    def _reload(self) -> None:
        try:
            self._workspace, self._load_error = self._load(self._root), ""
        except OndatraError as error:
            self._load_error = f"The project can't be read, so it is shown as it was before. {error}"
