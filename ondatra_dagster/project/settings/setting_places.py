"""The places where a setting may be written: pyproject.toml, .env, the variables that were handed over.

What is found is neither judged nor put together here: that is settings.py.
"""

import contextlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import dotenv

from ondatra_dagster.errors import BadSettingsError, Problem
from ondatra_dagster.project.settings.event_settings import TOKEN
from ondatra_dagster.project.settings.setting_values import PREFIX, TABLES, VARIABLES
from ondatra_dagster.project.suggestions import nearest

PYPROJECT = "pyproject.toml"
OAUTH_TOKENS = "ONDATRA_OAUTH_TOKEN_"  # secrets that a sink's provider names, not settings
MISSPELLED = 0.9  # how like a setting's variable an unknown ONDATRA_ variable must be to be refused


class Given(NamedTuple):
    file: str  # pyproject.toml, or the variable's name
    line: int  # 0: a variable has none
    name: str
    value: object


def dot_env(root: Path) -> dict[str, str]:
    """What .env says, as it stands: a password may have a $ in it."""
    try:
        written = dotenv.dotenv_values(root / ".env", interpolate=False, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(".env", error) from error
    return {name: value for name, value in written.items() if value is not None}


def from_file(root: Path) -> Iterator[Given]:
    """Every setting that pyproject.toml has; a project without that file has none."""
    try:
        text = (root / PYPROJECT).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(PYPROJECT, error) from error
    for name, value in _named(_section(text)):
        yield Given(PYPROJECT, _line_of(name, text), name, value)


def _section(text: str) -> Mapping[str, object]:
    """What stands in [tool.ondatra]."""
    try:
        tool = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        # Python tells the place in words only: Expected '=' after a key (at line 3, column 5)
        found = re.search(r" \(at (?:line (\d+)|end)[^)]*\)", str(error))
        line = int(found[1]) if found and found[1] else text.rstrip().count("\n") + 1
        what = str(error)[: found.start()] if found else str(error)
        raise _bad(PYPROJECT, line, f"it is no TOML: {what}", "correct the line") from error
    section = tool.get("ondatra", {}) if isinstance(tool, dict) else tool
    if not isinstance(section, dict):
        what, remedy = "tool.ondatra is not a table", "write [tool.ondatra]"
        raise _bad(PYPROJECT, _line_of("ondatra", text), what, remedy)
    return section


def _unreadable(file: str, error: OSError | UnicodeDecodeError) -> BadSettingsError:
    if isinstance(error, OSError):
        return _bad(file, 0, f"the file can't be read: {error.strerror}", "make it readable")
    line = error.object.count(b"\n", 0, error.start) + 1
    return _bad(file, line, "the file is not UTF-8", "save it as UTF-8")


def _bad(file: str, line: int, what: str, remedy: str) -> BadSettingsError:
    return BadSettingsError([Problem(file=file, line=line, what=what, remedy=remedy)])


def _named(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """spark = {master = …} and spark.master = … are the same setting."""
    for name, value in table.items():
        full = prefix + name
        if isinstance(value, Mapping) and full not in TABLES:
            yield from _named(value, full + ".")
        else:
            yield full, value


def place_of(name: str, root: Path) -> tuple[str, int]:
    """The file and the line that most likely say a setting that is known to be said."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return PYPROJECT, _line_of(name, (root / PYPROJECT).read_text(encoding="utf-8-sig"))
    return PREFIX + name.partition(".")[0].upper(), 0  # there is no such file: a variable says it


def _line_of(name: str, text: str) -> int:
    """The line of pyproject.toml that most likely says it: tomllib doesn't tell."""
    last = re.escape(name.rpartition(".")[2])
    section = max(text.find("[tool.ondatra"), 0)
    written = re.compile(rf"^[ \t]*(\[[^\n#]*\b{last}\b|[^=\n#\[]*\b{last}\b[^=\n]*=)", re.MULTILINE)
    found = written.search(text, section)
    return text.count("\n", 0, found.start(1) if found else section) + 1


def from_variables(variables: Mapping[str, str]) -> Iterator[Given]:
    """Every variable that stands for a setting, and those that look like one but for a letter."""
    for variable, value in variables.items():
        if not value or not variable.startswith(PREFIX) or variable.startswith(OAUTH_TOKENS):
            continue
        if variable in VARIABLES:
            yield Given(variable, 0, VARIABLES[variable], value)
        elif variable != TOKEN and nearest(variable, (*VARIABLES, TOKEN), likeness=MISSPELLED):
            yield Given(variable, 0, variable, value)
