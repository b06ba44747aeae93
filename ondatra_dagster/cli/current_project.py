"""The project of the current folder, or of the nearest folder above it that is a project."""

import tomllib
from pathlib import Path

from ondatra_dagster.app.workspace import Workspace, load_workspace
from ondatra_dagster.errors import SettingsError
from ondatra_dagster.sync.sync_definition import Sync


def find_root() -> Path:
    """Return the project's folder; raise SettingsError if the current folder isn't in a project."""
    folder = Path.cwd().resolve()
    for candidate in (folder, *folder.parents):
        if _is_project(candidate):
            return candidate
    raise SettingsError(f"{folder} is not in an ondatra project; change into one, or create one: ondatra init DIR")


def open_workspace() -> Workspace:
    """Load the project of the current folder."""
    return load_workspace(find_root())


def open_sync(name: str) -> tuple[Workspace, Sync]:
    """Load the project of the current folder. Return it with the sync of this name."""
    workspace = open_workspace()
    return workspace, workspace.sync(name)


def _is_project(folder: Path) -> bool:
    try:
        settings = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return (folder / "models").is_dir()  # the error in pyproject.toml is reported when the settings are read
    except OSError:
        return (folder / "models").is_dir() and (folder / "lib").is_dir()
    tool_settings = settings.get("tool")
    return (isinstance(tool_settings, dict) and "ondatra" in tool_settings) or (folder / "models").is_dir()
