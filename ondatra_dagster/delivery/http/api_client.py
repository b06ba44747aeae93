"""The HTTP client of one API: it sends the requests of push(), retries where that helps, and never raises into push().

A call is prepared by request_builder. If it was answered before a crash, the journal answers it; else it is
sent, and retried at most `retry` times. Its last answer is journalled and counted.
"""

import contextlib
import dataclasses
import itertools
import random as chance
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

import httpx

from ondatra_dagster import interruption
from ondatra_dagster.delivery.http.connections_with_deadline import (
    ConnectHook,
    DeadlineTransport,
    check_deadline,
    limit_response_time,
)
from ondatra_dagster.delivery.http.oauth_tokens import NoTokenError, TokenRequest, TokenSource
from ondatra_dagster.delivery.http.rate_limit import RateLimit
from ondatra_dagster.delivery.http.redaction import Redactor
from ondatra_dagster.delivery.http.request_builder import HttpCall, PreparedRequest, RequestBuilder, RequestRefusedError
from ondatra_dagster.delivery.http.request_retry_delays import request_retry_seconds
from ondatra_dagster.delivery.http.response_status_and_body_decoding import (
    NO_RESPONSE,
    HttpResponse,
    UnreadableResponseError,
    read_response_text,
)
from ondatra_dagster.delivery.push.push_config import MAX_API_CONNECTIONS, OAuth2, PushConfig
from ondatra_dagster.delivery.response_journal import CallKey, ResponseJournal
from ondatra_dagster.errors import SettingsError

_UNAUTHORIZED = 401


_IDEMPOTENCY_KEY_METHODS = frozenset({"POST", "PATCH"})


_MAX_REASON_LENGTH = 1_000  # in characters; a reason is masked before it is cut, because a part of a secret isn't found


_TIMEOUTS = ("connect", "read", "write", "pool")


@dataclasses.dataclass(slots=True)
class CallCounts:
    """The counts of one batch's calls. An answer from the journal counts as it did when it arrived."""

    calls: int = 0
    unanswered_calls: int = 0  # failed calls that may have taken effect, because an attempt got no answer
    outage_calls: int = 0  # calls that ended with no answer, 408, 429 or 5xx
    is_answered: bool = False  # some attempt was answered; an API may have stored its answer by idempotency key
    last_status: int | None = None  # the status of the newest call; 0 if it got no answer

    @property
    def is_outage(self) -> bool:
        """Return whether the API seems to be down, because every call of this batch was an outage."""
        return 0 < self.calls == self.outage_calls

    def count_response(self, answer: HttpResponse) -> None:
        self.last_status = answer.status_code
        self.unanswered_calls += answer.is_uncertain
        if not answer.is_refused:
            self.outage_calls += answer.is_retryable


class SyncStoppedError(Exception):
    """An error of a call during which its sync was stopped."""


