"""The Starlark interpreter for push functions: their built-in names, parsing, evaluation and errors."""

import functools
import re
import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import NamedTuple, Self

import starlark

from ondatra_dagster.count_time_and_size_format import docs_command
from ondatra_dagster.delivery.push.starlark.python_functions_behind_builtin_objects import host_functions
from ondatra_dagster.errors import Problem, ProjectError

PRELUDE = "@ondatra"
BUILTIN_NAMES = (
    *("print", "sleep", "env", "http", "time", "base64", "url_quote"),
    *("md5", "sha1", "sha256", "sha512", "hmac_sha256"),
)


# Starlark's own functions that crash the process on some values, and their replacements
_REPLACED_BUILTINS = {"json": "checked_json", "fail": "checked_fail"}


# one line before a file's first, so lines in messages are one too high
LOAD_LINE = "load({})\n".format(
    ", ".join(
        [*(f'"{word}"' for word in (PRELUDE, *BUILTIN_NAMES)), *(f'{k} = "{v}"' for k, v in _REPLACED_BUILTINS.items())]
    )
)
_LOAD_SECONDS = 10.0
_GLOBALS = starlark.Globals.extended_by([starlark.LibraryExtension.StructType, starlark.LibraryExtension.Json])
_DIALECT = starlark.Dialect.extended()
_DIALECT.enable_f_strings = True


def parse_file(name: str, text: str) -> starlark.AstModule:
    """Parse the text as Starlark, without running it."""
    return starlark.parse(name, text, _DIALECT)


def evaluate_file(tree: starlark.AstModule, modules: Mapping[str, starlark.FrozenModule]) -> starlark.FrozenModule:
    """Run a file's top level. Its calls of load() get their files from `modules`."""
    ends_at = time.monotonic() + _LOAD_SECONDS
    options = starlark.EvalOptions(check_cancelled=lambda: time.monotonic() > ends_at)
    module = starlark.Module()
    starlark.eval_with(options, module, tree, _GLOBALS, file_loader=starlark.FileLoader(modules.__getitem__))
    return module.freeze()


def evaluate_until_load(tree: starlark.AstModule) -> None:
    """Run a file's top level up to its first load()."""
    starlark.eval(starlark.Module(), tree, _GLOBALS)


@functools.cache
def load_prelude() -> starlark.FrozenModule:
    """Return the module with the built-in names that every file gets."""
    module = starlark.Module()
    for name, function in host_functions().items():
        module.add_callable(name, function)
    text = Path(__file__).with_name("builtin_objects.star").read_text(encoding="utf-8")
    starlark.eval(module, parse_file(PRELUDE, text), _GLOBALS)
    return module.freeze()


_FRAME_PATTERN = re.compile(r"^  \* (.+?):(\d+), in ", re.MULTILINE)
_ERROR_PATTERN = re.compile(r"^error: (.*?)(?:\n +--> (.+?):(\d+):\d+$|\Z)", re.MULTILINE | re.DOTALL)


class FileLine(NamedTuple):
    """A line of a user's file."""

    file: str  # lib/NAME.star
    line: int

    def to_problem(self, description: str, remedy: str) -> Problem:
        return Problem(file=self.file, line=self.line, description=description, remedy=remedy)

    def to_error(self, description: str, remedy: str) -> ProjectError:
        return ProjectError([self.to_problem(description, remedy)])


class StarlarkFault(NamedTuple):
    """An error in a user's file."""

    file: str  # "" if Starlark doesn't say
    line: int
    message: str

    @classmethod
    def parse_error(cls, text: str, files: Set[str]) -> Self:
        """Return the message of the error in a text from Starlark, and the error's place in one of these files."""
        match = _ERROR_PATTERN.search(text)
        message = match[1] if match else text
        for prefix in ("fail: ", "WrongUseError: "):
            message = message.removeprefix(prefix)
        file_lines = [(file, int(line)) for file, line in _FRAME_PATTERN.findall(text)]
        if match and match[2]:
            file_lines.append((match[2], int(match[3])))
        file, line = next((file_line for file_line in reversed(file_lines) if file_line[0] in files), ("", 2))
        return cls(file, max(line - 1, 1), message.strip())


def is_starlark_error(error: BaseException) -> bool:
    """Return whether the .star file caused the error. A panic counts, too, and a result that Python can't hold."""
    return (
        isinstance(error, starlark.StarlarkError | TypeError | ValueError) or type(error).__module__ == "pyo3_runtime"
    )


def to_project_error(error: BaseException, name: str) -> ProjectError:
    """Return a ProjectError for a file that can't be parsed, or whose top level fails."""
    fault = StarlarkFault.parse_error(str(error), {name})
    message = fault.message.removeprefix("Parse error: ")
    return FileLine(name, fault.line).to_error(message, f"{docs_command('push-functions')} says what Starlark has")
