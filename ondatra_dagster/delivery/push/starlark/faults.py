"""What Starlark says of a fault, as who wrote the file needs it: which file, which line, what."""

import re
from collections.abc import Set
from typing import NamedTuple, Self

import starlark

from ondatra_dagster.errors import Problem, ProjectError
from ondatra_dagster.wording import docs_page

_FRAME = re.compile(r"^  \* (.+?):(\d+), in ", re.MULTILINE)
_ERROR = re.compile(r"^error: (.*?)(?:\n +--> (.+?):(\d+):\d+$|\Z)", re.MULTILINE | re.DOTALL)


class Place(NamedTuple):
    """A line of a user's file."""

    file: str  # lib/NAME.star
    line: int

    def problem(self, what: str, remedy: str) -> Problem:
        return Problem(file=self.file, line=self.line, what=what, remedy=remedy)

    def refuse(self, what: str, remedy: str) -> ProjectError:
        return ProjectError([self.problem(what, remedy)])


class Fault(NamedTuple):
    """An error in a user's file."""

    file: str  # "" where Starlark doesn't tell
    line: int
    what: str

    @classmethod
    def of(cls, text: str, files: Set[str]) -> Self:
        """Where in these files an error is that Starlark tells of in this text, and what it is."""
        found = _ERROR.search(text)
        what = found[1] if found else text
        for prefix in ("fail: ", "WrongUseError: "):
            what = what.removeprefix(prefix)
        places = [(file, int(line)) for file, line in _FRAME.findall(text)]
        if found and found[2]:
            places.append((found[2], int(found[3])))
        file, line = next((place for place in reversed(places) if place[0] in files), ("", 2))
        return cls(file, max(line - 1, 1), what.strip())


def is_starlarks(error: BaseException) -> bool:
    """Whether the .star file is to blame: a panic and a result that Python can't hold are its doing too."""
    return (
        isinstance(error, starlark.StarlarkError | TypeError | ValueError)
        or type(error).__module__ == "pyo3_runtime"
    )


def refused_by_starlark(error: BaseException, name: str) -> ProjectError:
    """The error of a file that can't be read, or whose top level fails."""
    fault = Fault.of(str(error), {name})
    what = fault.what.removeprefix("Parse error: ")
    return Place(name, fault.line).refuse(what, f"{docs_page('push-functions')} says what Starlark has")