class RetryClock(NamedTuple):
    """The clock and the random numbers that decide when a request is retried."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = interruption.sleep
    random: Callable[[], float] = chance.random


class ApiClient(contextlib.AbstractContextManager["ApiClient"]):
    """The client of one sink's API, with its open connections. Threads share it, each with its own begin_calls()."""

    def __init__(
        self,
        config: PushConfig,
        *,
        secrets: Callable[[str], str | None],
        rate_limit: RateLimit | None = None,
        transport: httpx.BaseTransport | None = None,
        token_folder: Path | None = None,
        retry_clock: RetryClock = RetryClock(),  # noqa: B008 — frozen
    ) -> None:
        self._secrets = values = _load_secrets(config, secrets)
        self.config = config
        self.redactor = Redactor(values.values())
        try:
            self.builder = RequestBuilder(config, lambda variable: values[variable.name])
        except RequestRefusedError as error:
            remedy = "check API's headers and the variables they name"
            raise SettingsError(f"{config.file}: {error}; {remedy}") from error
        self._rate_limit = rate_limit
        self._transport = transport or DeadlineTransport(connections=MAX_API_CONNECTIONS)
        self._is_closed = False
        self._retry_clock = retry_clock
        self.token_source: TokenSource | None = None  # None: the credentials are fixed
        if isinstance(config.auth, OAuth2):
            self.token_source = TokenSource(
                config.auth,
                secret=lambda variable: values[variable.name],
                send_request=self._send_token_request,
                learn=self.redactor.add_secret,
                clock=retry_clock.now,
                folder=token_folder,
            )

    def begin_calls(self, journal: ResponseJournal | None = None) -> "BatchCalls":
        """Return an object that makes the calls of one batch, or of one attempt at a batch."""
        journal = journal or ResponseJournal.in_memory(uuid.uuid4().hex)
        journal.restart_calls()
        return BatchCalls(self, journal)

    def close(self) -> None:
        """Close all connections, also those on which another thread waits for an answer."""
        self._is_closed = True
        self._transport.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def secret_value(self, name: str) -> str:
        """Return the value of a variable that the config names."""
        return self._secrets[name]

    def send_request(self, prepared_request: PreparedRequest) -> HttpResponse:
        """Send the request once, when the rate limit allows it. After Ctrl-C, raise an error instead."""
        interruption.raise_if_interrupted()
        if self._rate_limit is None or not prepared_request.is_to_base_url:
            return self._send_now(prepared_request)
        with self._rate_limit.wait_for_turn() as connect_hook:
            return self._send_now(prepared_request, connect_hook)

    def _send_now(
        self, prepared_request: PreparedRequest, connect_hook: ConnectHook = contextlib.nullcontext
    ) -> HttpResponse:
        """Send the request once; raise SyncStoppedError if the sync was stopped and there is no answer to use."""
        if self._is_closed:
            raise SyncStoppedError
        request = httpx.Request(
            prepared_request.method,
            prepared_request.url,
            headers=list(prepared_request.headers.items()),
            content=prepared_request.content,
            extensions={"timeout": dict.fromkeys(_TIMEOUTS, prepared_request.timeout_seconds)},
        )
        try:
            with limit_response_time(prepared_request.timeout_seconds, connect_hook):
                answer = self._exchange(request)
        except (httpx.LocalProtocolError, UnicodeError) as error:
            answer = self.unsent_response(error, is_refused=True)
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            answer = HttpResponse(NO_RESPONSE, self._mask_reason(f"no answer: {reason} ({type(error).__name__})"))
        if self._is_closed and answer.status_code == NO_RESPONSE:
            raise SyncStoppedError
        return answer

    def _exchange(self, request: httpx.Request) -> HttpResponse:
        response = self._transport.handle_request(request)
        headers = dict(response.headers.items())
        try:
            # not iter_raw(), which refuses the answers of a MockTransport: these are read already
            chunks = cast("httpx.SyncByteStream", response.stream)
            text = read_response_text(chunks, headers, check_time=check_deadline)
            return HttpResponse(response.status_code, text, headers)
        except UnreadableResponseError as error:
            return HttpResponse(response.status_code, self._mask_reason(str(error)), headers, is_refused=True)
        finally:
            response.close()

    def unsent_response(self, error: Exception, *, is_refused: bool) -> HttpResponse:
        """Return the response for a request that wasn't sent.

        Either this client refused the request (`is_refused`), or there was no token, which isn't the rows' fault.
        """
        text = self._mask_reason(f"not sent: {error}")
        return HttpResponse(NO_RESPONSE, text, is_refused=is_refused, is_unsent=not is_refused)

    def _mask_reason(self, reason: str) -> str:
        return self.redactor.redact(reason)[:_MAX_REASON_LENGTH]

    def _send_token_request(self, question: TokenRequest) -> HttpResponse:
        """Request a token, with retries; return the last answer."""
        try:
            request = self.builder.build_form_request(*question)
        except RequestRefusedError as error:
            return HttpResponse(NO_RESPONSE, self._mask_reason(str(error)), is_refused=True)
        for tries in itertools.count(1):
            answer = self.send_request(request)
            if answer.is_refused or not answer.is_retryable or tries > self.config.retry:
                break
            self.wait_before_retry(answer, tries)
        return answer

    def wait_before_retry(self, answer: HttpResponse, tries: int) -> None:
        """Wait for as long as the server asks for, or for the back-off."""
        self._retry_clock.sleep(
            request_retry_seconds(
                tries,
                backoff_seconds=self.config.backoff_seconds,
                retry_after=answer.headers.get("retry-after"),
                now=self._retry_clock.now(),
                random=self._retry_clock.random,
            )
        )


