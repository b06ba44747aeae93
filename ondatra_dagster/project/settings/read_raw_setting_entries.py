"""The places of settings: pyproject.toml, .env and environment variables.

This module only reads the settings. read_settings_and_defaults.py checks and combines them.
"""

import contextlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import dotenv

from ondatra_dagster.errors import InvalidSettingsError, Problem
from ondatra_dagster.project.settings.setting_names_and_parsers import (
    SETTINGS_BY_VARIABLE,
    TABLE_SETTINGS,
    VARIABLE_PREFIX,
    flatten_table,
)
from ondatra_dagster.project.spelling_suggestions import find_nearest

PYPROJECT = "pyproject.toml"
EVENTS_TOKEN_VARIABLE = "ONDATRA_EVENTS_TOKEN"  # noqa: S105 - a variable's name; its value is a secret, not a setting
OAUTH_VARIABLE_PREFIX = "ONDATRA_OAUTH_TOKEN_"  # secrets that a sink's provider names, not settings
MISSPELLING_LIKENESS = 0.9  # an unknown variable that is at least this similar to a setting's variable is refused


class SettingEntry(NamedTuple):
    file: str  # pyproject.toml, or the name of the variable
    line: int  # 0 if the entry is a variable
    name: str
    value: object


def read_dot_env(root: Path) -> dict[str, str]:
    """Return the variables in .env. A $ isn't expanded, because a password may contain one."""
    try:
        variables = dotenv.dotenv_values(root / ".env", interpolate=False, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable_file_error(".env", error) from error
    return {name: value for name, value in variables.items() if value is not None}


def read_pyproject(root: Path) -> Iterator[SettingEntry]:
    """Yield every setting in pyproject.toml; nothing if there is no such file."""
    try:
        text = (root / PYPROJECT).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable_file_error(PYPROJECT, error) from error
    for name, value in flatten_table(_ondatra_section(text), table_names=TABLE_SETTINGS):
        yield SettingEntry(PYPROJECT, _find_line(name, text), name, value)


def _ondatra_section(text: str) -> Mapping[str, object]:
    """Return the content of [tool.ondatra]. Raise an error with the line if the text isn't TOML."""
    try:
        tool_section = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        # Python gives the place only in the text: Expected '=' after a key (at line 3, column 5)
        place_match = re.search(r" \(at (?:line (\d+)|end)[^)]*\)", str(error))
        line = int(place_match[1]) if place_match and place_match[1] else text.rstrip().count("\n") + 1
        description = str(error)[: place_match.start()] if place_match else str(error)
        raise _settings_error(PYPROJECT, line, f"it isn't TOML: {description}", "correct the line") from error
    section = tool_section.get("ondatra", {}) if isinstance(tool_section, dict) else tool_section
    if not isinstance(section, dict):
        description, remedy = "tool.ondatra is not a table", "write [tool.ondatra]"
        raise _settings_error(PYPROJECT, _find_line("ondatra", text), description, remedy)
    return section


def _unreadable_file_error(file: str, error: OSError | UnicodeDecodeError) -> InvalidSettingsError:
    if isinstance(error, OSError):
        return _settings_error(file, 0, f"the file can't be read: {error.strerror}", "make it readable")
    line = error.object.count(b"\n", 0, error.start) + 1
    return _settings_error(file, line, "the file is not UTF-8", "save it as UTF-8")


def _settings_error(file: str, line: int, description: str, remedy: str) -> InvalidSettingsError:
    return InvalidSettingsError([Problem(file=file, line=line, description=description, remedy=remedy)])


def find_setting_line(name: str, root: Path) -> tuple[str, int]:
    """Return the file and line that most likely contain the setting, which the caller knows to be set."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return PYPROJECT, _find_line(name, (root / PYPROJECT).read_text(encoding="utf-8-sig"))
    return VARIABLE_PREFIX + name.partition(".")[0].upper(), 0  # pyproject.toml can't be read, so a variable has set it


def _find_line(name: str, text: str) -> int:
    """Return the line of pyproject.toml that most likely sets the setting. tomllib doesn't report lines."""
    last_name = re.escape(name.rpartition(".")[2])
    section = max(text.find("[tool.ondatra"), 0)
    line_pattern = re.compile(rf"^[ \t]*(\[[^\n#]*\b{last_name}\b|[^=\n#\[]*\b{last_name}\b[^=\n]*=)", re.MULTILINE)
    match = line_pattern.search(text, section)
    return text.count("\n", 0, match.start(1) if match else section) + 1


def read_setting_variables(variables: Mapping[str, str]) -> Iterator[SettingEntry]:
    """Yield every variable that belongs to a setting, and every variable whose name is nearly that of one."""
    for variable, value in variables.items():
        if not value or not variable.startswith(VARIABLE_PREFIX) or variable.startswith(OAUTH_VARIABLE_PREFIX):
            continue
        if variable in SETTINGS_BY_VARIABLE:
            yield SettingEntry(variable, 0, SETTINGS_BY_VARIABLE[variable], value)
        elif variable != EVENTS_TOKEN_VARIABLE and find_nearest(
            variable, (*SETTINGS_BY_VARIABLE, EVENTS_TOKEN_VARIABLE), likeness=MISSPELLING_LIKENESS
        ):
            yield SettingEntry(variable, 0, variable, value)
