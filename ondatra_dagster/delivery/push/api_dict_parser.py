"""The parser of a .star file's API dict, with its "auth" and "headers". Secrets appear only as names of variables.

request_builder and oauth_tokens use the parsed config.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from ondatra_dagster.delivery.push.literal_parser import (
    InvalidLiteralError,
    LiteralReader,
    ProblemList,
    choice_reader,
    list_reader,
    number_reader,
    pattern_reader,
    raise_unexpected,
    read_duration,
    read_fields,
    read_items,
    read_text,
)
from ondatra_dagster.delivery.push.push_config import (
    BATCH_ERROR_MODES,
    BATCH_MODES,
    CLIENT_AUTHS,
    DECIMAL_FORMATS,
    MAX_API_CONNECTIONS,
    WHOLE_TABLE_SIZE,
    Auth,
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    OAuth2,
    ParamAuth,
    PushConfig,
    PushSettings,
    RateLimitConfig,
    TextOrVariable,
    Variable,
)
from ondatra_dagster.errors import Problem
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.project.settings.read_raw_setting_entries import OAUTH_VARIABLE_PREFIX

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_PATTERN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PROVIDER_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_AUTH_FORMS = (
    '{"env": "KEY"}, alone or with "header" or "param", {"user": {"env": …}, "pass": {"env": …}}, '
    '{"oauth2": {…}} or {"provider": "name"}'
)
_read_header_name = pattern_reader(_HEADER_PATTERN, "the name of a header")
read_variable_name = pattern_reader(NAME_PATTERN, "the name of a variable")


def _read_variable(node: ast.expr, problems: ProblemList) -> Variable:
    if not isinstance(node, ast.Dict):
        raise InvalidLiteralError(
            node, "the file contains a secret", 'name the variable that holds it: {"env": "NAME"}'
        )
    problem_count = len(problems)
    fields = read_fields(node, problems, {"env": read_variable_name}, "a variable")
    if "env" not in fields and len(problems) == problem_count:
        raise InvalidLiteralError(node, "the variable has no name", 'write {"env": "NAME"}')
    return Variable(fields.get("env", ""))


def _read_text_or_variable(node: ast.expr, problems: ProblemList) -> TextOrVariable:
    return _read_variable(node, problems) if isinstance(node, ast.Dict) else read_text(node, problems)


def _pairs_reader(read_name: LiteralReader, place: str) -> LiteralReader:
    def read_pairs(node: ast.expr, problems: ProblemList) -> tuple[tuple[str, TextOrVariable], ...]:
        items = read_items(node, place)
        return tuple((read_name(key, problems), _read_text_or_variable(value, problems)) for key, value in items)

    return read_pairs


def read_auth(node: ast.expr, problems: ProblemList) -> Auth | None:
    """Return the credentials; None if they have a problem, which is then in the list."""
    problem_count = len(problems)
    fields = read_fields(node, problems, AUTH_READERS, '"auth"')
    if len(problems) > problem_count:
        return None
    auth_class = _AUTH_BY_KEYS.get(frozenset(fields))
    if auth_class is None:
        raise InvalidLiteralError(node, '"auth" doesn\'t say how', f"write {_AUTH_FORMS}")
    return auth_class(fields)


def _read_provider(node: ast.expr, problems: ProblemList) -> Variable:
    name = pattern_reader(_PROVIDER_PATTERN, "the name of a provider")(node, problems)
    return Variable(OAUTH_VARIABLE_PREFIX + re.sub(r"[.-]", "_", name).upper())


def _read_token_url(node: ast.expr, problems: ProblemList) -> str:
    text = read_text(node, problems)
    description = "an address like 'https://login.example.com/token', or a path below base_url like '/oauth/token'"
    try:
        parts = urlsplit(text)
    except ValueError:
        raise_unexpected(node, description)
    is_whole = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
    is_path = text.startswith("/") and not text.startswith("//")
    if text != text.strip() or parts.fragment or not (is_whole or is_path):
        raise_unexpected(node, description)
    return text


def _read_scope(node: ast.expr, problems: ProblemList) -> str:
    if isinstance(node, ast.List | ast.Tuple):
        return " ".join(list_reader(read_text)(node, problems))
    return read_text(node, problems)


def _read_oauth2(node: ast.expr, problems: ProblemList) -> OAuth2 | None:
    problem_count = len(problems)
    fields = read_fields(node, problems, OAUTH2_READERS, '"oauth2"')
    if len(problems) > problem_count:
        return None
    for name in ("token_url", "client_id"):
        if name not in fields:
            raise InvalidLiteralError(node, f'"oauth2" has no {name}', f'write "{name}": …')
    if "client_secret" not in fields and "refresh_token" not in fields:
        remedy = 'write "client_secret": {"env": …}, or "refresh_token": {"env": …} for a client without one'
        raise InvalidLiteralError(node, '"oauth2" has no client_secret', remedy)
    return OAuth2(**fields)


OAUTH2_READERS: Mapping[str, LiteralReader] = {
    "token_url": _read_token_url,
    "client_id": _read_text_or_variable,
    "client_secret": _read_variable,
    "refresh_token": _read_variable,
    "scope": _read_scope,
    "client_auth": choice_reader(CLIENT_AUTHS, "places for the client's credentials"),
    "params": _pairs_reader(read_text, '"params"'),
}
AUTH_READERS: Mapping[str, LiteralReader] = {
    "env": read_variable_name,
    "header": _read_header_name,
    "param": read_text,
    "user": _read_text_or_variable,
    "pass": _read_variable,
    "oauth2": _read_oauth2,
    "provider": _read_provider,
}
_AUTH_BY_KEYS: Mapping[frozenset[str], Callable[[Mapping[str, Any]], Auth]] = {
    frozenset({"env"}): lambda fields: BearerAuth(Variable(fields["env"])),
    frozenset({"env", "header"}): lambda fields: HeaderAuth(Variable(fields["env"]), fields["header"]),
    frozenset({"env", "param"}): lambda fields: ParamAuth(Variable(fields["env"]), fields["param"]),
    frozenset({"user", "pass"}): lambda fields: BasicAuth(fields["user"], fields["pass"]),
    frozenset({"oauth2"}): lambda fields: fields["oauth2"],
    frozenset({"provider"}): lambda fields: BearerAuth(fields["provider"]),
}


# the arguments that ondatra passes to a file's functions, in addition to the names in "args"
FUNCTION_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "push": ("rows", "batch_number", "kind", "key_columns", "columns"),
    "poll": ("job_ref", "rows", "batch_number", "kind", "key_columns", "columns"),
    "finalize": ("succeeded", "failed", "kind", "key_columns", "columns"),
}
_RESERVED_NAMES = frozenset(name for names in FUNCTION_PARAMETERS.values() for name in names)
_HOST_PATTERN = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")


def read_api(tree: ast.Module, file: str) -> tuple[PushConfig | None, Sequence[Problem]]:
    """Return the config of the file, or None and all problems of its API dict."""
    name = PurePosixPath(file).stem
    problems = ProblemList(file)
    fields: dict[str, Any] = {}
    try:
        if (node := _find_api_value(tree)) is not None:
            fields = _rename_fields(read_fields(node, problems, API_READERS, "API"))
            _check_token_url(node, fields)
    except InvalidLiteralError as error:
        problems.add_literal(error)
    if problems:
        return None, problems
    defaults = {"name": name, "file": file, "destination": name, "object": name}
    return PushConfig(**defaults | fields), problems


def _check_token_url(node: ast.expr, fields: Mapping[str, Any]) -> None:
    auth = fields.get("auth")
    if isinstance(auth, OAuth2) and auth.token_url.startswith("/") and "base_url" not in fields:
        remedy = "give API a base_url, or write the whole address"
        raise InvalidLiteralError(node, f"token_url is the path {auth.token_url!r}, of no host", remedy)


def parse_api_text(source: str, file: str) -> tuple[PushConfig | None, Sequence[Problem]]:
    """Return the config of a file with this text, or None and all problems of its API dict."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        remedy = "a .star file is written in the grammar of Python"
        return None, [
            Problem(file=file, line=error.lineno or 1, description=f"can't be read: {error.msg}", remedy=remedy)
        ]
    return read_api(tree, file)


