"""The Starlark that push functions are written in: its words, how a text is parsed and evaluated."""

import functools
import time
from collections.abc import Mapping
from pathlib import Path

import starlark

from ondatra_dagster.delivery.push.starlark.push_call import host_functions

PRELUDE = "@ondatra"
WORDS = (
    *("print", "sleep", "env", "http", "time", "base64", "url_quote"),
    *("md5", "sha1", "sha256", "sha512", "hmac_sha256"),
)
# Starlark's own words that end the process on some values, and what stands in for them
_COVERED = {"json": "checked_json", "fail": "checked_fail"}
# stands as one line before a file's own, so lines in messages are one too high
PREFIX = "load({})\n".format(
    ", ".join([*(f'"{word}"' for word in (PRELUDE, *WORDS)), *(f'{k} = "{v}"' for k, v in _COVERED.items())])
)
_LOAD_SECONDS = 10.0


def parse(name: str, text: str) -> starlark.AstModule:
    """The text as Starlark reads it; nothing of it is run."""
    return starlark.parse(name, text, _dialect())


def evaluate(tree: starlark.AstModule, modules: Mapping[str, starlark.FrozenModule]) -> starlark.FrozenModule:
    """Run a file's top level, which loads from the modules."""
    ends_at = time.monotonic() + _LOAD_SECONDS
    options = starlark.EvalOptions(check_cancelled=lambda: time.monotonic() > ends_at)
    module = starlark.Module()
    starlark.eval_with(
        options, module, tree, _globals(), file_loader=starlark.FileLoader(modules.__getitem__)
    )
    return module.freeze()


def evaluate_alone(tree: starlark.AstModule) -> None:
    """Run a file's top level up to its first load()."""
    starlark.eval(starlark.Module(), tree, _globals())


@functools.cache
def prelude() -> starlark.FrozenModule:
    """The module of which every file gets its words."""
    module = starlark.Module()
    for name, function in host_functions().items():
        module.add_callable(name, function)
    text = Path(__file__).with_name("prelude.star").read_text(encoding="utf-8")
    starlark.eval(module, parse(PRELUDE, text), _globals())
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
