"""What a token server is asked, and what its answer says. Nothing is sent or kept here."""

import base64
import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import quote_plus

import orjson

from ondatra_dagster.clock_jumps import time_that_counts
from ondatra_dagster.delivery.http.http_answer import Answer
from ondatra_dagster.delivery.http.retry import NO_ANSWER, is_retryable
from ondatra_dagster.delivery.push.push_config import OAuth2, Text, Variable

SPARE_SHARE = 0.1  # of a token's life: it has to be good for as long as a request takes
SPARE_SECONDS = 60.0

_TOKEN = re.compile(r"[\x21-\x7e]+")  # what can stand in a header


class NoTokenError(Exception):
    """There is no token to be had; the text says why."""

    def __init__(self, why: str, *, is_passing: bool = False) -> None:
        super().__init__(why)
        self.is_passing = is_passing  # the server may give one later


class Tokens(NamedTuple):
    """What a token server gave."""

    access: str
    expires_at: float | None = None  # by the clock of the wall, less what is spared; None: it didn't say
    refresh: str | None = None  # to be used the next time
    asked_at: float = 0.0  # by the same clock

    def __repr__(self) -> str:
        return f"Tokens(expires_at={self.expires_at})"

    def is_outdated(self, now: float) -> bool:
        if self.expires_at is None:
            return False
        return time_that_counts(self.expires_at, set_at=self.asked_at, now=now) <= now


class Question(NamedTuple):
    """A form that is posted to a token server. It holds secrets."""

    url: str
    form: Mapping[str, str]
    headers: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Question({self.url!r}, {', '.join(self.form)})"


def question(auth: OAuth2, secret: Callable[[Variable], str], refresh: str | None) -> Question:
    """Ask for a token, with the refresh token where there is one."""

    def said(value: Text) -> str:
        return secret(value) if isinstance(value, Variable) else value

    form = {name: said(value) for name, value in auth.params}
    if refresh:
        form |= {"grant_type": "refresh_token", "refresh_token": refresh}
    else:
        form["grant_type"] = "client_credentials"
    if auth.scope:
        form["scope"] = auth.scope
    client_id = said(auth.client_id)
    client_secret = secret(auth.client_secret) if auth.client_secret else None
    if auth.client_auth == "basic" and client_secret:
        return Question(auth.token_url, form, {"authorization": _basic(client_id, client_secret)})
    form["client_id"] = client_id
    if client_secret:
        form["client_secret"] = client_secret
    return Question(auth.token_url, form, {})


def _basic(client_id: str, client_secret: str) -> str:
    # each is quoted as in a form, so that a colon in the id stays one of the id
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def read_tokens(answer: Answer, *, now: float) -> Tokens:
    """The tokens that the answer holds, or NoTokenError."""
    if not answer.ok:
        raise _refusal(answer)
    said = _object(answer.text)
    access, kind, refresh = said.get("access_token"), said.get("token_type"), said.get("refresh_token")
    if not isinstance(access, str) or not _TOKEN.fullmatch(access):
        raise NoTokenError("its answer has no access_token that could be sent")
    if isinstance(kind, str) and kind.casefold() != "bearer":
        raise NoTokenError(f"it gives tokens of the type {kind!r}, but only Bearer tokens can be used")
    return Tokens(access, _end(said.get("expires_in"), now), str(refresh) if refresh else None, now)


def _refusal(answer: Answer) -> NoTokenError:
    if answer.shown_status == NO_ANSWER:
        return NoTokenError(answer.text, is_passing=not answer.refused)
    said = _object(answer.text)
    reason = ", ".join(str(said[name]) for name in ("error", "error_description") if said.get(name))
    why = f"it answered {answer.status_code}" + (f": {reason}" if reason else "")
    return NoTokenError(why, is_passing=is_retryable(answer.status_code))


def _object(text: str) -> Mapping[str, object]:
    """Return the JSON object that the text is; an empty one for all else, such as numbers without an end."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _end(expires_in: object, now: float) -> float | None:
    """Return when to ask for the next token; None: use this one until it is refused."""
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float | str):
        return None
    try:
        seconds = float(expires_in)  # some servers write them as a text
    except (ValueError, OverflowError):
        return None
    if not 0 < seconds < math.inf:
        return None
    return now + seconds - min(SPARE_SECONDS, seconds * SPARE_SHARE)
