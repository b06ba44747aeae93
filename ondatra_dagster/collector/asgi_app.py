"""The collector's ASGI application. A request is answered with 202 only when its events are durable.

`http_messages` checks a request's headers and body, `model_routes` its path, `event_to_row_parser` its events.
"""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import orjson

from ondatra_dagster.collector.event_intake_and_model_reload import RETRY_AFTER_SECONDS, Collector
from ondatra_dagster.collector.event_store import EventRequest, StoreResult
from ondatra_dagster.collector.http_messages import (
    JSON_HEADERS,
    METRICS_HEADERS,
    PREFLIGHT_HEADERS,
    CollectorResponse,
    Headers,
    HostCheck,
    Receive,
    RequestHeaders,
    RequestRejectedError,
    Scope,
    accepted_response,
    check_content_type,
    check_origin,
    check_token,
    cors_headers,
    read_body,
    read_idempotency_key,
    retry_later_error,
)
from ondatra_dagster.collector.json_value_parsers import ParseNotes
from ondatra_dagster.collector.model_routes import COLLECT_SEGMENT, ModelRoute
from ondatra_dagster.errors import DiskFullError, StateError
from ondatra_dagster.project.settings.read_settings_and_defaults import EventSettings

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

READ_METHODS = ("GET", "HEAD")
ALLOW_READ_HEADERS: Headers = ((b"allow", b"GET, HEAD"),)
ALLOW_POST_HEADERS: Headers = ((b"allow", b"POST, OPTIONS"),)
MAX_LISTED_PROBLEMS = 1000  # problems in one response


class CollectorApp:
    """An ASGI application that answers the requests to a collector."""

    def __init__(self, collector: Collector, settings: EventSettings, *, token: str | None) -> None:
        self._collector = collector
        self._settings = settings
        self._counts = collector.counts
        self._token = token
        self._host_check = HostCheck(settings, has_token=token is not None)
        self._endpoints = {"/health": self._respond_health, "/metrics": self._respond_metrics}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: RequestHeaders = dict(scope["headers"])
        try:
            answer = await self._respond(scope["method"], scope["path"], headers, receive)
        except RequestRejectedError as error:
            answer = error.response
        if answer is None:  # the client has disconnected, so there is nothing to send
            return
        if answer.reason:
            self._counts.refused_requests[answer.reason] += 1
        await _send_response(send, answer, cors_headers(headers, self._settings) if b"origin" in headers else ())

    async def _respond(
        self, method: str, path: str, headers: RequestHeaders, receive: Receive
    ) -> CollectorResponse | None:
        self._host_check.check_host(headers)
        if method == "POST":
            check_origin(headers, self._settings)
            route = self._find_route(path, headers)
            return await self._receive_events(route, headers, receive)
        page = self._endpoints.get(path)
        if page and method in READ_METHODS:
            return await page(headers)
        if method == "OPTIONS" and path.startswith(f"/{COLLECT_SEGMENT}/"):
            return CollectorResponse(204, headers=PREFLIGHT_HEADERS if self._settings.origins else ())
        allow_headers = ALLOW_READ_HEADERS if page else ALLOW_POST_HEADERS
        sentence = f"{method} isn't accepted here; {'GET it' if page else 'POST events'}"
        raise RequestRejectedError(405, "method", sentence, allow_headers)

    def _find_route(self, path: str, headers: RequestHeaders) -> ModelRoute:
        """Return the route of a request's path; refuse the request for every reason that doesn't need its events."""
        if path in self._endpoints:
            raise RequestRejectedError(405, "method", "POST isn't accepted here; GET it", ALLOW_READ_HEADERS)
        check_token(headers, self._token)
        route = self._collector.routes.find_route(path)
        check_content_type(headers)
        if refusal := self._collector.backpressure.check_limits():
            raise refusal
        return route

    async def _receive_events(
        self, route: ModelRoute, headers: RequestHeaders, receive: Receive
    ) -> CollectorResponse | None:
        body = await read_body(headers, receive, self._settings)
        if body is None:
            return None
        events = route.parser.count_if_all_valid(body, is_batch=route.is_batch)
        if events is None:
            events = _parse_and_validate(route, body)
        key = read_idempotency_key(headers) if b"idempotency-key" in headers else None
        if not events:
            return accepted_response(0)
        request = EventRequest(route.model.id, int(time.time() * 1_000_000), events, body, key)
        return await self._store_request(request)

    async def _store_request(self, request: EventRequest) -> CollectorResponse:
        try:
            result = await self._collector.store_request(request)
        except DiskFullError:
            raise retry_later_error("disk", "the disk is full; send it later", RETRY_AFTER_SECONDS) from None
        except StateError as error:
            raise RequestRejectedError(503, "file", str(error), ((b"retry-after", b"30"),)) from None
        if result is StoreResult.KEY_CONFLICT:
            raise RequestRejectedError(409, "key", "this Idempotency-Key was used with another body; use a new one")
        counts_by_model = self._counts.accepted_events if result is StoreResult.NEW else self._counts.repeated_events
        counts_by_model[request.model] += request.events
        self._counts.received_bytes += len(request.body)
        return accepted_response(request.events)

    async def _respond_health(self, _headers: RequestHeaders) -> CollectorResponse:
        is_well, health = self._collector.check_health()
        return CollectorResponse(200 if is_well else 503, orjson.dumps(health), JSON_HEADERS)

    async def _respond_metrics(self, headers: RequestHeaders) -> CollectorResponse:
        check_token(headers, self._token)
        return CollectorResponse(200, (await self._collector.collect_metrics()).encode(), METRICS_HEADERS)


def _parse_and_validate(route: ModelRoute, body: bytes) -> int:
    """Return how many events the body has; refuse all of them if one is invalid."""
    try:
        events = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestRejectedError(400, "json", f"the body isn't JSON: {error}") from None
    if not route.is_batch:
        events = [events]
    elif type(events) is not list:
        raise RequestRejectedError(400, "json", "a batch is an array of events: [{…}, …]")
    notes = ParseNotes()
    for index, event in enumerate(events):
        notes.index = index
        route.parser.parse_event(event, notes)
    if problems := notes.problems:
        fields = f"{len(problems)} fields" if len(problems) > 1 else "a field"
        listed_problems, unlisted_count = problems[:MAX_LISTED_PROBLEMS], len(problems) - MAX_LISTED_PROBLEMS
        details: dict[str, Any] = (
            {"errors": listed_problems, "more": unlisted_count} if unlisted_count > 0 else {"errors": listed_problems}
        )
        raise RequestRejectedError(400, "invalid", f"{fields} can't be accepted; nothing was stored", **details)
    return len(events)


async def _send_response(send: Send, answer: CollectorResponse, more_headers: Headers) -> None:
    length = (b"content-length", str(len(answer.body)).encode())
    headers = [*answer.headers, *more_headers] if answer.status == 204 else [*answer.headers, length, *more_headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
