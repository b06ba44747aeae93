"""Runs a lib/*.star file: loads it once, then calls its functions. Only here is Starlark known.

What a file may use is in prelude.star (the words), push_call and push_words (what stands behind them); what
its result means is in batch_modes. It reaches no file but what it loads from lib/, no host but through http.
"""

import functools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict, Unpack

import orjson
import starlark

from ondatra_dagster.changes import Column, Json
from ondatra_dagster.delivery.http.http_api import BatchCalls
from ondatra_dagster.delivery.push.decimal_places import decimal_places
from ondatra_dagster.delivery.push.push_call import PushCall, current, host_functions
from ondatra_dagster.delivery.push.push_config import PushConfig
from ondatra_dagster.delivery.push.push_source import PushSource, exported_names, read_source, unreadable
from ondatra_dagster.errors import Problem, ProjectError, PushContractError
from ondatra_dagster.project.suggestions import correction

_PRELUDE = "@ondatra"
WORDS = (
    *("print", "sleep", "env", "http", "time", "base64", "url_quote"),
    *("md5", "sha1", "sha256", "sha512", "hmac_sha256"),
)
# stands as one line before a file's own, so lines in messages are one too high
_PREFIX = f'load("{_PRELUDE}", {", ".join(map(repr, WORDS))}, json = "checked_json")\n'.replace("'", '"')
# all names of a file are looked up before its first statement runs: this one, which ends it
_LOOKED_UP = "every name is known"
_NAMES_ONLY = f'fail("{_LOOKED_UP}"); {_PREFIX}'
_UNKNOWN_NAME = re.compile(r"Variable `(.+?)` not found")
# Python can call the functions of a module only by their names there
_CALLER = """
load("{prelude}", "deliver")
load("{file}", {functions})
"""
_CALL = """
def call_{function}(batch, given, decimals, takes_rows):
    return deliver({function}, batch, given, decimals, takes_rows)
"""
_NO_ROWS = '{"columns":[],"rows":[]}'
_LOAD_SECONDS = 10.0
_FRAME = re.compile(r"^  \* (.+?):(\d+), in ", re.MULTILINE)
_ERROR = re.compile(r"^error: (.*?)(?:\n +--> (.+?):(\d+):\d+$|\Z)", re.MULTILINE | re.DOTALL)


class Context(TypedDict):
    """What each function of a file may ask for."""

    batch_number: int
    kind: str
    key_columns: Sequence[str]
    columns: Sequence[Column]
    arguments: Sequence[str]
    clock: NotRequired[Callable[[], float]]
    sleep: NotRequired[Callable[[float], None]]


class PushLibrary:
    """A lib/*.star file, loaded. Several threads may push through it."""

    def __init__(self, source: PushSource, caller: starlark.FrozenModule, files: frozenset[str]) -> None:
        self._source = source
        self._caller = caller
        self._files = files

    @property
    def config(self) -> PushConfig:
        return self._source.config

    def push(self, batch_text: str, *, http: BatchCalls, **context: Unpack[Context]) -> object:
        """What push() returns for the batch; a raise in it is a PushContractError with place and cause."""
        return self._call("push", batch_text, {}, http, context)

    def poll(
        self, job_ref: object, batch_text: str, *, http: BatchCalls, **context: Unpack[Context]
    ) -> object:
        """What poll() returns for the job that push() made of the batch."""
        return self._call("poll", batch_text, {"job_ref": job_ref}, http, context)

    def finalize(self, succeeded: int, failed: int, *, http: BatchCalls, **context: Unpack[Context]) -> None:
        """Tell finalize() how many rows were delivered and how many never will be."""
        self._call("finalize", _NO_ROWS, {"succeeded": succeeded, "failed": failed}, http, context)

    def _call(
        self, function: str, batch_text: str, given: dict[str, object], http: BatchCalls, context: Context
    ) -> object:
        """What one of the file's functions returns, given what it declares."""
        call = PushCall(
            self.config,
            http,
            batch_number=context["batch_number"],
            clock=context.get("clock", time.monotonic),
            sleep=context.get("sleep", time.sleep),
        )
        wanted = self._source.functions[function]
        known = {**self._given(context), **given}
        return self._run(
            function,
            call,
            batch_text,
            {name: value for name, value in known.items() if name in wanted},
            self._decimals(context["columns"]),
            "rows" in wanted,
        )

    def _given(self, context: Context) -> dict[str, object]:
        return {
            "batch_number": context["batch_number"],
            "kind": context["kind"],
            "key_columns": list(context["key_columns"]),
            "columns": [column._asdict() for column in context["columns"]],
            **dict(zip(self.config.push.args, context["arguments"], strict=True)),
        }

    def _decimals(self, columns: Sequence[Column]) -> Mapping[str, Json]:
        if self.config.push.decimals == "string":
            return {}
        return {column.name: places for column in columns if (places := decimal_places(column.type))}

    def _run(self, function: str, call: PushCall, *arguments: object) -> object:
        token = current.set(call)
        try:
            options = starlark.EvalOptions(check_cancelled=call.check_time)
            returned: Any = self._caller.call_with(options, f"call_{function}", *arguments).value
            statuses, other = returned
            return other if statuses is None else orjson.loads(statuses)
        except BaseException as error:
            if not _is_starlarks(error):
                raise
            text = str(error)
        finally:
            current.reset(token)
        # not raised in the handler: Starlark's text may hold secrets, and a traceback shows what led to it
        raise call.raised or self._contract_error(function, text, call)

    def _contract_error(self, function: str, said: str, call: PushCall) -> PushContractError:
        fault = _fault(said, self._files)
        what = fault.what
        if call.is_late:
            limit = self.config.push.time_limit_seconds
            what = f"{function}() computed longer than its time_limit of {limit:g} s and was ended"
        text = f"{fault.file or self.config.file}:{fault.line}: {what}"
        return PushContractError(call.http.redactor.redact(text))


