"""The HTTP door, an ASGI application: each request gets an answer, and 202 only when its events are durable.

What is wrong with a request is told by requests, with its path by ways, with its events by event_reader.
"""

import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Protocol, TypeAlias

import orjson

from ondatra_dagster.collector.answers import JSON, TEXT, Answer, Headers, refused, taken, too_many, unfit
from ondatra_dagster.collector.event_file import Intake, Taken
from ondatra_dagster.collector.event_reader import Reading
from ondatra_dagster.collector.host_check import HostCheck, check_origin
from ondatra_dagster.collector.limits import LATER_SECONDS
from ondatra_dagster.collector.metrics import Counts
from ondatra_dagster.collector.requests import (
    PREFLIGHT,
    Receive,
    RefusedError,
    RequestHeaders,
    Scope,
    body_of,
    check_format,
    check_token,
    key_of,
    origin_headers,
)
from ondatra_dagster.collector.ways import COLLECT, Way, Ways
from ondatra_dagster.errors import FullError, StateError
from ondatra_dagster.project.settings.event_settings import EventSettings

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LOOKS = ("GET", "HEAD")
LOOK_ONLY: Headers = ((b"allow", b"GET, HEAD"),)


class Desk(Protocol):
    """What the door hands events to, and asks how things stand."""

    @property
    def ways(self) -> Ways: ...
    def refusal(self) -> Answer | None:
        """Why nothing is taken now."""

    async def take(self, intake: Intake) -> Taken:
        """Keep events; they are durable when it returns."""

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether events can be taken, and how it stands."""

    async def metrics(self) -> str: ...


class Door:
    """Answers requests."""

    def __init__(
        self,
        desk: Desk,
        settings: EventSettings,
        counts: Counts,
        *,
        token: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._desk = desk
        self._settings = settings
        self._counts = counts
        self._token = token
        self._host_check = HostCheck(settings, has_token=token is not None)
        self._clock = clock
        self._pages = {"/health": self._health, "/metrics": self._metrics}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: RequestHeaders = dict(scope["headers"])
        try:
            answer = await self._answer(scope["method"], scope["path"], headers, receive)
        except RefusedError as error:
            answer = error.answer
        if answer is None:  # nobody is there to hear it
            return
        if answer.reason:
            self._counts.refused[answer.reason] += 1
        await _send(send, answer, origin_headers(headers, self._settings) if b"origin" in headers else ())

    async def _answer(
        self, method: str, path: str, headers: RequestHeaders, receive: Receive
    ) -> Answer | None:
        self._host_check.check(headers)
        if method == "POST":
            check_origin(headers, self._settings)
            way = self._way(path, headers)
            return await self._collect(way, headers, receive)
        page = self._pages.get(path)
        if page and method in LOOKS:
            return await page(headers)
        if method == "OPTIONS" and path.startswith(f"/{COLLECT}/"):
            return Answer(204, headers=PREFLIGHT if self._settings.origins else ())
        may = "GET, HEAD" if page else "POST, OPTIONS"
        sentence = f"{method} isn't taken here; {'GET it' if page else 'POST events'}"
        return refused(405, "method", sentence, ((b"allow", may.encode()),))

    def _way(self, path: str, headers: RequestHeaders) -> Way:
        """Where the request leads; refuses what gets no further for anything but its events."""
        if path in self._pages:
            raise RefusedError(refused(405, "method", "POST isn't taken here; GET it", LOOK_ONLY))
        check_token(headers, self._token)
        way = self._desk.ways.find(path)
        if isinstance(way, Answer):
            raise RefusedError(way)
        check_format(headers)
        if refusal := self._desk.refusal():
            raise RefusedError(refusal)
        return way

    async def _collect(self, way: Way, headers: RequestHeaders, receive: Receive) -> Answer | None:
        body = await body_of(headers, receive, self._settings)
        if body is None:
            return None
        events = _judged(way, body)
        key = key_of(headers) if b"idempotency-key" in headers else None
        if not events:
            return taken(0)
        intake = Intake(way.model.id, int(self._clock() * 1_000_000), events, body, key)
        return await self._keep(intake)

    async def _keep(self, intake: Intake) -> Answer:
        try:
            end = await self._desk.take(intake)
        except FullError:
            return too_many("disk", "the disk is full; send it later", LATER_SECONDS)
        except StateError as error:
            return refused(503, "file", str(error), ((b"retry-after", b"30"),))
        if end is Taken.OTHER_BODY:
            return refused(409, "key", "this Idempotency-Key came with another body before; take a new one")
        counted = self._counts.accepted if end is Taken.NEW else self._counts.repeated
        counted[intake.model] += intake.events
        self._counts.bytes += len(intake.body)
        return taken(intake.events)

    async def _health(self, _headers: RequestHeaders) -> Answer:
        is_well, told = self._desk.health()
        return Answer(200 if is_well else 503, orjson.dumps(told), JSON)

    async def _metrics(self, headers: RequestHeaders) -> Answer:
        check_token(headers, self._token)
        return Answer(200, (await self._desk.metrics()).encode(), TEXT)


def _judged(way: Way, body: bytes) -> int:
    """How many events the body holds; refuses all of them when one can't be taken."""
    events = way.reader.quick_look(body, is_batch=way.is_batch)
    return _judged_closely(way, body) if events is None else events


def _judged_closely(way: Way, body: bytes) -> int:
    try:
        came = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RefusedError(refused(400, "json", f"the body is no JSON: {error}")) from None
    if not way.is_batch:
        came = [came]
    elif type(came) is not list:
        raise RefusedError(refused(400, "json", "a batch is an array of events: [{…}, …]"))
    _judge_each(way, came)
    return len(came)


def _judge_each(way: Way, events: Sequence[Any]) -> None:
    reading = Reading()
    for index, event in enumerate(events):
        reading.index = index
        way.reader.read(event, reading)
    if reading.problems:
        raise RefusedError(unfit(reading.problems))


async def _send(send: Send, answer: Answer, more: Headers) -> None:
    length = (b"content-length", str(len(answer.body)).encode())
    headers = [*answer.headers, *more] if answer.status == 204 else [*answer.headers, length, *more]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
