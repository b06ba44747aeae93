"""What the files of a push function name and nobody defines: found before anything of theirs is run."""

import re
from collections.abc import Iterator, Sequence

import starlark

from ondatra_dagster.delivery.push.push_source import exported_names
from ondatra_dagster.delivery.push.starlark.dialect import PREFIX, evaluate_alone, parse
from ondatra_dagster.delivery.push.starlark.faults import Fault, Place
from ondatra_dagster.delivery.push.starlark.library_files import LibraryFile
from ondatra_dagster.errors import Problem
from ondatra_dagster.project.suggestions import correction

# all names of a file are looked up before its first statement runs: this one, which ends it
_NAMES_ONLY = f'{{}}["every name is known"]; {PREFIX}'
_UNKNOWN_NAME = re.compile(r"Variable `(.+?)` not found")


def unknown_names(files: Sequence[LibraryFile]) -> Iterator[Problem]:
    """Of each file what it loads and can't have, and the first other name that nothing in it defines."""
    texts = {file.name: file.text for file in files}
    for file in files:
        for load in file.tree.loads():
            loaded = texts.get(file.loads[load.module_id])
            known = exported_names(loaded) if loaded is not None else None
            for name in load.symbols.values():
                if known is not None and name not in known:
                    remedy = correction(name, known, plural="names there")
                    what = f"{load.module_id!r} has no {name!r} to load"
                    yield file.place_of_load(load.module_id).problem(what, remedy)
        yield from _undefined_name(file)


def _undefined_name(file: LibraryFile) -> Iterator[Problem]:
    try:
        evaluate_alone(parse(file.name, _NAMES_ONLY + file.text))
    except starlark.StarlarkError as error:
        fault = Fault.of(str(error), {file.name})
        if found := _UNKNOWN_NAME.match(fault.what):
            what, remedy = f"nothing is called {found[1]!r} here", "define it, or load it from a file of lib/"
            yield Place(file.name, fault.line).problem(what, remedy)
