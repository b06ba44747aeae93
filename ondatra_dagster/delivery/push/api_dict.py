"""Reads the API dict of a lib/*.star file, which is literals only, without running the file.

Each key has one reader in a table. A reader takes the literal's syntax tree, so a problem has its own line.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from ondatra_dagster.delivery.push.api_auth import NAME, read_auth, read_headers, variable_name
from ondatra_dagster.delivery.push.api_literals import (
    Problems,
    Reader,
    WrongLiteralError,
    expected,
    list_of,
    matching,
    number,
    one_of,
    read_duration,
    read_fields,
    read_text,
)
from ondatra_dagster.delivery.push.push_config import (
    BATCH_MODES,
    CONNECTIONS,
    DECIMALS,
    ON_BATCH_ERROR,
    WHOLE,
    OAuth2,
    PushConfig,
    PushSettings,
    RateLimitConfig,
)
from ondatra_dagster.errors import Problem
from ondatra_dagster.project.kinds import KINDS

# what the engine hands to a file's functions by itself; the names in "args" stand beside them
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "push": ("rows", "batch_number", "kind", "key_columns", "columns"),
    "poll": ("job_ref", "rows", "batch_number", "kind", "key_columns", "columns"),
    "finalize": ("succeeded", "failed", "kind", "key_columns", "columns"),
}
_TAKEN = frozenset(name for names in PARAMETERS.values() for name in names)

_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")


def read_api(tree: ast.Module, file: str) -> tuple[PushConfig | None, Sequence[Problem]]:
    """The config of the file, or None and everything that is wrong with its API dict."""
    name = PurePosixPath(file).stem
    problems = Problems(file)
    given: dict[str, Any] = {}
    try:
        if (node := _assigned(tree)) is not None:
            given = _named(read_fields(node, problems, _API, "API"))
            _check_together(node, given)
    except WrongLiteralError as wrong:
        problems.add(wrong)
    if problems:
        return None, problems
    defaults = {"name": name, "file": file, "destination": name, "object": name}
    return PushConfig(**defaults | given), problems


def _check_together(node: ast.expr, given: Mapping[str, Any]) -> None:
    auth = given.get("auth")
    if isinstance(auth, OAuth2) and auth.token_url.startswith("/") and "base_url" not in given:
        remedy = "give API a base_url, or write the whole address"
        raise WrongLiteralError(node, f"token_url is the path {auth.token_url!r}, of no host", remedy)


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


def _base_url(node: ast.expr, problems: Problems) -> str:
    text = read_text(node, problems)
    what = "an address like 'https://api.example.com', without '?', '#' and user"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        expected(node, what)
    if not usable or parts.query or parts.fragment or "@" in parts.netloc or text != text.strip():
        expected(node, what)
    return text


_host = matching(_HOST, "a host like 'files.example.com' or 'localhost:8080', without 'https://'")


def _rate_limit(node: ast.expr, problems: Problems) -> RateLimitConfig | None:
    before = len(problems)
    given = read_fields(node, problems, _RATE_LIMIT, '"rate_limit"')
    if len(problems) > before:
        return None
    if missing := sorted({"requests", "per"} - set(given)):
        what = f'"rate_limit" has no {" and no ".join(missing)}'
        raise WrongLiteralError(node, what, 'write {"requests": 100, "per": "10s"}')
    return RateLimitConfig(**_named(given))


def _args(node: ast.expr, problems: Problems) -> tuple[str, ...]:
    names: tuple[str, ...] = list_of(matching(NAME, "the name of a parameter"))(node, problems)
    for name in names:
        if name in _TAKEN:
            raise WrongLiteralError(node, f"{name!r} is given anyway", "name the sink's argument differently")
        if names.count(name) > 1:
            raise WrongLiteralError(
                node, f'{name!r} stands twice in "args"', "give each argument a name of its own"
            )
    return names


def _push(node: ast.expr, problems: Problems) -> PushSettings:
    settings = PushSettings(**_named(read_fields(node, problems, _PUSH, '"push"')))
    if settings.on_batch_error == "bisect" and settings.batch_mode != "atomic":
        what = f'"on_batch_error": "bisect" is for batches that fail as a whole, and "{settings.batch_mode}"'
        remedy = 'write "batch_mode": "atomic", or leave "on_batch_error" out'
        raise WrongLiteralError(node, f"{what} ones don't", remedy)
    return settings


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    return {_FIELD_NAMES.get(key, key): value for key, value in values.items()}


# the fields whose names say more than the keys: units
_FIELD_NAMES = {
    "timeout": "timeout_seconds",
    "backoff": "backoff_seconds",
    "per": "per_seconds",
    "time_limit": "time_limit_seconds",
    "poll_interval": "poll_interval_seconds",
    "poll_timeout": "poll_timeout_seconds",
}
_RATE_LIMIT: Mapping[str, Reader] = {"requests": number(least=1, whole=True), "per": read_duration}
_PUSH: Mapping[str, Reader] = {
    "batch_size": number(least=WHOLE, whole=True),
    "batch_mode": one_of(BATCH_MODES, "batch modes"),
    "max_concurrent": number(least=1, most=CONNECTIONS, whole=True),
    "on_batch_error": one_of(ON_BATCH_ERROR, "ways to go on"),
    "poll_interval": read_duration,
    "poll_timeout": read_duration,
    "max_attempts": number(least=1, whole=True),
    "args": _args,
    "supported_kinds": list_of(one_of(tuple(KINDS), "kinds")),
    "decimals": one_of(DECIMALS, "ways to write decimals"),
    "time_limit": read_duration,
}
_API: Mapping[str, Reader] = {
    "base_url": _base_url,
    "auth": read_auth,
    "headers": read_headers,
    "timeout": number(least=0.001),
    "retry": number(least=0, whole=True),
    "backoff": number(least=0),
    "allow_hosts": list_of(_host),
    "env": list_of(variable_name),
    "rate_limit": _rate_limit,
    "destination": read_text,
    "object": read_text,
    "push": _push,
}
API_KEYS = tuple(_API)
PUSH_KEYS = tuple(_PUSH)
