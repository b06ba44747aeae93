"""The one door to an API: sends what push() asks for, tries again where that helps, and never raises into it.

A call's way: prepared (http_request), answered from the journal if it was before a crash, else sent, at most
`retry` times more; its last answer is journalled and counted.
"""

import contextlib
import dataclasses
import itertools
import random as chance
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, Self

import httpx

from ondatra_dagster import interruption
from ondatra_dagster.delivery.http.http_answer import Answer
from ondatra_dagster.delivery.http.http_exchange import Exchange
from ondatra_dagster.delivery.http.http_request import Call, Prepared, RefusedError, RequestBuilder
from ondatra_dagster.delivery.http.http_transport import Connecting
from ondatra_dagster.delivery.http.oauth import TokenSource
from ondatra_dagster.delivery.http.redaction import Redactor
from ondatra_dagster.delivery.http.retry import NO_ANSWER, is_retryable, wait_seconds
from ondatra_dagster.delivery.http.token_grant import NoTokenError, Question
from ondatra_dagster.delivery.journal import Answered, Journal, Slot
from ondatra_dagster.delivery.push.push_config import OAuth2, PushConfig
from ondatra_dagster.errors import SettingsError

_UNAUTHORIZED = 401
_WITH_IDEMPOTENCY_KEY = frozenset({"POST", "PATCH"})


class Turnstile(Protocol):
    """What lets a request through when its turn has come."""

    def turn(self) -> contextlib.AbstractContextManager[Connecting]: ...


@dataclasses.dataclass(slots=True)
class CallLog:
    """What became of the calls of one batch; answers from the journal count as they did the first time."""

    calls: int = 0
    unanswered: int = 0  # without success, and at some try without an answer: may have been done all the same
    outages: int = 0  # ended in no answer, 408, 429 or 5xx
    requests: int = 0  # sent, tries included
    replayed: int = 0  # answered from the journal
    is_answered: bool = False  # at some try: an API may have stored that answer by its idempotency key
    last_status: int | None = None  # of the newest call; 0: no answer

    @property
    def is_outage(self) -> bool:
        """The API is down, as far as this batch could see."""
        return 0 < self.calls == self.outages

    def count(self, answer: Answer) -> None:
        self.last_status = answer.status_code
        self.unanswered += answer.uncertain
        if not answer.refused:
            self.outages += is_retryable(answer.status_code)


class HttpApi:
    """The API of one sink, its connections kept open. Threads may share it, each through its own begin()."""

    def __init__(
        self,
        config: PushConfig,
        *,
        secrets: Callable[[str], str | None],
        rate_limit: Turnstile | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = interruption.sleep,
        clock: Callable[[], float] = time.time,
        random: Callable[[], float] = chance.random,
        token_folder: Path | None = None,
    ) -> None:
        self._values = values = _values(config, secrets)
        self.config = config
        self.redactor = Redactor(values.values())
        self._builder = _builder(config, values)
        self._rate_limit = rate_limit
        self._exchange = Exchange(self.redactor, transport)
        self._sleep = sleep
        self._clock = clock
        self._random = random
        self.tokens: TokenSource | None = None  # None: the credentials are as they are
        if isinstance(config.auth, OAuth2):
            self.tokens = TokenSource(
                config.auth,
                secret=lambda variable: values[variable.name],
                ask=self._ask,
                learn=self.redactor.learn,
                clock=clock,
                folder=token_folder,
            )

    def begin(self, journal: Journal | None = None) -> "BatchCalls":
        """The calls of one batch, or of one go at it."""
        journal = journal or Journal.in_memory(uuid.uuid4().hex)
        journal.begin()
        return BatchCalls(self, journal)

    def close(self) -> None:
        self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def secret(self, name: str) -> str:
        """The value of a variable that the config names."""
        return self._values[name]

    def prepare(self, call: Call) -> Prepared:
        return self._builder.prepare(call)

    def send(self, prepared: Prepared) -> Answer:
        """One try, in its turn; none after Ctrl-C."""
        interruption.check()
        if self._rate_limit is None or not prepared.is_home:
            return self._exchange.send(prepared)
        with self._rate_limit.turn() as connecting:
            return self._exchange.send(prepared, connecting)

    def refusal(self, why: str) -> Answer:
        return self._exchange.refusal(why)

    def without_token(self, why: NoTokenError) -> Answer:
        return self._exchange.without_token(f"not sent: {why}")

    def _ask(self, question: Question) -> Answer:
        """What a token server answers, in the end."""
        try:
            prepared = self._builder.form(*question)
        except RefusedError as error:
            return self.refusal(str(error))
        for tries in itertools.count(1):
            answer = self.send(prepared)
            if answer.refused or not is_retryable(answer.status_code) or tries > self.config.retry:
                break
            self.pause(answer, tries)
        return answer

    def pause(self, answer: Answer, tries: int) -> None:
        """Wait as long as it takes before the next try makes sense."""
        self._sleep(
            wait_seconds(
                tries,
                backoff_seconds=self.config.backoff_seconds,
                retry_after=answer.headers.get("retry-after"),
                now=self._clock(),
                random=self._random,
            )
        )


