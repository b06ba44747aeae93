"""The fixtures that make projects from file contents."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ondatra_dagster.errors import ProjectError
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.project_loader import load_project
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings

Files = Mapping[str, str | bytes]


@pytest.fixture
def write_project(tmp_path: Path) -> Callable[[Files], Path]:
    """Write files below a folder whose name has a space, and return the folder."""

    def write_files(files: Files) -> Path:
        root = tmp_path / "my shop"
        (root / "models").mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return write_files


@pytest.fixture
def load_from_files(write_project: Callable[[Files], Path]) -> Callable[[Files], Project]:
    """Load a project that consists of these files."""

    def load_files(files: Files) -> Project:
        root = write_project(files)
        return load_project(root, read_settings(root, {}))

    return load_files


@pytest.fixture
def find_problems(load_from_files: Callable[[Files], Project]) -> Callable[[Files], list[str]]:
    """Return the problems of a project that consists of these files, one line each."""

    def problems_of(files: Files) -> list[str]:
        with pytest.raises(ProjectError) as caught:
            load_from_files(files)
        return [str(problem) for problem in caught.value.problems]

    return problems_of
