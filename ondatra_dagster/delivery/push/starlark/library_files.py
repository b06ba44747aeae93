"""The files of lib/ that make up one push function: its own file and all that it loads, parsed but not run."""

import ast
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import starlark

from ondatra_dagster.delivery.push.push_file_parser import exported_names, unreadable_file_problem
from ondatra_dagster.delivery.push.starlark.parsing_and_evaluation import (
    LOAD_LINE,
    PRELUDE,
    FileLine,
    StarlarkFault,
    evaluate_until_load,
    parse_file,
    to_project_error,
)
from ondatra_dagster.errors import Problem, ProjectError
from ondatra_dagster.project.spelling_suggestions import suggest_correction


class LibraryFile(NamedTuple):
    """A file of lib/."""

    name: str  # lib/NAME.star
    text: str
    tree: starlark.AstModule
    loads: Mapping[str, str]  # the argument of each load() → the name of the file that it means


def list_library_files(path: Path) -> Sequence[LibraryFile]:
    """Return the file and all files that it loads, each once; a file comes after those that it loads.

    Raise ProjectError if a file can't be loaded, or isn't inside lib/.
    """
    files: dict[str, LibraryFile] = {}
    _collect_files(path.parent, path.name, files, ())
    return list(files.values())


def library_file_name(lib: Path, relative: str) -> str:
    """Return the name of a file of lib/, such as lib/NAME.star. Messages and loading files refer to this name."""
    return f"{lib.name}/{relative}"


def _collect_files(lib: Path, relative: str, files: dict[str, LibraryFile], loading_files: tuple[str, ...]) -> str:
    name = library_file_name(lib, relative)
    if name in files:
        return name
    text = _read_text(lib / relative, name)
    try:
        tree = parse_file(name, LOAD_LINE + text)
    except starlark.StarlarkError as error:
        raise to_project_error(error, name) from error
    loads = {PRELUDE: PRELUDE}
    for module_id in [load.module_id for load in tree.loads() if load.module_id != PRELUDE]:
        file_name = _resolve_load(lib, module_id, _find_load_line(module_id, name, text), (*loading_files, name))
        loads[module_id] = _collect_files(lib, file_name, files, (*loading_files, name))
    files[name] = LibraryFile(name, text, tree, loads)
    return name


def _find_load_line(load_name: str, name: str, text: str) -> FileLine:
    """Return the line whose load() has this file name. The name may be written with escapes there."""
    with contextlib.suppress(SyntaxError):  # an escape that Python doesn't have
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "load" and node.args:
                first_argument = node.args[0]
                if isinstance(first_argument, ast.Constant) and first_argument.value == load_name:
                    return FileLine(name, first_argument.lineno)
    return FileLine(name, next((number for number, line in enumerate(text.split("\n"), 1) if "load(" in line), 1))


def _resolve_load(lib: Path, load_name: str, place: FileLine, open_files: tuple[str, ...]) -> str:
    refusal = place.to_error(f"{load_name!r} can't be loaded", "load a .star file of lib/ by its name")
    try:
        path = (lib / load_name).resolve()
        is_file = path.is_file()
    except (OSError, ValueError) as error:  # the path is too long, or has a NUL
        raise refusal from error
    if not path.is_relative_to(lib.resolve()) or path.suffix != ".star":
        raise refusal
    if not is_file:
        raise place.to_error(f"there is no {load_name!r} in {lib.name}/", "correct the name in load()")
    relative = path.relative_to(lib.resolve()).as_posix()
    if library_file_name(lib, relative) in open_files:
        raise place.to_error(f"loading {load_name!r} loads this file again", "remove the cycle of load()s")
    return relative


def _read_text(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError([unreadable_file_problem(name, error)]) from error


# Starlark resolves all names of a file before it runs the first statement. This line is the first statement, and it
# fails.
_NAMES_ONLY_LINE = f'{{}}["every name is known"]; {LOAD_LINE}'
_UNDEFINED_NAME = re.compile(r"Variable `(.+?)` not found")


def find_undefined_names(files: Sequence[LibraryFile]) -> Iterator[Problem]:
    """Yield a problem for each loaded name that doesn't exist, and for the first other undefined name of each file."""
    texts = {file.name: file.text for file in files}
    for file in files:
        for load in file.tree.loads():
            library_text = texts.get(file.loads[load.module_id])
            defined_names = exported_names(library_text) if library_text is not None else None
            for name in load.symbols.values():
                if defined_names is not None and name not in defined_names:
                    remedy = suggest_correction(name, defined_names, plural="names there")
                    problem = f"{load.module_id!r} has no {name!r} to load"
                    yield _find_load_line(load.module_id, file.name, file.text).to_problem(problem, remedy)
        yield from _find_undefined_name(file)


def _find_undefined_name(file: LibraryFile) -> Iterator[Problem]:
    try:
        evaluate_until_load(parse_file(file.name, _NAMES_ONLY_LINE + file.text))
    except starlark.StarlarkError as error:
        fault = StarlarkFault.parse_error(str(error), {file.name})
        if match := _UNDEFINED_NAME.match(fault.message):
            problem, remedy = f"nothing is called {match[1]!r} here", "define it, or load it from a file of lib/"
            yield FileLine(file.name, fault.line).to_problem(problem, remedy)
