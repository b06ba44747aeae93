"""The functions of a lib/*.star file, loaded and callable: push(), poll() and finalize()."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
import starlark

from ondatra_dagster import interruption
from ondatra_dagster.delivery.http.api_client import BatchCalls
from ondatra_dagster.delivery.push.push_config import PushConfig
from ondatra_dagster.delivery.push.push_file_parser import PushFile, parse_push_file
from ondatra_dagster.delivery.push.starlark.library_files import library_file_name, list_library_files
from ondatra_dagster.delivery.push.starlark.parsing_and_evaluation import (
    PRELUDE,
    StarlarkFault,
    evaluate_file,
    is_starlark_error,
    load_prelude,
    parse_file,
    to_project_error,
)
from ondatra_dagster.delivery.push.starlark.python_functions_behind_builtin_objects import PushCall, current_call
from ondatra_dagster.delivery.row_outcome import truncate_message
from ondatra_dagster.errors import ProjectError, PushContractError
from ondatra_dagster.row_changes import Column, Json

NUMBER_PATH = "number"


def find_decimal_paths(type_name: str) -> Json:
    """Return where decimals are in a column of this Spark type; None if the type has no decimals.

    builtin_objects.star reads the result: "number", ["each", …] or ["fields", {name: …}]. A map's keys stay texts,
    as in JSON.
    """
    if type_name.startswith("decimal"):
        return NUMBER_PATH
    outer_type, _, inner_types = type_name.removesuffix(">").partition("<")
    if outer_type == "array":
        return _each_path(find_decimal_paths(inner_types))
    if outer_type == "map":
        return _each_path(find_decimal_paths(list(_split_types(inner_types))[-1]))
    if outer_type == "struct":
        fields = [field_text.partition(":") for field_text in _split_types(inner_types)]
        paths_by_field: Json = {
            name: paths for name, _, field_type in fields if (paths := find_decimal_paths(field_type))
        }
        return ["fields", paths_by_field] if paths_by_field else None
    return None


def _each_path(places: Json) -> Json:
    return ["each", places] if places else None


def _split_types(inner: str) -> Iterator[str]:
    """Yield the types in a text that has commas between them. A comma inside brackets belongs to a type."""
    depth = start = 0
    for position, character in enumerate(inner):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            yield inner[start:position]
            start = position + 1
    yield inner[start:]


# Python can call the functions of a module only by their names in it
_LOAD_TEMPLATE = """
load("{prelude}", "deliver")
load("{file}", {functions})
"""
_CALL_TEMPLATE = """
def call_{function}(batch, given, decimals, takes_rows):
    return deliver({function}, batch, given, decimals, takes_rows)
"""
EMPTY_BATCH = '{"columns":[],"rows":[]}'


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushContext:
    """The values that a file's functions may declare as parameters, for every batch of a sync, and a clock."""

    sync_id: str
    kind: str
    key_columns: Sequence[str]
    arguments: Sequence[str]
    batch_number: int = 0
    columns: Sequence[Column] = ()
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = interruption.sleep


class PushLibrary:
    """A loaded lib/*.star file. Several threads may push through it."""

    def __init__(self, source: PushFile, caller: starlark.FrozenModule, files: frozenset[str]) -> None:
        self._source = source
        self._caller = caller
        self._files = files

    @property
    def config(self) -> PushConfig:
        return self._source.config

    def call_function(
        self,
        function: str,
        batch_text: str,
        own_arguments: Mapping[str, object] = MappingProxyType({}),
        *,
        http: BatchCalls,
        context: PushContext,
    ) -> object:
        """Call push(), poll() or finalize() with the parameters that the function declares; return its result.

        `own_arguments` are those that only this function has. An error in the function becomes a PushContractError
        with place and cause.
        """
        call = PushCall(self.config, http, batch_number=context.batch_number, clock=context.clock, sleep=context.sleep)
        parameters = self._source.function_parameters[function]
        known_arguments = {**self._call_arguments(context), **own_arguments}
        function_arguments = {name: value for name, value in known_arguments.items() if name in parameters}
        decimals = self._decimal_paths(context.columns)
        options = starlark.EvalOptions(check_cancelled=call.check_time_limit)
        token = current_call.set(call)
        try:
            arguments = (batch_text, function_arguments, decimals, "rows" in parameters)
            result: Any = self._caller.call_with(options, f"call_{function}", *arguments).value
            statuses, plain_result = result
            return plain_result if statuses is None else orjson.loads(statuses)
        except BaseException as error:
            if not is_starlark_error(error):
                raise
            text = str(error)
        finally:
            current_call.reset(token)
        # not raised in the handler: Starlark's text may contain secrets, and a traceback would show it
        raise call.raised_error or self._contract_error(function, text, call)

    def _call_arguments(self, context: PushContext) -> dict[str, object]:
        return {
            "batch_number": context.batch_number,
            "kind": context.kind,
            "key_columns": list(context.key_columns),
            "columns": [column._asdict() for column in context.columns],
            **dict(zip(self.config.push.args, context.arguments, strict=True)),
        }

    def _decimal_paths(self, columns: Sequence[Column]) -> Mapping[str, Json]:
        if self.config.push.decimals == "string":
            return {}
        return {column.name: paths for column in columns if (paths := find_decimal_paths(column.type))}

    def _contract_error(self, function: str, error_text: str, call: PushCall) -> PushContractError:
        fault = StarlarkFault.parse_error(error_text, self._files)
        message = fault.message
        if call.is_over_time_limit:
            limit = self.config.push.time_limit_seconds
            message = f"{function}() computed longer than its time_limit of {limit:g} s and was ended"
        file, line = (fault.file, fault.line) if fault.file else (self.config.file, self._line_of(function))
        return PushContractError(truncate_message(call.http.redactor.redact(f"{file}:{line}: {message}")))

    def _line_of(self, function: str) -> int:
        """Return the line where a function begins. It is shown for errors in the function's result."""
        text_before, separator, _ = f"\n{self._source.text}".rpartition(f"\ndef {function}(")
        return text_before.count("\n") + 1 if separator else 1


def load_library(path: Path) -> PushLibrary:
    """Load lib/NAME.star and run its top level; raise ProjectError with all its problems."""
    source, problems = parse_push_file(path, library_file_name(path.parent, path.name))
    if source is None:
        raise ProjectError(problems)
    modules = {PRELUDE: load_prelude()}
    for file in list_library_files(path):
        loaded_modules = {module_id: modules[name] for module_id, name in file.loads.items()}
        try:
            modules[file.name] = evaluate_file(file.tree, loaded_modules)
        except BaseException as error:
            if not is_starlark_error(error):
                raise
            raise to_project_error(error, file.name) from error
    caller = parse_file("@caller", _caller_source(source))
    return PushLibrary(source, evaluate_file(caller, modules), frozenset(modules) - {PRELUDE})


def _caller_source(source: PushFile) -> str:
    names = ", ".join(f'"{name}"' for name in source.function_parameters)
    calls = [_CALL_TEMPLATE.format(function=name) for name in source.function_parameters]
    return "".join([_LOAD_TEMPLATE.format(prelude=PRELUDE, file=source.config.file, functions=names), *calls])
