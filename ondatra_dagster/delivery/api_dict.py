"""Reads the API dict of a lib/*.star file, which is literals only, without running the file.

Each key has one reader in a table; a reader takes the literal's syntax tree, so that every problem has its own line.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NoReturn, TypeAlias
from urllib.parse import urlsplit

from ondatra_dagster.delivery.push_config import (
    BATCH_MODES,
    DECIMALS,
    Auth,
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    ParamAuth,
    PushConfig,
    PushSettings,
    RateLimitConfig,
    Text,
    Variable,
)
from ondatra_dagster.errors import Problem
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.suggestions import correction

# what the engine hands to push() by itself; the names in "args" stand beside them
PUSH_PARAMETERS = ("rows", "batch_number", "kind", "key_columns", "columns")

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Wrong(Exception):  # noqa: N818  # not an error that anybody sees: it carries a problem up to its dict
    def __init__(self, node: ast.AST, what: str, remedy: str) -> None:
        super().__init__(what)
        self.line: int = getattr(node, "lineno", 1)
        self.what = what
        self.remedy = remedy


Reader: TypeAlias = Callable[[ast.expr, "_Problems"], Any]


class _Problems(list[Problem]):
    """Everything that is wrong in one file."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def add(self, wrong: _Wrong) -> None:
        self.append(Problem(file=self.file, line=wrong.line, what=wrong.what, remedy=wrong.remedy))


def read_api(tree: ast.Module, file: str) -> tuple[PushConfig | None, Sequence[Problem]]:
    """The config of the file, or None and everything that is wrong with its API dict."""
    name = PurePosixPath(file).stem
    problems = _Problems(file)
    given: dict[str, Any] = {}
    try:
        if (node := _assigned(tree)) is not None:
            given = _fields(node, problems, _API, "API")
    except _Wrong as wrong:
        problems.add(wrong)
    if problems:
        return None, problems
    defaults = {"name": name, "file": file, "destination": name, "object": name}
    return PushConfig(**defaults | given), problems


def parse_api(source: str, file: str) -> tuple[PushConfig | None, Sequence[Problem]]:
    """read_api() of a file's text."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        remedy = "a .star file is written in the grammar of Python"
        return None, [
            Problem(file=file, line=error.lineno or 1, what=f"can't be read: {error.msg}", remedy=remedy)
        ]
    return read_api(tree, file)


def _assigned(tree: ast.Module) -> ast.expr | None:
    found: ast.expr | None = None
    for statement in tree.body:
        for name, value in _assignments(statement):
            if name == "API":
                found = value
    return found


def _assignments(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                yield target.id, statement.value
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        yield statement.target.id, statement.value


def _fields(node: ast.expr, problems: _Problems, readers: Mapping[str, Reader], where: str) -> dict[str, Any]:
    """The dict's values by the names of the fields they fill; wrong ones are noted and left out."""
    values: dict[str, Any] = {}
    for key, value in _items(node, where):
        try:
            name = _text(key, problems)
            if name not in readers:
                remedy = correction(name, readers, plural="keys here")
                raise _Wrong(key, f"{name!r} is not a key of {where}", remedy)
            if name in values:
                raise _Wrong(key, f"{name!r} stands twice in {where}", "keep one of them")
            values[name] = readers[name](value, problems)
        except _Wrong as wrong:
            problems.add(wrong)
    return {_FIELD_NAMES.get(name, name): value for name, value in values.items()}


def _items(node: ast.expr, where: str) -> Iterator[tuple[ast.expr, ast.expr]]:
    if not isinstance(node, ast.Dict):
        raise _Wrong(node, f"{where} is not a dict of literals", 'write it as {"key": value, …}')
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            raise _Wrong(
                value,
                f"{where} takes in another dict with **",
                "write its keys out: it is read without running",
            )
        yield key, value


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        remedy = (
            'write the value itself: the dict is read without running the file; a secret is {"env": "NAME"}'
        )
        raise _Wrong(node, f"{ast.unparse(node)} is not a literal", remedy) from error


def _expected(node: ast.expr, what: str) -> NoReturn:
    raise _Wrong(node, f"{ast.unparse(node):.80} is not {what}", f"write {what}")


def _text(node: ast.expr, _problems: _Problems) -> str:
    value = _literal(node)
    if not isinstance(value, str) or not value.strip():
        _expected(node, "a text in quotes")
    return value


def _number(*, least: float, whole: bool = False) -> Reader:
    def read(node: ast.expr, _problems: _Problems) -> int | float:
        value = _literal(node)
        kinds = (int,) if whole else (int, float)
        if (
            isinstance(value, bool)
            or not isinstance(value, kinds)
            or not value >= least
            or value == float("inf")
        ):
            _expected(node, f"a {'whole ' if whole else ''}number of at least {least:g}")
        return value

    return read


def _one_of(words: Sequence[str], plural: str) -> Reader:
    def read(node: ast.expr, problems: _Problems) -> str:
        word = _text(node, problems)
        if word not in words:
            raise _Wrong(node, f"{word!r} is not one of the {plural}", correction(word, words, plural=plural))
        return word

    return read


def _list_of(reader: Reader) -> Reader:
    def read(node: ast.expr, problems: _Problems) -> tuple[Any, ...]:
        if not isinstance(node, ast.List | ast.Tuple):
            _expected(node, "a list in brackets")
        return tuple(reader(element, problems) for element in node.elts)

    return read


