"""The files of lib/ that make up one push function: it, and all that it loads. Parsed here, and not run."""

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import starlark

from ondatra_dagster.delivery.push.push_source import unreadable
from ondatra_dagster.delivery.push.starlark.dialect import PREFIX, PRELUDE, parse
from ondatra_dagster.delivery.push.starlark.faults import Place, refused_by_starlark
from ondatra_dagster.errors import ProjectError

_LITERAL = re.compile(r"""r?"(?:[^"\\]|\\.)*"|r?'(?:[^'\\]|\\.)*'""")


class LibraryFile(NamedTuple):
    """One file of lib/."""

    name: str  # lib/NAME.star
    text: str
    tree: starlark.AstModule
    loads: Mapping[str, str]  # what its load()s say → the name of the file they mean

    def place_of_load(self, wanted: str) -> Place:
        return _place_of(wanted, self.name, self.text)


def files_of(path: Path) -> Sequence[LibraryFile]:
    """The file after all that it loads, each once and all inside lib/; ProjectError where that can't be."""
    files: dict[str, LibraryFile] = {}
    _collect(path.parent, path.name, files, ())
    return list(files.values())


def name_of(lib: Path, relative: str) -> str:
    """What a file of lib/ is called in messages, and by others that load it."""
    return f"{lib.name}/{relative}"


def _collect(lib: Path, relative: str, files: dict[str, LibraryFile], above: tuple[str, ...]) -> str:
    name = name_of(lib, relative)
    if name in files:
        return name
    text = _text(lib / relative, name)
    try:
        tree = parse(name, PREFIX + text)
    except starlark.StarlarkError as error:
        raise refused_by_starlark(error, name) from error
    loads = {PRELUDE: PRELUDE}
    for wanted in [each.module_id for each in tree.loads() if each.module_id != PRELUDE]:
        found = _found(lib, wanted, _place_of(wanted, name, text), (*above, name))
        loads[wanted] = _collect(lib, found, files, (*above, name))
    files[name] = LibraryFile(name, text, tree, loads)
    return name


def _place_of(wanted: str, name: str, text: str) -> Place:
    """Return the line that loads this file. Its name may be written with escapes there."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if wanted in line or wanted in map(_value, _LITERAL.findall(line)):
            return Place(name, number)
    return Place(name, next((number for number, line in enumerate(lines, 1) if "load(" in line), 1))


def _value(literal: str) -> str:
    try:
        return str(ast.literal_eval(literal))
    except (SyntaxError, ValueError):  # an escape that Python doesn't have
        return ""


def _found(lib: Path, wanted: str, place: Place, open_files: tuple[str, ...]) -> str:
    refusal = place.refuse(f"{wanted!r} can't be loaded", "load a .star file of lib/ by its name")
    try:
        path = (lib / wanted).resolve()
        is_file = path.is_file()
    except (OSError, ValueError) as error:  # it is too long, or has a NUL in it
        raise refusal from error
    if not path.is_relative_to(lib.resolve()) or path.suffix != ".star":
        raise refusal
    if not is_file:
        raise place.refuse(f"there is no {wanted!r} in {lib.name}/", "mend the name in load()")
    relative = path.relative_to(lib.resolve()).as_posix()
    if name_of(lib, relative) in open_files:
        raise place.refuse(f"loading {wanted!r} leads back here", "break the circle of load()s")
    return relative


def _text(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError([unreadable(name, error)]) from error
