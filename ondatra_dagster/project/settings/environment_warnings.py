"""The warnings about the environment: unknown ONDATRA_ variables, and a .env that other users can read.

A name that is nearly that of a setting's variable is an error, not a warning. The settings report it.
"""

import itertools
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from ondatra_dagster.count_time_and_size_format import docs_command
from ondatra_dagster.errors import Problem
from ondatra_dagster.project.settings.read_raw_setting_entries import EVENTS_TOKEN_VARIABLE, OAUTH_VARIABLE_PREFIX
from ondatra_dagster.project.settings.setting_names_and_parsers import SETTINGS_BY_VARIABLE, VARIABLE_PREFIX
from ondatra_dagster.project.spelling_suggestions import find_nearest

TEST_VARIABLE_PREFIX = "ONDATRA_TEST_"  # variables for ondatra's own tests
KNOWN_VARIABLES = (*SETTINGS_BY_VARIABLE, EVENTS_TOKEN_VARIABLE)


# the project's files in which the user may use other variables
SEARCHED_FILES = ("*.toml", "*.yaml", "*.py", "*/*.py", "lib/*.star")


def unknown_variable_warnings(root: Path, names: Iterable[str]) -> Iterator[Problem]:
    """Yield a warning for each ONDATRA_ variable that ondatra doesn't know and that no file of the project mentions."""
    prefixed_names = {name for name in names if name.startswith(VARIABLE_PREFIX)} - {*KNOWN_VARIABLES}
    unknown_names = sorted(
        name for name in prefixed_names if not name.startswith((OAUTH_VARIABLE_PREFIX, TEST_VARIABLE_PREFIX))
    )
    if not unknown_names:
        return
    text = _read_project_text(root)
    for name in unknown_names:
        if name not in text:
            yield Problem(file=name, line=0, description="no setting has this variable", remedy=_variable_remedy(name))


def _read_project_text(root: Path) -> str:
    """Return the texts of the project's files as one text."""
    paths = itertools.chain.from_iterable(root.glob(pattern) for pattern in SEARCHED_FILES)
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in paths if path.is_file())


def _variable_remedy(name: str) -> str:
    # compare without the prefix, which makes all of them similar
    guess = find_nearest(
        name.removeprefix(VARIABLE_PREFIX), [variable.removeprefix(VARIABLE_PREFIX) for variable in KNOWN_VARIABLES]
    )
    suggestion = f"did you mean {VARIABLE_PREFIX}{guess}? " if guess else ""
    return f"{suggestion}{docs_command('models')} lists the settings; a variable of your own needs another name"


READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH


def env_file_warnings(root: Path) -> Iterator[Problem]:
    """Yield a warning if other users of this machine may read the project's .env."""
    try:
        mode = stat.S_IMODE((root / ".env").stat().st_mode)
    except OSError:  # .env doesn't exist, or the settings have reported that it can't be read
        return
    if mode & READABLE_BY_OTHERS:
        description = f"other users of this machine may read the secrets in it (mode {mode:04o})"
        yield Problem(file=".env", line=0, description=description, remedy="chmod 600 .env")
