"""Runs a lib/*.star file: loads it once, then calls its push() for each batch. Only here is Starlark known.

What a file may use is in prelude.star (the words), push_call and push_words (what stands behind them); what
its result means is in batch_modes. It reaches no file but what it loads from lib/, no host but through http.
"""

import functools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import starlark

from ondatra_dagster.changes import Column
from ondatra_dagster.delivery.http_api import BatchCalls
from ondatra_dagster.delivery.push_call import PushCall, current, host_functions
from ondatra_dagster.delivery.push_config import PushConfig
from ondatra_dagster.delivery.push_source import PushSource, read_source
from ondatra_dagster.errors import Problem, ProjectError, PushContractError

_PRELUDE = "@ondatra"
_WORDS = (
    *("print", "sleep", "env", "http", "time", "base64", "url_quote"),
    *("md5", "sha1", "sha256", "sha512", "hmac_sha256"),
)
# stands as one line before a file's own, so lines in messages are one too high
_PREFIX = f'load("{_PRELUDE}", {", ".join(map(repr, _WORDS))})\n'.replace("'", '"')
_CALLER = """
load("{prelude}", "deliver")
load("{file}", "push")
def call(batch, given, decimals, takes_rows):
    return deliver(push, batch, given, decimals, takes_rows)
"""
_LOAD_SECONDS = 10.0
_FRAME = re.compile(r"^  \* (.+?):(\d+), in ", re.MULTILINE)
_ERROR = re.compile(r"^error: (.*?)(?:\n +--> (.+?):(\d+):\d+$|\Z)", re.MULTILINE | re.DOTALL)


class PushLibrary:
    """A lib/*.star file, loaded. Several threads may push through it."""

    def __init__(self, source: PushSource, caller: starlark.FrozenModule, files: frozenset[str]) -> None:
        self._source = source
        self._caller = caller
        self._files = files

    @property
    def config(self) -> PushConfig:
        return self._source.config

    def push(
        self,
        batch_text: str,
        *,
        batch_number: int,
        kind: str,
        key_columns: Sequence[str],
        columns: Sequence[Column],
        arguments: Sequence[str],
        http: BatchCalls,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> object:
        """What push() returns for the batch; a raise in it is a PushContractError with place and cause."""
        given = {
            "batch_number": batch_number,
            "kind": kind,
            "key_columns": list(key_columns),
            "columns": [column._asdict() for column in columns],
            **dict(zip(self.config.push.args, arguments, strict=True)),
        }
        call = PushCall(self.config, http, batch_number=batch_number, clock=clock, sleep=sleep)
        return self._run(
            call,
            batch_text,
            {name: value for name, value in given.items() if name in self._source.parameters},
            self._decimals(columns),
            "rows" in self._source.parameters,
        )

    def _decimals(self, columns: Sequence[Column]) -> list[str]:
        if self.config.push.decimals == "string":
            return []
        return [column.name for column in columns if column.type.startswith("decimal")]

    def _run(self, call: PushCall, *arguments: object) -> object:
        token = current.set(call)
        try:
            options = starlark.EvalOptions(check_cancelled=call.check_time)
            return self._caller.call_with(options, "call", *arguments).value
        except starlark.StarlarkError as error:
            if call.raised is None:
                raise self._contract_error(str(error), call) from error
        finally:
            current.reset(token)
        raise call.raised  # Starlark's error is only its echo

    def _contract_error(self, text: str, call: PushCall) -> PushContractError:
        fault = _fault(text, self._files)
        what = fault.what
        if call.is_late:
            limit = self.config.push.time_limit_seconds
            what = f"push() computed longer than its time_limit of {limit:g} s and was ended"
        return PushContractError(call.http.redact(f"{fault.file or self.config.file}:{fault.line}: {what}"))


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
    source = _checked(path)
    loading = _Loading(path.parent)
    loading.load(path.name)
    file = source.config.file
    caller = _evaluated(
        "@caller", _CALLER.format(prelude=_PRELUDE, file=file), loading.modules | {_PRELUDE: _prelude()}
    )
    return PushLibrary(source, caller, frozenset(loading.modules))


def check_library(path: Path) -> tuple[PushConfig | None, Sequence[Problem]]:
    """The config of lib/NAME.star, or None and all that is wrong with the file; doesn't run it."""
    source, problems = read_source(path, _name(path, path.parent))
    if source is None:
        return None, problems
    try:
        _Loading(path.parent).parse(path.name)
    except ProjectError as error:
        return None, error.problems
    return source.config, ()


def _checked(path: Path) -> PushSource:
    source, problems = read_source(path, _name(path, path.parent))
    if source is None:
        raise ProjectError(problems)
    return source


def _name(path: Path, lib: Path) -> str:
    return f"{lib.name}/{path.relative_to(lib).as_posix()}"


class _Loading:
    """Loads a file after those that it loads, each once, all of them inside lib/."""

    def __init__(self, lib: Path) -> None:
        self._lib = lib
        self._open: list[str] = []
        self.modules: dict[str, starlark.FrozenModule] = {}

    def parse(self, name: str) -> tuple[str, starlark.AstModule]:
        path = self._lib / name
        file = _name(path, self._lib)
        try:
            tree = starlark.parse(file, _PREFIX + path.read_text(encoding="utf-8"), _dialect())
        except (OSError, UnicodeDecodeError) as error:
            raise _refusal(file, 1, f"can't be read: {error}", "make it a readable UTF-8 file") from error
        except starlark.StarlarkError as error:
            raise _in_file(str(error), file) from error
        return file, tree

    def load(self, name: str) -> starlark.FrozenModule:
        file, tree = self.parse(name)
        if file in self.modules:
            return self.modules[file]
        self._open.append(file)
        needed = {_PRELUDE: _prelude()}
        for wanted in (each.module_id for each in tree.loads()):
            if wanted != _PRELUDE:
                needed[wanted] = self._load_for(file, wanted)
        self._open.pop()
        try:
            self.modules[file] = _evaluate(tree, needed)
        except starlark.StarlarkError as error:
            raise _in_file(str(error), file) from error
        return self.modules[file]

    def _load_for(self, file: str, wanted: str) -> starlark.FrozenModule:
        path = (self._lib / wanted).resolve()
        line = self._line_of(file, wanted)
        if not path.is_relative_to(self._lib.resolve()) or path.suffix != ".star":
            raise _refusal(file, line, f"{wanted!r} can't be loaded", "load a .star file of lib/ by its name")
        if not path.is_file():
            raise _refusal(file, line, f"there is no {wanted!r} in lib/", "mend the name in load()")
        name = path.relative_to(self._lib.resolve()).as_posix()
        if _name(self._lib / name, self._lib) in self._open:
            raise _refusal(file, line, f"loading {wanted!r} leads back here", "break the circle of load()s")
        return self.load(name)

    def _line_of(self, file: str, wanted: str) -> int:
        lines = (self._lib.parent / file).read_text(encoding="utf-8").splitlines()
        return next((number for number, line in enumerate(lines, start=1) if wanted in line), 1)


def _refusal(file: str, line: int, what: str, remedy: str) -> ProjectError:
    return ProjectError([Problem(file=file, line=line, what=what, remedy=remedy)])


def _in_file(text: str, file: str) -> ProjectError:
    fault = _fault(text, frozenset({file}))
    return _refusal(file, fault.line, fault.what, "docs/push-functions.md says what Starlark has")


def _evaluated(name: str, text: str, modules: Mapping[str, starlark.FrozenModule]) -> starlark.FrozenModule:
    return _evaluate(starlark.parse(name, text, _dialect()), modules)


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
