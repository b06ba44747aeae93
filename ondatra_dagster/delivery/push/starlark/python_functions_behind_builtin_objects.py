"""The Python functions that builtin_objects.star calls: http, env, sleep, print, digests, base64, times and quoting.

A WrongUseError becomes an error in the line of the .star file.
"""

import base64
import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import orjson

from ondatra_dagster import interruption
from ondatra_dagster.delivery.http.api_client import BatchCalls
from ondatra_dagster.delivery.http.request_builder import HttpCall
from ondatra_dagster.delivery.push.push_config import PushConfig
from ondatra_dagster.row_changes import Json

MAX_QUOTED_LENGTH = 1_000_000  # no address is longer, and 100 MB would take a minute
MAX_PATTERN_LENGTH = 1_000


class WrongUseError(Exception):
    """A wrong use of a built-in function by the .star file."""


def describe_type(value: object) -> str:
    """Return a value's type as text, for messages.

    The value itself isn't shown: it may contain secrets, and a part of a secret can't be masked.
    """
    return f"a value of type {type(value).__name__}"


def _require_text(value: object, word: str) -> str:
    if not isinstance(value, str):
        raise WrongUseError(f"{word} takes a string, not {describe_type(value)}")
    return value


def _encode_digest(digest: bytes, encoding: object) -> str:
    if encoding not in ("hex", "base64"):
        raise WrongUseError(f"encoding is {encoding!r}; it can be 'hex' or 'base64'")
    return digest.hex() if encoding == "hex" else base64.b64encode(digest).decode()


def digest_text(name: str, text: object, encoding: object) -> str:
    """Return the digest of the text's UTF-8 bytes; `name` is the algorithm."""
    digest = hashlib.new(name, _require_text(text, name).encode(), usedforsecurity=False).digest()
    return _encode_digest(digest, encoding)


def hmac_sha256(key: object, text: object, encoding: object) -> str:
    """Return the text's HMAC-SHA256 signature."""
    word = "hmac_sha256"
    digest = hmac.digest(_require_text(key, word).encode(), _require_text(text, word).encode(), "sha256")
    return _encode_digest(digest, encoding)


def base64_encode(text: object) -> str:
    return base64.b64encode(_require_text(text, "base64.encode").encode()).decode()


def base64_decode(text: object) -> str:
    """Return the decoded text; raise WrongUseError if `text` isn't base64, or its bytes aren't text."""
    try:
        return base64.b64decode(_require_text(text, "base64.decode"), validate=True).decode()
    except ValueError as error:  # not ASCII, not base64, or not UTF-8 after that
        raise WrongUseError(f"base64.decode: {error}") from error


def url_quote(text: str, safe: object) -> str:
    """Return the text percent-encoded for an address.

    Only the characters in `safe` stay, so slashes don't by default.
    """
    if len(text) > MAX_QUOTED_LENGTH:
        raise WrongUseError(f"url_quote takes a string of at most {MAX_QUOTED_LENGTH:,} characters")
    return quote(text, safe=_require_text(safe, "url_quote"))


def current_time_text() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_time(text: object) -> float:
    """Return an ISO 8601 time as seconds since 1970. A time without an offset is in UTC."""
    try:
        moment = datetime.fromisoformat(_require_text(text, "time.parse"))
    except ValueError as error:
        raise WrongUseError(f"time.parse: {error}") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def format_time(seconds: object, pattern: object = "%Y-%m-%dT%H:%M:%SZ") -> str:
    """Return seconds since 1970 as text, in UTC."""
    if not isinstance(seconds, int | float):
        raise WrongUseError(f"time.format takes seconds since 1970, not {describe_type(seconds)}")
    if len(_require_text(pattern, "time.format")) > MAX_PATTERN_LENGTH:
        raise WrongUseError(f"time.format takes a pattern of at most {MAX_PATTERN_LENGTH:,} characters")
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(str(pattern))
    except (ValueError, OverflowError, OSError) as error:
        raise WrongUseError(f"time.format: {error}") from error


logger = logging.getLogger(__name__)
PRINT_LINES = 100  # of one batch
PRINT_CHARACTERS = 2_000  # of one line
_NO_JSON, _STARLARK_JSON, _PYTHON_JSON = 0, 1, 2


# Starlark's decoder turns integers of more than 64 bits into floats, and gives up at 128 levels
_LONG_INTEGER = re.compile(r"[0-9]{19}")
_MAX_DEPTH = 120
_MAX_BRACKETS = 2_000_000  # 50 MB of brackets would take a minute and gigabytes


