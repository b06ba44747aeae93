"""The project that a command is called in: the folder, or the nearest one above that is a project."""

import tomllib
from pathlib import Path

from ondatra_dagster.errors import SettingsError
from ondatra_dagster.orchestration.workspace import Workspace, load_workspace


def find_root(start: Path | None = None) -> Path:
    """The project's folder; raises SettingsError when nobody stands in one."""
    folder = (start or Path.cwd()).resolve()
    for candidate in (folder, *folder.parents):
        if _is_project(candidate):
            return candidate
    raise SettingsError(f"{folder} is in no project; stand in one, or make one: ondatra init DIR")


def open_workspace() -> Workspace:
    """The project that the user stands in, read whole."""
    return load_workspace(find_root())


def _is_project(folder: Path) -> bool:
    try:
        settings = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return (folder / "models").is_dir()  # what is wrong with the file is told when it is read as settings
    except OSError:
        return (folder / "models").is_dir() and (folder / "lib").is_dir()
    tools = settings.get("tool")
    return (isinstance(tools, dict) and "ondatra" in tools) or (folder / "models").is_dir()