def _find_api_value(tree: ast.Module) -> ast.expr | None:
    api_value: ast.expr | None = None
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if statement.value and any(isinstance(target, ast.Name) and target.id == "API" for target in targets):
                api_value = statement.value
    return api_value


def _read_base_url(node: ast.expr, problems: ProblemList) -> str:
    text = read_text(node, problems)
    description = "an address like 'https://api.example.com', without '?', '#' and user"
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        raise_unexpected(node, description)
    if not is_usable or parts.query or parts.fragment or "@" in parts.netloc or text != text.strip():
        raise_unexpected(node, description)
    return text


_read_host = pattern_reader(_HOST_PATTERN, "a host like 'files.example.com' or 'localhost:8080', without 'https://'")


def _read_rate_limit(node: ast.expr, problems: ProblemList) -> RateLimitConfig | None:
    problem_count = len(problems)
    fields = read_fields(node, problems, _RATE_LIMIT_READERS, '"rate_limit"')
    if len(problems) > problem_count:
        return None
    if missing_fields := sorted({"requests", "per"} - set(fields)):
        problem = f'"rate_limit" has no {" and no ".join(missing_fields)}'
        raise InvalidLiteralError(node, problem, 'write {"requests": 100, "per": "10s"}')
    return RateLimitConfig(**_rename_fields(fields))


