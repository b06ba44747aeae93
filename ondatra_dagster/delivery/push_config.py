"""What a lib/*.star file says in its API dict, as values. How the text is read is in api_dict.

Secrets aren't here: a config names variables, and whoever opens the connection looks them up.
"""

import dataclasses
from collections.abc import Iterator
from typing import TypeAlias

BATCH_MODES = ("sync",)
DECIMALS = ("string", "number")


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """The name of a variable that holds a secret: {"env": "NAME"}."""

    name: str


Text: TypeAlias = str | Variable


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
    user: Text
    password: Variable


Auth: TypeAlias = BearerAuth | HeaderAuth | ParamAuth | BasicAuth


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitConfig:
    """At most so many requests in any window of that length."""

    requests: int
    per_seconds: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """The "push" part: how rows become calls of push()."""

    batch_size: int = 100
    batch_mode: str = "sync"
    max_attempts: int = 8
    args: tuple[str, ...] = ()
    supported_kinds: tuple[str, ...] = ()  # none: all
    decimals: str = "string"
    time_limit_seconds: float = 300.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig:
    """One sink's API dict; what it leaves out has its default."""

    name: str  # lib/NAME.star
    file: str  # relative to the project, for messages
    destination: str
    object: str
    base_url: str | None = None
    auth: Auth | None = None
    headers: tuple[tuple[str, Text], ...] = ()
    timeout_seconds: float = 30.0
    retry: int = 3  # so up to four requests a call
    backoff_seconds: float = 1.0
    allow_hosts: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    rate_limit: RateLimitConfig | None = None
    push: PushSettings = dataclasses.field(default_factory=PushSettings)

    @property
    def variables(self) -> tuple[str, ...]:
        """Every variable that has to be set for the sink to run, each once."""
        named = [value.name for _, value in self.headers if isinstance(value, Variable)]
        return tuple(dict.fromkeys((*_variables_of(self.auth), *named, *self.env)))


def _variables_of(auth: Auth | None) -> Iterator[str]:
    match auth:
        case BearerAuth(token) | HeaderAuth(token, _) | ParamAuth(token, _):
            yield token.name
        case BasicAuth(user, password):
            if isinstance(user, Variable):
                yield user.name
            yield password.name
