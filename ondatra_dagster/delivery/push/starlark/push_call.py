"""One call of push(): what its words reach while it runs, how long it may compute, what it may print."""

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import orjson

from ondatra_dagster import interruption
from ondatra_dagster.changes import Json
from ondatra_dagster.delivery.http.http_api import BatchCalls
from ondatra_dagster.delivery.http.http_request import Call
from ondatra_dagster.delivery.push.push_config import PushConfig
from ondatra_dagster.delivery.push.starlark.push_words import WORDS, WrongUseError, named

logger = logging.getLogger(__name__)

PRINT_LINES = 100  # of one batch
PRINT_CHARACTERS = 2_000  # of one line

_NO_JSON, _EASY_JSON, _READ_JSON = 0, 1, 2
# Starlark's decoder makes floats of integers of more than 64 bits, and gives up at 128 levels
_LONG_INTEGER = re.compile(r"[0-9]{19}")
_DEEPEST = 120
_MOST_BRACKETS = 2_000_000  # 50 MB of them would take a minute and gigabytes
# what a value can make of Python's functions; a full disk or Ctrl-C isn't the .star file's doing
_OF_VALUES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class PushCall:
    """What push() can reach during one call, and how it stands with time."""

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
        self.raised: BaseException | None = None  # by us, on its way through Starlark, which loses it
        self.is_late = False
        self._config = config
        self._batch_number = batch_number
        self._clock = clock
        self._sleep = sleep
        self._prints = 0
        self._ends_at = clock() + config.push.time_limit_seconds

    def check_time(self) -> bool:
        """Whether push() has computed for too long; asked all the time."""
        self.is_late = self._clock() > self._ends_at
        return self.is_late

    def call_http(
        self,
        method: str,
        url: object,
        body: str | None,
        data: object,
        params: object,
        headers: object,
        timeout: object,
    ) -> tuple[int, str, int, Json, Mapping[str, str]]:
        """An answer, in the parts of which the prelude builds the response."""
        call = Call(
            method=method, url=str(url), json=body, data=data, params=params, headers=headers, timeout=timeout
        )
        began_at = self._clock()
        answer = self.http.call(call)
        self._ends_at += self._clock() - began_at  # waiting for an API isn't computing
        how, value = _json(answer.text)
        return answer.shown_status, answer.text, how, value, answer.headers

    def sleep(self, seconds: object) -> None:
        """Wait; this counts as computing, so that nobody sleeps past the time limit."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise WrongUseError(f"sleep takes seconds, not {named(seconds)}")
        self._sleep(max(min(float(seconds), self._ends_at - self._clock()), 0.0))

    def env(self, name: object) -> str:
        """The value of a variable that API's "env" lists."""
        if name not in self._config.env:
            raise WrongUseError(f'env({name!r}) may not be read: name it in API\'s "env"')
        return self.http.secret(str(name))

    def print(self, text: str) -> None:
        """A line into the log of the run, without secrets; too many or too long ones are cut."""
        self._prints += 1
        if self._prints > PRINT_LINES + 1:
            return
        line = self.http.redactor.redact(text)[:PRINT_CHARACTERS]
        if self._prints == PRINT_LINES + 1:
            line = f"more than {PRINT_LINES} lines were printed; the rest of this batch's is left out"
        logger.info("sink=%s batch=%d %s", self._config.name, self._batch_number, line)


def _json(text: str) -> tuple[int, Json]:
    """How the answer's JSON gets into Starlark: the short way wherever it loses nothing."""
    brackets = text.count("[") + text.count("{")
    if brackets > _MOST_BRACKETS:
        return _NO_JSON, None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _NO_JSON, None
    if brackets > _DEEPEST and _is_deeper(value, _DEEPEST):
        return _NO_JSON, None
    if _LONG_INTEGER.search(text):
        return _READ_JSON, json.loads(text)
    return _EASY_JSON, None


def _is_deeper(value: Json, levels: int) -> bool:
    level = [value]
    for _ in range(levels + 1):
        level = [
            member
            for each in level
            if isinstance(each, list | dict)
            for member in (each.values() if isinstance(each, dict) else each)
        ]
    return bool(level)


def _checked_json(text: object) -> tuple[int, Json]:
    if not isinstance(text, str):
        raise WrongUseError(f"json.decode takes a text, not {named(text)}")
    return _json(text)


current: ContextVar[PushCall | None] = ContextVar("push_call", default=None)


def host_functions() -> Mapping[str, Callable[..., Any]]:
    """What prelude.star calls; each works on the call of push() that runs in this thread."""
    of_a_call: Mapping[str, Callable[..., Any]] = {
        "host_http": PushCall.call_http,
        "host_sleep": PushCall.sleep,
        "host_env": PushCall.env,
        "host_print": PushCall.print,
    }
    words = {name: _kept(function) for name, function in WORDS.items()}
    words["host_json"] = _kept(_checked_json)
    return words | {name: _in_a_call(function) for name, function in of_a_call.items()}


def _in_a_call(function: Callable[..., Any]) -> Callable[..., Any]:
    def within(*arguments: Any) -> Any:
        call = current.get()
        if call is None:
            raise WrongUseError("http, env, sleep and print work inside of push() only")
        if call.check_time():
            raise WrongUseError("the time is up")
        return function(call, *arguments)

    return _kept(within)


def _kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with what it raises kept: of an exception Starlark hands on no more than its text.

    What comes of a value that nobody thought of is an error of the .star file's line.
    """

    def kept(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except WrongUseError:
            raise
        except _OF_VALUES as error:
            raise WrongUseError(f"this can't be done: {error} ({type(error).__name__})") from error
        except BaseException as error:
            if call := current.get():
                call.raised = error
            raise

    return kept
