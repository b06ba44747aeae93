"""The variables that begin with ONDATRA_ and mean nothing to ondatra: a misspelt setting would do nothing.

One that looks like a setting but for a letter is refused by settings.py; these are reported as warnings.
"""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from ondatra_dagster.errors import Problem
from ondatra_dagster.project.settings.event_settings import TOKEN
from ondatra_dagster.project.settings.setting_places import OAUTH_TOKENS
from ondatra_dagster.project.settings.setting_values import PREFIX, VARIABLES
from ondatra_dagster.project.suggestions import nearest
from ondatra_dagster.wording import docs_page

TEST_VARIABLES = "ONDATRA_TEST_"  # read by ondatra's own tests
KNOWN = (*VARIABLES, TOKEN)
# the files of a project that may name a variable of the user's own
FILES = ("*.toml", "*.yaml", "*.py", "*/*.py", "lib/*.star")


def unknown_variables(root: Path, names: Iterable[str]) -> Iterator[Problem]:
    """Return a warning for each variable that neither ondatra nor a file of the project knows."""
    unknown = sorted(name for name in names if name.startswith(PREFIX) and not _is_known(name))
    if not unknown:
        return
    text = _text_of(root)
    for name in unknown:
        if name not in text:
            yield Problem(file=name, line=0, what="no setting has this variable", remedy=_remedy(name))


def _is_known(name: str) -> bool:
    return name in KNOWN or name.startswith((OAUTH_TOKENS, TEST_VARIABLES))


def _text_of(root: Path) -> str:
    """Return what the project's files say, as one text."""
    paths = itertools.chain.from_iterable(root.glob(pattern) for pattern in FILES)
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in paths if path.is_file())


def _remedy(name: str) -> str:
    # without the prefix, which makes any two of them look alike
    guess = nearest(name.removeprefix(PREFIX), [known.removeprefix(PREFIX) for known in KNOWN])
    meant = f"did you mean {PREFIX}{guess}? " if guess else ""
    return f"{meant}{docs_page('models')} lists the settings; a variable of your own needs another name"