class BatchCalls:
    """The calls of one batch, in the order in which push() makes them. One thread uses it."""

    def __init__(self, api: HttpApi, journal: Journal) -> None:
        self._api = api
        self._journal = journal
        self.log = CallLog()
        self.redactor = api.redactor
        self.secret = api.secret

    def call(self, call: Call) -> Answer:
        """The final answer; whatever goes wrong is in it."""
        self.log.calls += 1  # first: of one that is cut off nobody knows what became of it
        try:
            prepared = self._api.prepare(call)
        except RefusedError as error:
            answer = self._api.refusal(f"not sent: {error}")
        else:
            answer = self._answer(prepared)
        self.log.count(answer)
        return answer

    def _answer(self, prepared: Prepared) -> Answer:
        slot = self._journal.next_slot(prepared.digest)
        if known := self._journal.answer(slot):
            self.log.replayed += 1
            self.log.is_answered = True
            return Answer(*known)
        answer = self._send(prepared, slot)
        if answer.status_code == _UNAUTHORIZED:
            # nothing was done; after a crash the credentials may be others
            self._journal.note_failure(slot)
        elif answer.status_code != NO_ANSWER:
            # just as push() gets it now: what is masked is another answer
            kept = Answered(
                answer.status_code, answer.text, dict(answer.headers), answer.refused, answer.uncertain
            )
            self._journal.note_answer(slot, kept)
        return answer

    def _send(self, prepared: Prepared, slot: Slot) -> Answer:
        uncertain = self._journal.is_rerun
        for tries in itertools.count(1):
            answer = self._try(prepared, slot)
            # no answer at all, or one that couldn't be taken, leaves open what became of the try
            uncertain = uncertain or (answer.shown_status == NO_ANSWER and not answer.is_unsent)
            if not self._is_worth_another(answer) or tries > self._api.config.retry:
                break
            if answer.status_code != NO_ANSWER:
                self._journal.note_failure(slot)
            self._api.pause(answer, tries)
        return dataclasses.replace(answer, uncertain=True) if uncertain and not answer.ok else answer

    @staticmethod
    def _is_worth_another(answer: Answer) -> bool:
        return is_retryable(answer.status_code) and not (answer.refused or answer.is_unsent)

    def _try(self, prepared: Prepared, slot: Slot) -> Answer:
        """One request; when its token is refused, one more with a new one."""
        tokens = self._api.tokens if prepared.is_home else None
        if tokens is None:
            return self._request(prepared, slot)
        try:
            token = tokens.current()
            answer = self._request(_authorized(prepared, token), slot)
            if answer.status_code != _UNAUTHORIZED:
                return answer
            token = tokens.instead_of(token)
        except NoTokenError as error:
            return self._api.without_token(error)
        self._journal.note_failure(slot)
        return self._request(_authorized(prepared, token), slot)

    def _request(self, prepared: Prepared, slot: Slot) -> Answer:
        self.log.requests += 1
        if prepared.method in _WITH_IDEMPOTENCY_KEY:
            key = self._journal.idempotency_key(slot).encode()
            prepared = prepared.with_header(b"idempotency-key", key)
        answer = self._api.send(prepared)
        self.log.is_answered = self.log.is_answered or answer.status_code != NO_ANSWER
        return answer


def _authorized(prepared: Prepared, token: str) -> Prepared:
    return prepared.with_header(b"authorization", f"Bearer {token}".encode())


def _builder(config: PushConfig, values: Mapping[str, str]) -> RequestBuilder:
    try:
        return RequestBuilder(config, lambda variable: values[variable.name])
    except RefusedError as error:
        what = "look at API's headers and the variables they name"
        raise SettingsError(f"{config.file}: {error}; {what}") from error


def _values(config: PushConfig, secrets: Callable[[str], str | None]) -> dict[str, str]:
    values = {name: secrets(name) for name in config.variables}
    if missing := sorted(name for name, value in values.items() if not value):
        names = ", ".join(missing)
        raise SettingsError(f"{config.file} needs {names}; set it in .env or the environment")
    for name, value in values.items():
        if any("\ud800" <= letter <= "\udfff" for letter in value or ""):  # bytes of the environment
            raise SettingsError(f"{config.file} needs {name}, which is not UTF-8; set it anew")
    return {name: value for name, value in values.items() if value}
