"""The server of a fake API on a loopback port. It fails on request, knows idempotency keys, and records each call.

A subclass answers the calls that are allowed. The server runs in a thread of the process that starts it.
"""

import asyncio
import dataclasses
import datetime
import fnmatch
import socket
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, get_args

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from ondatra_dagster.row_changes import Json

DropMoment = Literal["before", "after"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that the next `times` matching calls get instead of the normal answer."""

    method: str = "*"
    path: str = "*"  # a pattern for paths, as in a shell: /crm/*
    times: int | None = 1  # None: every matching call, until the faults are cleared
    # the delay before the call is handled; without another fault, the call gets the normal answer after it
    delay_seconds: float = 0
    status: int | None = None  # the status of the answer; the call isn't carried out
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    message: str = "a requested fault"
    # when the connection is closed: before the call is handled, or after it was carried out
    drop: DropMoment | None = None

    def __post_init__(self) -> None:
        if self.drop not in (None, *get_args(DropMoment)):
            raise ValueError(f"drop is 'before' or 'after', not {self.drop!r}")
        if self.times is not None and not (isinstance(self.times, int) and self.times >= 1):
            raise ValueError(f"times is 1 or more, or null for always, not {self.times!r}")
        if self.status is not None and not (isinstance(self.status, int) and 200 <= self.status <= 599):
            raise ValueError(f"status is an HTTP status from 200, not {self.status!r}")
        if not (isinstance(self.delay_seconds, int | float) and self.delay_seconds >= 0):
            raise ValueError(f"delay_seconds is 0 or more, not {self.delay_seconds!r}")

    @classmethod
    def parse(cls, request: Json) -> Self:
        """Return the fault that the JSON body of POST /faults describes; raise ValueError for an invalid body."""
        known_fields = {field.name for field in dataclasses.fields(cls)}
        fields = request if isinstance(request, dict) else {"": request}
        if unknown_fields := sorted(set(fields) - known_fields):
            raise ValueError(f"unknown {unknown_fields}; a fault is an object of {', '.join(sorted(known_fields))}")
        return cls(**fields)

    def matches(self, method: str, path: str) -> bool:
        return fnmatch.fnmatchcase(method, self.method) and fnmatch.fnmatchcase(path, self.path)


class FaultQueue:
    """The queue of faults that haven't happened yet, in the order in which they were requested."""

    def __init__(self) -> None:
        self._pending: list[Fault] = []
        self._lock = threading.Lock()  # a test adds faults from a thread that isn't the server's

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._pending.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._pending.clear()

    def pending_faults(self) -> tuple[Fault, ...]:
        with self._lock:
            return tuple(self._pending)

    def take_fault(self, method: str, path: str) -> Fault | None:
        """Return the fault for this call and count its use; None if the call gets the normal answer."""
        with self._lock:
            for position, fault in enumerate(self._pending):
                if fault.matches(method, path):
                    self._count_use(position, fault)
                    return fault
        return None

    def _count_use(self, position: int, fault: Fault) -> None:
        if fault.times == 1:
            del self._pending[position]
        elif fault.times is not None:
            self._pending[position] = dataclasses.replace(fault, times=fault.times - 1)


@dataclasses.dataclass(slots=True)
class ScriptedFaults:
    """The faults of a test: for the call with a given number, for calls of a path, or for all calls."""

    call_count: int = 0
    at: dict[int, Fault] = dataclasses.field(default_factory=dict)  # number of the call, from 1 → fault
    paths: dict[str, Fault] = dataclasses.field(default_factory=dict)
    always: Fault | None = None

    def take_fault(self, _method: str, path: str) -> Fault | None:
        self.call_count += 1
        return self.at.get(self.call_count) or self.paths.get(path) or self.always

    def clear(self) -> None:
        self.call_count = 0
        self.at.clear()
        self.paths.clear()
        self.always = None


LOOPBACK_HOST = "127.0.0.1"
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
NO_FAULT = Fault()


class Answer(NamedTuple):
    status: int
    body: Json = None

    @property
    def message(self) -> str:
        """Return why the call was refused; "" if it wasn't."""
        return str(self.body["error"]) if isinstance(self.body, dict) and "error" in self.body else ""


def refusal(status: int, message: str) -> Answer:
    return Answer(status, {"error": message})


class RecordedCall(NamedTuple):
    """A request with its answer."""

    at: datetime.datetime
    method: str
    path: str
    body: Json
    status: int  # the answer's status, or 0 if the connection was dropped
    message: str  # why the call was refused
    idempotency_key: str | None
    is_repeat: bool  # the idempotency key was known: the call got the earlier answer, and wasn't carried out again


class LoopbackApi:
    """An API on a loopback port, for the process that started it. It answers calls after start().

    A subclass carries out calls or refuses them with a reason. It also stores calls and answers.
    """

    faults: FaultQueue | ScriptedFaults  # the faults that haven't happened yet
    answers: dict[str, Answer]  # answer by idempotency key

    def __init__(self, listener: socket.socket, *, pages: Sequence[Route] = (), paths: Sequence[str]) -> None:
        """Serve the API on a socket that already listens. `paths` are the paths of the API's calls."""
        self.url = f"http://{LOOPBACK_HOST}:{listener.getsockname()[1]}"
        app = Starlette(routes=[*pages, *(Route(path, self._handle_call, methods=METHODS) for path in paths)])
        config = uvicorn.Config(
            app, http="h11", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="fake-api")

    def start(self) -> None:
        self._thread.start()  # because the socket already listens, early callers wait in its backlog

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    def _refuse(self, _request: Request) -> Answer | None:
        """Return the refusal of a call that must not be carried out; None if the call is allowed."""
        return None

    def _answer(self, request: Request, body: Json) -> Answer:
        raise NotImplementedError

    def _store_call(self, call: RecordedCall, answer: Answer) -> None:
        raise NotImplementedError

    async def _handle_call(self, request: Request) -> Response:
        """Answer a call, or apply the fault for it, and record the call."""
        text = await request.body()
        fault = self.faults.take_fault(request.method, request.url.path) or NO_FAULT
        await asyncio.sleep(fault.delay_seconds)
        key = request.headers.get("idempotency-key")
        saved_answer = self.answers.get(key) if key else None
        answer = (
            _fault_answer(fault) or self._refuse(request) or saved_answer or self._answer(request, parse_body(text))
        )
        call = RecordedCall(
            at=datetime.datetime.now(datetime.UTC),
            method=request.method,
            path=request.url.path,
            body=parse_body(text),
            status=0 if fault.drop else answer.status,
            message=answer.message,
            idempotency_key=key,
            is_repeat=answer is saved_answer,
        )
        self._store_call(call, answer)
        if fault.drop:
            self._disconnect(request)
            # uvicorn reports a missing answer unless the connection is closed, so wait for that
            await request.receive()
        return json_response(answer.status, answer.body, fault.headers) if answer.status else Response()

    def _disconnect(self, request: Request) -> None:
        """Abort the connection to the caller, as if the network failed."""
        caller = tuple(request.scope["client"])
        for connection in list(self._server.server_state.connections):
            if isinstance(connection, H11Protocol) and connection.client == caller:
                connection.transport.abort()


def _fault_answer(fault: Fault) -> Answer | None:
    if fault.drop == "before":
        return refusal(0, "dropped unseen")
    return None if fault.status is None else refusal(fault.status, fault.message)


def parse_body(text: bytes) -> Any:
    """Return the body as JSON; None if it isn't JSON. The API refuses None in a call that needs a body."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def json_response(status: int, body: object, headers: Any = None) -> Response:
    if status == 204:
        return Response(status_code=204, headers=headers)
    return Response(orjson.dumps(body), status, headers, "application/json")


def path_segments(request: Request) -> tuple[str, ...]:
    """Return the path's segments. Each is unquoted separately, because an id may contain a slash."""
    return tuple(map(urllib.parse.unquote, request.scope["raw_path"].decode().strip("/").split("/")))