def _is_starlarks(error: BaseException) -> bool:
    """Whether the .star file is to blame: a panic and a result that Python can't hold are its doing too."""
    return isinstance(error, starlark.StarlarkError | TypeError) or type(error).__module__ == "pyo3_runtime"


class _Fault(NamedTuple):
    file: str
    line: int
    what: str


def _fault(text: str, files: frozenset[str]) -> _Fault:
    """Where in the user's files an error is, and what Starlark says of it."""
    found = _ERROR.search(text)
    what = found[1] if found else text
    for prefix in ("fail: ", "WrongUseError: "):
        what = what.removeprefix(prefix)
    places = [(file, int(line)) for file, line in _FRAME.findall(text)]
    if found and found[2]:
        places.append((found[2], int(found[3])))
    file, line = next((place for place in reversed(places) if place[0] in files), ("", 2))
    return _Fault(file, max(line - 1, 1), what.strip())


def load_library(path: Path) -> PushLibrary:
    """The library at lib/NAME.star, its top level run; ProjectError with all that is wrong with it."""
    source, problems = read_source(path, _name(path.parent, path.name))
    if source is None:
        raise ProjectError(problems)
    modules = {_PRELUDE: _prelude()}
    for file in files_of(path):
        needed = {wanted: modules[name] for wanted, name in file.loads.items()}
        try:
            modules[file.name] = _evaluate(file.tree, needed)
        except BaseException as error:
            if not _is_starlarks(error):
                raise
            raise _in_file(str(error), file.name) from error
    caller = starlark.parse("@caller", _caller(source), _dialect())
    return PushLibrary(source, _evaluate(caller, modules), frozenset(modules) - {_PRELUDE})


def _caller(source: PushSource) -> str:
    names = ", ".join(f'"{name}"' for name in source.functions)
    calls = [_CALL.format(function=name) for name in source.functions]
    return "".join([_CALLER.format(prelude=_PRELUDE, file=source.config.file, functions=names), *calls])


class LibraryFile(NamedTuple):
    """One file of lib/, parsed but not run."""

    name: str  # lib/NAME.star
    text: str
    tree: starlark.AstModule
    loads: Mapping[str, str]  # what its load()s say → the name of the file they mean


def files_of(path: Path) -> Sequence[LibraryFile]:
    """The file after all that it loads, each once and all inside lib/; ProjectError where that can't be."""
    files: dict[str, LibraryFile] = {}
    _collect(path.parent, path.name, files, ())
    return list(files.values())


def unknown_names(files: Sequence[LibraryFile]) -> Iterator[Problem]:
    """What the files name and nobody defines; nothing of theirs is run."""
    texts = {file.name: file.text for file in files}
    for file in files:
        for load in file.tree.loads():
            loaded = texts.get(file.loads[load.module_id])
            known = exported_names(loaded) if loaded is not None else None
            for name in load.symbols.values():
                if known is not None and name not in known:
                    remedy = correction(name, known, plural="names there")
                    what = f"{load.module_id!r} has no {name!r} to load"
                    yield _place_of_load(file, load.module_id).problem(what, remedy)
        yield from _undefined_name(file)


