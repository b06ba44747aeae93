"""The configuration of a sink, from the API dict of its lib/*.star file; api_dict_parser reads the text.

The configuration has no secrets. It names variables, whose values the API client reads.
"""

import dataclasses
from collections.abc import Iterator
from typing import TypeAlias

BATCH_MODES = ("sync", "atomic", "async")
BATCH_ERROR_MODES = ("keep", "bisect")
MAX_API_CONNECTIONS = 64  # to one API at once
DECIMAL_FORMATS = ("string", "number")
CLIENT_AUTHS = ("body", "basic")  # where a token server looks for the client's id and secret
WHOLE_TABLE_SIZE = 0  # as a batch size: the whole content in one batch


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """The name of a variable that holds a secret: {"env": "NAME"}."""

    name: str


TextOrVariable: TypeAlias = str | Variable


@dataclasses.dataclass(frozen=True, slots=True)
class BearerAuth:
    token: Variable


@dataclasses.dataclass(frozen=True, slots=True)
class HeaderAuth:
    token: Variable
    header: str


@dataclasses.dataclass(frozen=True, slots=True)
class ParamAuth:
    token: Variable
    param: str


@dataclasses.dataclass(frozen=True, slots=True)
class BasicAuth:
    user: TextOrVariable
    password: Variable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2:
    """The settings of a token server, which gives tokens for a refresh token or for the client's id and secret."""

    token_url: str  # an address, or a path below base_url
    client_id: TextOrVariable
    client_secret: Variable | None = None
    refresh_token: Variable | None = None
    scope: str | None = None
    client_auth: str = "body"
    params: tuple[tuple[str, TextOrVariable], ...] = ()  # more fields for the token server, such as audience


Auth: TypeAlias = BearerAuth | HeaderAuth | ParamAuth | BasicAuth | OAuth2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitConfig:
    """A limit of `requests` requests in any window of `per_seconds` seconds."""

    requests: int
    per_seconds: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """The "push" part of the API dict: how rows become calls of push()."""

    batch_size: int = 100
    batch_mode: str = "sync"
    max_concurrent: int = 1
    on_batch_error: str = "keep"
    poll_interval_seconds: float = 30.0
    poll_timeout_seconds: float = 3600.0  # from the submission, across runs
    max_attempts: int = 8
    args: tuple[str, ...] = ()
    supported_kinds: tuple[str, ...] = ()  # empty: all
    decimals: str = "string"
    time_limit_seconds: float = 300.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig:
    """The configuration of one sink. Keys that its API dict leaves out have their defaults."""

    name: str  # lib/NAME.star
    file: str  # relative to the project, for messages
    destination: str
    object: str
    base_url: str | None = None
    auth: Auth | None = None
    headers: tuple[tuple[str, TextOrVariable], ...] = ()
    timeout_seconds: float = 30.0
    retry: int = 3  # so a call has up to four requests
    backoff_seconds: float = 1.0
    allow_hosts: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    rate_limit: RateLimitConfig | None = None
    push: PushSettings = dataclasses.field(default_factory=PushSettings)
    functions: frozenset[str] = frozenset({"push"})  # those of push, poll and finalize that the file has

    @property
    def variables(self) -> tuple[str, ...]:
        """Return every variable that must be set for the sink to run, each once."""
        auth = [getattr(self.auth, field.name) for field in dataclasses.fields(self.auth)] if self.auth else []
        return tuple(dict.fromkeys((*_variable_names(auth), *_variable_names(self.headers), *self.env)))


def _variable_names(value: object) -> Iterator[str]:
    if isinstance(value, Variable):
        yield value.name
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _variable_names(item)
