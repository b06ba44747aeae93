"""Reads who a sink is to its API: the "auth" and "headers" of an API dict. Secrets are names of variables.

What is sent for it is in http_request and oauth.
"""

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ondatra_dagster.delivery.push.api_literals import (
    Problems,
    Reader,
    WrongLiteralError,
    expected,
    list_of,
    matching,
    one_of,
    read_fields,
    read_items,
    read_text,
)
from ondatra_dagster.delivery.push.push_config import (
    CLIENT_AUTHS,
    Auth,
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    OAuth2,
    ParamAuth,
    Text,
    Variable,
)
from ondatra_dagster.project.settings.setting_places import OAUTH_TOKENS

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PROVIDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_WAYS = (
    '{"env": "KEY"}, alone or with "header" or "param", {"user": {"env": …}, "pass": {"env": …}}, '
    '{"oauth2": {…}} or {"provider": "name"}'
)

_header_name = matching(_HEADER, "the name of a header")
variable_name = matching(NAME, "the name of a variable")


def _variable(node: ast.expr, problems: Problems) -> Variable:
    if not isinstance(node, ast.Dict):
        raise WrongLiteralError(
            node, "a secret stands in the file", 'name the variable that holds it: {"env": "NAME"}'
        )
    before = len(problems)
    given = read_fields(node, problems, {"env": variable_name}, "a variable")
    if "env" not in given and len(problems) == before:
        raise WrongLiteralError(node, "the variable has no name", 'write {"env": "NAME"}')
    return Variable(given.get("env", ""))


def _text_or_variable(node: ast.expr, problems: Problems) -> Text:
    return _variable(node, problems) if isinstance(node, ast.Dict) else read_text(node, problems)


def read_headers(node: ast.expr, problems: Problems) -> tuple[tuple[str, Text], ...]:
    return tuple(
        (_header_name(key, problems), _text_or_variable(value, problems))
        for key, value in read_items(node, '"headers"')
    )


def read_auth(node: ast.expr, problems: Problems) -> Auth | None:
    """One of the ways; None after a problem that is noted already."""
    before = len(problems)
    given = read_fields(node, problems, _AUTH, '"auth"')
    if len(problems) > before:
        return None
    way = _FORMS.get(frozenset(given))
    if way is None:
        raise WrongLiteralError(node, '"auth" doesn\'t say how', f"write {_WAYS}")
    return way(given)


def _provider(node: ast.expr, problems: Problems) -> Variable:
    name = matching(_PROVIDER, "the name of a provider")(node, problems)
    return Variable(OAUTH_TOKENS + re.sub(r"[.-]", "_", name).upper())


def _token_url(node: ast.expr, problems: Problems) -> str:
    text = read_text(node, problems)
    what = "an address like 'https://login.example.com/token', or a path below base_url like '/oauth/token'"
    try:
        parts = urlsplit(text)
    except ValueError:
        expected(node, what)
    is_whole = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
    is_path = text.startswith("/") and not text.startswith("//")
    if text != text.strip() or parts.fragment or not (is_whole or is_path):
        expected(node, what)
    return text


def _scope(node: ast.expr, problems: Problems) -> str:
    if isinstance(node, ast.List | ast.Tuple):
        return " ".join(list_of(read_text)(node, problems))
    return read_text(node, problems)


def _params(node: ast.expr, problems: Problems) -> tuple[tuple[str, Text], ...]:
    return tuple(
        (read_text(key, problems), _text_or_variable(value, problems))
        for key, value in read_items(node, '"params"')
    )


def _oauth2(node: ast.expr, problems: Problems) -> OAuth2 | None:
    before = len(problems)
    given = read_fields(node, problems, _OAUTH2, '"oauth2"')
    if len(problems) > before:
        return None
    for name in ("token_url", "client_id"):
        if name not in given:
            raise WrongLiteralError(node, f'"oauth2" has no {name}', f'write "{name}": …')
    if "client_secret" not in given and "refresh_token" not in given:
        remedy = 'write "client_secret": {"env": …}, or "refresh_token": {"env": …} for a client without one'
        raise WrongLiteralError(node, '"oauth2" has no client_secret', remedy)
    return OAuth2(**given)


_OAUTH2: Mapping[str, Reader] = {
    "token_url": _token_url,
    "client_id": _text_or_variable,
    "client_secret": _variable,
    "refresh_token": _variable,
    "scope": _scope,
    "client_auth": one_of(CLIENT_AUTHS, "places for the client's credentials"),
    "params": _params,
}
_AUTH: Mapping[str, Reader] = {
    "env": variable_name,
    "header": _header_name,
    "param": read_text,
    "user": _text_or_variable,
    "pass": _variable,
    "oauth2": _oauth2,
    "provider": _provider,
}
_FORMS: Mapping[frozenset[str], Callable[[Mapping[str, Any]], Auth]] = {
    frozenset({"env"}): lambda given: BearerAuth(Variable(given["env"])),
    frozenset({"env", "header"}): lambda given: HeaderAuth(Variable(given["env"]), given["header"]),
    frozenset({"env", "param"}): lambda given: ParamAuth(Variable(given["env"]), given["param"]),
    frozenset({"user", "pass"}): lambda given: BasicAuth(given["user"], given["pass"]),
    frozenset({"oauth2"}): lambda given: given["oauth2"],
    frozenset({"provider"}): lambda given: BearerAuth(given["provider"]),
}
AUTH_KEYS = tuple(_AUTH)
OAUTH2_KEYS = tuple(_OAUTH2)
