"""A lib/*.star file, loaded once, whose functions are called as often as there are batches.

What a file may use is in prelude.star (the words), push_call and push_words (what stands behind them); what
its result means is in batch_modes. It reaches no file but what it loads from lib/, no host but through http.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict, Unpack

import orjson
import starlark

from ondatra_dagster import interruption
from ondatra_dagster.changes import Column, Json
from ondatra_dagster.delivery.http.http_api import BatchCalls
from ondatra_dagster.delivery.outcome import cut
from ondatra_dagster.delivery.push.push_config import PushConfig
from ondatra_dagster.delivery.push.push_source import PushSource, read_source
from ondatra_dagster.delivery.push.starlark.decimal_places import decimal_places
from ondatra_dagster.delivery.push.starlark.dialect import PRELUDE, evaluate, parse, prelude
from ondatra_dagster.delivery.push.starlark.faults import Fault, is_starlarks, refused_by_starlark
from ondatra_dagster.delivery.push.starlark.library_files import files_of, name_of
from ondatra_dagster.delivery.push.starlark.push_call import PushCall, current
from ondatra_dagster.errors import ProjectError, PushContractError

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
            sleep=context.get("sleep", interruption.sleep),
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
            if not is_starlarks(error):
                raise
            text = str(error)
        finally:
            current.reset(token)
        # not raised in the handler: Starlark's text may hold secrets, and a traceback shows what led to it
        raise call.raised or self._contract_error(function, text, call)

    def _contract_error(self, function: str, said: str, call: PushCall) -> PushContractError:
        fault = Fault.of(said, self._files)
        what = fault.what
        if call.is_late:
            limit = self.config.push.time_limit_seconds
            what = f"{function}() computed longer than its time_limit of {limit:g} s and was ended"
        file, line = (fault.file, fault.line) if fault.file else (self.config.file, self._line_of(function))
        return PushContractError(cut(call.http.redactor.redact(f"{file}:{line}: {what}")))

    def _line_of(self, function: str) -> int:
        """Return where a function begins, for what is wrong with its result."""
        before, found, _ = f"\n{self._source.text}".rpartition(f"\ndef {function}(")
        return before.count("\n") + 1 if found else 1


def load_library(path: Path) -> PushLibrary:
    """The library at lib/NAME.star, its top level run; ProjectError with all that is wrong with it."""
    source, problems = read_source(path, name_of(path.parent, path.name))
    if source is None:
        raise ProjectError(problems)
    modules = {PRELUDE: prelude()}
    for file in files_of(path):
        needed = {wanted: modules[name] for wanted, name in file.loads.items()}
        try:
            modules[file.name] = evaluate(file.tree, needed)
        except BaseException as error:
            if not is_starlarks(error):
                raise
            raise refused_by_starlark(error, file.name) from error
    caller = parse("@caller", _caller(source))
    return PushLibrary(source, evaluate(caller, modules), frozenset(modules) - {PRELUDE})


def _caller(source: PushSource) -> str:
    names = ", ".join(f'"{name}"' for name in source.functions)
    calls = [_CALL.format(function=name) for name in source.functions]
    return "".join([_CALLER.format(prelude=PRELUDE, file=source.config.file, functions=names), *calls])