def _read_args(node: ast.expr, problems: ProblemList) -> tuple[str, ...]:
    names: tuple[str, ...] = list_reader(pattern_reader(NAME_PATTERN, "the name of a parameter"))(node, problems)
    for name in names:
        if name in _RESERVED_NAMES:
            raise InvalidLiteralError(node, f"{name!r} is already a parameter", "name the sink's argument differently")
        if names.count(name) > 1:
            raise InvalidLiteralError(node, f'{name!r} appears twice in "args"', "rename one of them")
    return names


def _read_push(node: ast.expr, problems: ProblemList) -> PushSettings:
    settings = PushSettings(**_rename_fields(read_fields(node, problems, PUSH_READERS, '"push"')))
    if settings.on_batch_error == "bisect" and settings.batch_mode != "atomic":
        problem = f'"on_batch_error": "bisect" is for batches that fail as a whole, and "{settings.batch_mode}"'
        remedy = 'write "batch_mode": "atomic", or leave "on_batch_error" out'
        raise InvalidLiteralError(node, f"{problem} ones don't", remedy)
    return settings


def _rename_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    return {_FIELD_NAMES.get(key, key): value for key, value in values.items()}


# the config fields whose names have a unit, which the keys of API don't have
_FIELD_NAMES = {
    "timeout": "timeout_seconds",
    "backoff": "backoff_seconds",
    "per": "per_seconds",
    "time_limit": "time_limit_seconds",
    "poll_interval": "poll_interval_seconds",
    "poll_timeout": "poll_timeout_seconds",
}
_RATE_LIMIT_READERS: Mapping[str, LiteralReader] = {
    "requests": number_reader(minimum=1, is_whole=True),
    "per": read_duration,
}
PUSH_READERS: Mapping[str, LiteralReader] = {
    "batch_size": number_reader(minimum=WHOLE_TABLE_SIZE, is_whole=True),
    "batch_mode": choice_reader(BATCH_MODES, "batch modes"),
    "max_concurrent": number_reader(minimum=1, maximum=MAX_API_CONNECTIONS, is_whole=True),
    "on_batch_error": choice_reader(BATCH_ERROR_MODES, "ways to continue"),
    "poll_interval": read_duration,
    "poll_timeout": read_duration,
    "max_attempts": number_reader(minimum=1, is_whole=True),
    "args": _read_args,
    "supported_kinds": list_reader(choice_reader(tuple(KINDS), "kinds")),
    "decimals": choice_reader(DECIMAL_FORMATS, "ways to write decimals"),
    "time_limit": read_duration,
}
API_READERS: Mapping[str, LiteralReader] = {
    "base_url": _read_base_url,
    "auth": read_auth,
    "headers": _pairs_reader(_read_header_name, '"headers"'),
    "timeout": number_reader(minimum=0.001),
    "retry": number_reader(minimum=0, is_whole=True),
    "backoff": number_reader(minimum=0),
    "allow_hosts": list_reader(_read_host),
    "env": list_reader(read_variable_name),
    "rate_limit": _read_rate_limit,
    "destination": read_text,
    "object": read_text,
    "push": _read_push,
}
