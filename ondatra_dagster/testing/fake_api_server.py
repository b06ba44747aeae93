"""An API's calls over HTTP on a loopback port: requested faults, idempotency keys, and the record of each call.

The answer to an allowed call is the API's own. The server runs in a thread of the process that starts it.
"""

import asyncio
import datetime
import socket
import threading
import urllib.parse
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from ondatra_dagster.row_changes import Json
from ondatra_dagster.testing.api_faults import Fault, FaultQueue, ScriptedFaults

LOOPBACK_HOST = "127.0.0.1"
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
NO_FAULT = Fault()


class Answer(NamedTuple):
    status: int
    body: Json = None

    @property
    def message(self) -> str:
        """Why it was refused; empty when it wasn't."""
        return str(self.body["error"]) if isinstance(self.body, dict) and "error" in self.body else ""


def refusal(status: int, message: str) -> Answer:
    return Answer(status, {"error": message})


class RecordedCall(NamedTuple):
    """One request, as it came and as it was answered."""

    at: datetime.datetime
    method: str
    path: str
    body: Json
    status: int  # 0: the connection was dropped
    message: str  # why it was refused
    idempotency_key: str | None
    is_repeat: bool  # the idempotency key was known: answered again, not done again


class LoopbackApi:
    """An API on a loopback port, for the caller that started it. It begins to answer with start().

    A subclass does what a call asks, or says why not, and remembers calls and answers.
    """

    faults: FaultQueue | ScriptedFaults  # what is to go wrong
    answers: dict[str, Answer]  # by idempotency key

    def __init__(self, listener: socket.socket, *, pages: Sequence[Route] = (), paths: Sequence[str]) -> None:
        """Take a port that listens already; `paths` are those of the API's calls."""
        self.url = f"http://{LOOPBACK_HOST}:{listener.getsockname()[1]}"
        app = Starlette(routes=[*pages, *(Route(path, self._handle_call, methods=METHODS) for path in paths)])
        config = uvicorn.Config(
            app, http="h11", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="pretend-api")

    def start(self) -> None:
        self._thread.start()  # the port listens already: early callers wait in its queue

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    def _refuse(self, _request: Request) -> Answer | None:
        """Refuse a call that isn't looked at any further; None: it is."""
        return None

    def _answer(self, request: Request, body: Json) -> Answer:
        raise NotImplementedError

    def _store_call(self, call: RecordedCall, answer: Answer) -> None:
        raise NotImplementedError

    async def _handle_call(self, request: Request) -> Response:
        """A call is answered rightly, or with the fault that was asked for."""
        text = await request.body()
        fault = self.faults.take_fault(request.method, request.url.path) or NO_FAULT
        await asyncio.sleep(fault.delay_seconds)
        key = request.headers.get("idempotency-key")
        known = self.answers.get(key) if key else None
        answer = _fault_answer(fault) or self._refuse(request) or known or self._answer(request, parse_body(text))
        call = RecordedCall(
            at=datetime.datetime.now(datetime.UTC),
            method=request.method,
            path=request.url.path,
            body=parse_body(text),
            status=0 if fault.drop else answer.status,
            message=answer.message,
            idempotency_key=key,
            is_repeat=answer is known,
        )
        self._store_call(call, answer)
        if fault.drop:
            self._disconnect(request)
            await request.receive()  # comes when the connection is gone: only then is no answer no error
        return json_response(answer.status, answer.body, fault.headers) if answer.status else Response()

    def _disconnect(self, request: Request) -> None:
        """End the caller's connection, as a lost one ends."""
        caller = tuple(request.scope["client"])
        for connection in list(self._server.server_state.connections):
            if isinstance(connection, H11Protocol) and connection.client == caller:
                connection.transport.abort()


def _fault_answer(fault: Fault) -> Answer | None:
    if fault.drop == "before":
        return refusal(0, "dropped unseen")
    return None if fault.status is None else refusal(fault.status, fault.message)


def parse_body(text: bytes) -> Any:
    """The body as JSON; None for what isn't, which the API refuses where it needs a body."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def json_response(status: int, body: object, headers: Any = None) -> Response:
    if status == 204:
        return Response(status_code=204, headers=headers)
    return Response(orjson.dumps(body), status, headers, "application/json")


def path_segments(request: Request) -> tuple[str, ...]:
    """The path's segments, each unquoted by itself: an id may have a slash in it."""
    return tuple(map(urllib.parse.unquote, request.scope["raw_path"].decode().strip("/").split("/")))