def _undefined_name(file: LibraryFile) -> Iterator[Problem]:
    """The first name of a file that nothing in it defines."""
    tree = starlark.parse(file.name, _NAMES_ONLY + file.text, _dialect())
    try:
        starlark.eval(starlark.Module(), tree, _globals())
    except starlark.StarlarkError as error:
        fault = _fault(str(error), frozenset({file.name}))
        if found := _UNKNOWN_NAME.match(fault.what):
            what, remedy = f"nothing is called {found[1]!r} here", "define it, or load it from a file of lib/"
            yield _Place(file.name, fault.line).problem(what, remedy)


def _place_of_load(file: LibraryFile, wanted: str) -> "_Place":
    return _Place(file.name, next(n for n, line in enumerate(file.text.splitlines(), 1) if wanted in line))


def _collect(lib: Path, relative: str, files: dict[str, LibraryFile], above: tuple[str, ...]) -> str:
    name = _name(lib, relative)
    if name in files:
        return name
    text = _text(lib / relative, name)
    try:
        tree = starlark.parse(name, _PREFIX + text, _dialect())
    except starlark.StarlarkError as error:
        raise _in_file(str(error), name) from error
    loads = {_PRELUDE: _PRELUDE}
    for wanted in [each.module_id for each in tree.loads() if each.module_id != _PRELUDE]:
        place = _Place(name, next(n for n, line in enumerate(text.splitlines(), 1) if wanted in line))
        loads[wanted] = _collect(lib, _found(lib, wanted, place, (*above, name)), files, (*above, name))
    files[name] = LibraryFile(name, text, tree, loads)
    return name


class _Place(NamedTuple):
    file: str
    line: int

    def problem(self, what: str, remedy: str) -> Problem:
        return Problem(file=self.file, line=self.line, what=what, remedy=remedy)

    def refuse(self, what: str, remedy: str) -> ProjectError:
        return ProjectError([self.problem(what, remedy)])


def _found(lib: Path, wanted: str, place: _Place, open_files: tuple[str, ...]) -> str:
    path = (lib / wanted).resolve()
    if not path.is_relative_to(lib.resolve()) or path.suffix != ".star":
        raise place.refuse(f"{wanted!r} can't be loaded", "load a .star file of lib/ by its name")
    if not path.is_file():
        raise place.refuse(f"there is no {wanted!r} in {lib.name}/", "mend the name in load()")
    relative = path.relative_to(lib.resolve()).as_posix()
    if _name(lib, relative) in open_files:
        raise place.refuse(f"loading {wanted!r} leads back here", "break the circle of load()s")
    return relative


def _text(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError([unreadable(name, error)]) from error


def _name(lib: Path, relative: str) -> str:
    return f"{lib.name}/{relative}"


def _in_file(text: str, name: str) -> ProjectError:
    fault = _fault(text, frozenset({name}))
    what = fault.what.removeprefix("Parse error: ")
    return _Place(name, fault.line).refuse(what, "docs/push-functions.md says what Starlark has")


def _evaluate(
    tree: starlark.AstModule, modules: Mapping[str, starlark.FrozenModule]
) -> starlark.FrozenModule:
    ends_at = time.monotonic() + _LOAD_SECONDS
    options = starlark.EvalOptions(check_cancelled=lambda: time.monotonic() > ends_at)
    module = starlark.Module()
    starlark.eval_with(
        options, module, tree, _globals(), file_loader=starlark.FileLoader(modules.__getitem__)
    )
    return module.freeze()


@functools.cache
def _prelude() -> starlark.FrozenModule:
    module = starlark.Module()
    for name, function in host_functions().items():
        module.add_callable(name, function)
    text = Path(__file__).with_name("prelude.star").read_text(encoding="utf-8")
    starlark.eval(module, starlark.parse(_PRELUDE, text, _dialect()), _globals())
    return module.freeze()


@functools.cache
def _globals() -> starlark.Globals:
    return starlark.Globals.extended_by(
        [starlark.LibraryExtension.StructType, starlark.LibraryExtension.Json]
    )


@functools.cache
def _dialect() -> starlark.Dialect:
    dialect = starlark.Dialect.extended()
    dialect.enable_f_strings = True
    return dialect