class BatchCalls:
    """The calls of one batch, in the order in which push() makes them. One thread uses it."""

    def __init__(self, api: ApiClient, journal: ResponseJournal) -> None:
        self._api = api
        self._journal = journal
        self.call_counts = CallCounts()
        self.redactor = api.redactor
        self.secret_value = api.secret_value

    def send_call(self, call: HttpCall) -> HttpResponse:
        """Make a call with retries and return its final answer. A failure is returned as an answer, too."""
        self.call_counts.calls += 1  # counted first, because the outcome of an interrupted call is unknown
        try:
            request = self._api.builder.build_request(call)
        except RequestRefusedError as error:
            answer = self._api.unsent_response(error, is_refused=True)
        else:
            call_key = self._journal.next_call_key(request.digest)
            if recorded_answer := self._journal.find_response(call_key):
                self.call_counts.is_answered = True
                answer = recorded_answer
            else:
                answer = self._send_with_retries(request, call_key)
                self._record_response(call_key, answer)
        self.call_counts.count_response(answer)
        return answer

    def _record_response(self, call_key: CallKey, answer: HttpResponse) -> None:
        if answer.status_code == _UNAUTHORIZED:
            # an unauthorized call has done nothing, and after a crash the credentials may be different
            self._journal.record_failure(call_key)
        elif answer.status_code != NO_RESPONSE:
            # unmasked: after a crash, push() must get the same answer as now
            self._journal.record_response(call_key, answer)

    def _send_with_retries(self, prepared_request: PreparedRequest, call_key: CallKey) -> HttpResponse:
        is_uncertain = self._journal.is_rerun
        for tries in itertools.count(1):
            answer = self._send_with_token(prepared_request, call_key)
            # no answer, or an unreadable one, leaves the outcome of the attempt unknown
            is_uncertain = is_uncertain or (answer.status_for_push == NO_RESPONSE and not answer.is_unsent)
            can_retry = answer.is_retryable and not (answer.is_refused or answer.is_unsent)
            if not can_retry or tries > self._api.config.retry:
                break
            if answer.status_code != NO_RESPONSE:
                self._journal.record_failure(call_key)
            self._api.wait_before_retry(answer, tries)
        return dataclasses.replace(answer, is_uncertain=True) if is_uncertain and not answer.is_success else answer

    def _send_with_token(self, prepared_request: PreparedRequest, call_key: CallKey) -> HttpResponse:
        """Send one request; if the API refuses its token, send one more with a new token."""
        tokens = self._api.token_source if prepared_request.is_to_base_url else None
        if tokens is None:
            return self._send_once(prepared_request, call_key)
        try:
            token = tokens.current_token()
            answer = self._send_once(_add_token(prepared_request, token), call_key)
            if answer.status_code != _UNAUTHORIZED:
                return answer
            token = tokens.replace_token(token)
        except NoTokenError as error:
            return self._api.unsent_response(error, is_refused=False)
        self._journal.record_failure(call_key)
        return self._send_once(_add_token(prepared_request, token), call_key)

    def _send_once(self, prepared_request: PreparedRequest, call_key: CallKey) -> HttpResponse:
        if prepared_request.method in _IDEMPOTENCY_KEY_METHODS:
            key = self._journal.idempotency_key(call_key).encode()
            prepared_request = prepared_request.with_header(b"idempotency-key", key)
        answer = self._api.send_request(prepared_request)
        self.call_counts.is_answered = self.call_counts.is_answered or answer.status_code != NO_RESPONSE
        return answer


def _add_token(prepared_request: PreparedRequest, token: str) -> PreparedRequest:
    return prepared_request.with_header(b"authorization", f"Bearer {token}".encode())


def _load_secrets(config: PushConfig, secrets: Callable[[str], str | None]) -> dict[str, str]:
    values = {name: secrets(name) for name in config.variables}
    if missing_names := sorted(name for name, value in values.items() if not value):
        names = ", ".join(missing_names)
        raise SettingsError(f"{config.file} needs {names}; set it in .env or the environment")
    for name, value in values.items():
        # a surrogate: the variable has bytes that aren't UTF-8
        if any("\ud800" <= character <= "\udfff" for character in value or ""):
            raise SettingsError(f"{config.file} needs {name}, which is not UTF-8; set it again")
    return {name: value for name, value in values.items() if value}