# errors that a value can cause in Python's functions; a full disk or Ctrl-C isn't the .star file's fault
_VALUE_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class PushCall:
    """A running call of push(): its HTTP calls, variables and time limit."""

    def __init__(
        self,
        config: PushConfig,
        http: BatchCalls,
        *,
        batch_number: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = interruption.sleep,
    ) -> None:
        self.http = http
        self.raised_error: BaseException | None = None  # an error of ondatra; Starlark passes on only its text
        self.is_over_time_limit = False
        self._config = config
        self._batch_number = batch_number
        self._clock = clock
        self._sleep = sleep
        self._print_count = 0
        self._ends_at = clock() + config.push.time_limit_seconds

    def check_time_limit(self) -> bool:
        """Return whether push() has exceeded its time limit for computing; Starlark calls this very often."""
        self.is_over_time_limit = self._clock() > self._ends_at
        return self.is_over_time_limit

    def call_http(self, method: str, url: object, *fields: Any) -> tuple[int, str, int, Json, Mapping[str, str]]:
        """Make a call; return the answer's status, text, JSON decoder, decoded JSON and headers.

        builtin_objects.star builds the response from these values, and _decode_json() explains the two about JSON.
        `fields` are the other fields of an HttpCall, in their order.
        """
        began_at = self._clock()
        answer = self.http.send_call(HttpCall(method, str(url), *fields))
        self._ends_at += self._clock() - began_at  # waiting for an API isn't computing
        decoding, value = _decode_json(answer.text)
        return answer.status_for_push, answer.text, decoding, value, answer.headers

    def sleep(self, seconds: object) -> None:
        """Wait for some seconds, at most until the time limit: waiting here counts as computing."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise WrongUseError(f"sleep takes seconds, not {describe_type(seconds)}")
        self._sleep(max(min(float(seconds), self._ends_at - self._clock()), 0.0))

    def env(self, name: object) -> str:
        """Return the value of a variable that API's "env" lists."""
        if name not in self._config.env:
            raise WrongUseError(f'env({name!r}) may not be read: name it in API\'s "env"')
        return self.http.secret_value(str(name))

    def print(self, text: str) -> None:
        """Write a line to the run's log, with secrets masked. Too long lines are cut; too many lines are left out."""
        self._print_count += 1
        if self._print_count > PRINT_LINES + 1:
            return
        line = self.http.redactor.redact(text)[:PRINT_CHARACTERS]
        if self._print_count == PRINT_LINES + 1:
            line = f"more than {PRINT_LINES} lines were printed; the rest of this batch is left out"
        logger.info("sink=%s batch=%d %s", self._config.name, self._batch_number, line)


def _decode_json(text: str) -> tuple[int, Json]:
    """Return which decoder gets the JSON text into Starlark, and the value if Python's decoder does.

    Starlark's decoder is used unless it would lose digits. JSON that is nested too deeply or too large isn't
    decoded.
    """
    brackets = text.count("[") + text.count("{")
    if brackets > _MAX_BRACKETS:
        return _NO_JSON, None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _NO_JSON, None
    if brackets > _MAX_DEPTH and _is_deeper(value, _MAX_DEPTH):
        return _NO_JSON, None
    if _LONG_INTEGER.search(text):
        return _PYTHON_JSON, json.loads(text)
    return _STARLARK_JSON, None


def _is_deeper(value: Json, levels: int) -> bool:
    level = [value]
    for _ in range(levels + 1):
        level = [
            member
            for item in level
            if isinstance(item, list | dict)
            for member in (item.values() if isinstance(item, dict) else item)
        ]
    return bool(level)


def _decode_checked_json(text: object) -> tuple[int, Json]:
    if not isinstance(text, str):
        raise WrongUseError(f"json.decode takes a string, not {describe_type(text)}")
    return _decode_json(text)


PURE_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "host_digest": digest_text,
    "host_hmac_sha256": hmac_sha256,
    "host_base64_encode": base64_encode,
    "host_base64_decode": base64_decode,
    "host_url_quote": url_quote,
    "host_now": current_time_text,
    "host_unix": time.time,
    "host_parse_time": parse_time,
    "host_format_time": format_time,
    "host_json": _decode_checked_json,
}
current_call: ContextVar[PushCall | None] = ContextVar("push_call", default=None)


def host_functions() -> Mapping[str, Callable[..., Any]]:
    """Return the functions for builtin_objects.star.

    Those that belong to a call, such as HTTP, use the push() call that runs in this thread.
    """
    call_functions: Mapping[str, Callable[..., Any]] = {
        "host_http": PushCall.call_http,
        "host_sleep": PushCall.sleep,
        "host_env": PushCall.env,
        "host_print": PushCall.print,
    }
    words = {name: _capture_error(function) for name, function in PURE_FUNCTIONS.items()}
    return words | {name: _capture_error(function, needs_call=True) for name, function in call_functions.items()}


def _require_call() -> PushCall:
    """Return the call of push() that runs in this thread; raise WrongUseError if there is none or its time is over."""
    call = current_call.get()
    if call is None:
        raise WrongUseError("http, env, sleep and print work inside push() only")
    if call.check_time_limit():
        raise WrongUseError("the time limit is reached")
    return call


def _capture_error(function: Callable[..., Any], *, needs_call: bool = False) -> Callable[..., Any]:
    """Return the function with its exceptions kept, because Starlark passes on only an exception's text.

    With `needs_call` the function is a method of the current PushCall. An error that no check foresaw, but that a
    value can cause, is shown with the line of the .star file.
    """

    def call_function(*arguments: Any) -> Any:
        try:
            return function(_require_call(), *arguments) if needs_call else function(*arguments)
        except WrongUseError:
            raise
        except _VALUE_ERRORS as error:
            raise WrongUseError(f"this can't be done: {error} ({type(error).__name__})") from error
        except BaseException as error:
            if call := current_call.get():
                call.raised_error = error
            raise

    return call_function