def _matching(pattern: re.Pattern[str], what: str) -> Reader:
    def read(node: ast.expr, problems: _Problems) -> str:
        text = _text(node, problems)
        if not pattern.fullmatch(text):
            _expected(node, what)
        return text

    return read


def _duration(node: ast.expr, problems: _Problems) -> float:
    match = _DURATION.fullmatch(_text(node, problems).strip())
    seconds = float(match[1]) * _UNIT_SECONDS[match[2]] if match else 0.0
    if not seconds:
        _expected(node, "a duration like '500ms', '10s', '5m' or '1h'")
    return seconds


def _base_url(node: ast.expr, problems: _Problems) -> str:
    text = _text(node, problems)
    what = "an address like 'https://api.example.com', without '?', '#' and user"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        _expected(node, what)
    if not usable or parts.query or parts.fragment or "@" in parts.netloc or text != text.strip():
        _expected(node, what)
    return text


_header_name = _matching(_HEADER, "the name of a header")
_variable_name = _matching(_VARIABLE, "the name of a variable")
_host = _matching(_HOST, "a host like 'files.example.com' or 'localhost:8080', without 'https://'")


def _variable(node: ast.expr, problems: _Problems) -> Variable:
    if not isinstance(node, ast.Dict):
        raise _Wrong(node, "a secret stands in the file", 'name the variable that holds it: {"env": "NAME"}')
    given = _fields(node, problems, {"env": _variable_name}, "a variable")
    if "env" not in given:
        raise _Wrong(node, "the variable has no name", 'write {"env": "NAME"}')
    return Variable(given["env"])


def _text_or_variable(node: ast.expr, problems: _Problems) -> Text:
    return _variable(node, problems) if isinstance(node, ast.Dict) else _text(node, problems)


def _headers(node: ast.expr, problems: _Problems) -> tuple[tuple[str, Text], ...]:
    return tuple(
        (_header_name(key, problems), _text_or_variable(value, problems))
        for key, value in _items(node, '"headers"')
    )


def _auth(node: ast.expr, problems: _Problems) -> Auth | None:
    before = len(problems)
    given = _fields(node, problems, _AUTH, '"auth"')
    if len(problems) > before:
        return None
    match sorted(given):
        case ["env"]:
            return BearerAuth(Variable(given["env"]))
        case ["env", "header"]:
            return HeaderAuth(Variable(given["env"]), given["header"])
        case ["env", "param"]:
            return ParamAuth(Variable(given["env"]), given["param"])
        case ["pass", "user"]:
            return BasicAuth(given["user"], given["pass"])
    remedy = 'write {"env": "KEY"}, with "header" or "param" beside it, or {"user": {"env": …}, "pass": {"env": …}}'
    raise _Wrong(node, '"auth" doesn\'t say how', remedy)


def _rate_limit(node: ast.expr, problems: _Problems) -> RateLimitConfig | None:
    given = _fields(node, problems, _RATE_LIMIT, '"rate_limit"')
    if missing := {"requests", "per_seconds"} - set(given):
        if not problems:
            written = " and ".join(sorted(name.removesuffix("_seconds") for name in missing))
            raise _Wrong(node, f'"rate_limit" has no {written}', 'write {"requests": 100, "per": "10s"}')
        return None
    return RateLimitConfig(**given)


def _args(node: ast.expr, problems: _Problems) -> tuple[str, ...]:
    names: tuple[str, ...] = _list_of(_matching(_VARIABLE, "the name of a parameter"))(node, problems)
    for name in names:
        if name in PUSH_PARAMETERS:
            raise _Wrong(node, f"{name!r} is given to push() anyway", "name the sink's argument differently")
        if names.count(name) > 1:
            raise _Wrong(node, f'{name!r} stands twice in "args"', "give each argument a name of its own")
    return names


def _push(node: ast.expr, problems: _Problems) -> PushSettings:
    return PushSettings(**_fields(node, problems, _PUSH, '"push"'))


# the fields whose name says more than the key: units
_FIELD_NAMES = {
    "timeout": "timeout_seconds",
    "backoff": "backoff_seconds",
    "per": "per_seconds",
    "time_limit": "time_limit_seconds",
}
_AUTH: Mapping[str, Reader] = {
    "env": _variable_name,
    "header": _header_name,
    "param": _text,
    "user": _text_or_variable,
    "pass": _variable,
}
_RATE_LIMIT: Mapping[str, Reader] = {"requests": _number(least=1, whole=True), "per": _duration}
_PUSH: Mapping[str, Reader] = {
    "batch_size": _number(least=1, whole=True),
    "batch_mode": _one_of(BATCH_MODES, "batch modes"),
    "max_attempts": _number(least=1, whole=True),
    "args": _args,
    "supported_kinds": _list_of(_one_of(tuple(KINDS), "kinds")),
    "decimals": _one_of(DECIMALS, "ways to write decimals"),
    "time_limit": _duration,
}
_API: Mapping[str, Reader] = {
    "base_url": _base_url,
    "auth": _auth,
    "headers": _headers,
    "timeout": _number(least=0.001),
    "retry": _number(least=0, whole=True),
    "backoff": _number(least=0),
    "allow_hosts": _list_of(_host),
    "env": _list_of(_variable_name),
    "rate_limit": _rate_limit,
    "destination": _text,
    "object": _text,
    "push": _push,
}
