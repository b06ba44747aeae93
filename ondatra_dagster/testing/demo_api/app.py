"""The demo API's HTTP side: paths, the bearer token, idempotency keys, and faults where they were asked for.

What is done with a call that gets through is decided in destination.
"""

import asyncio
import datetime
import hmac
import urllib.parse
from collections.abc import Callable
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ondatra_dagster.testing.demo_api.collection import Answer, refusal
from ondatra_dagster.testing.demo_api.faults import Fault, Faults
from ondatra_dagster.testing.demo_api.page import render_page
from ondatra_dagster.testing.demo_api.state import Call, DemoState

DEMO_KEY = "shop-demo-key-0001"  # opens nothing but this pretend API
NO_FAULT = Fault()
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


class DemoApp:
    """The pages for people and the calls of machines, over one state."""

    def __init__(self, state: DemoState, *, key: str, disconnect: Callable[[Request], None]) -> None:
        self.faults = Faults()
        self._state = state
        self._key = key
        self._disconnect = disconnect
        self.asgi = Starlette(
            routes=[
                Route("/", self._show_page),
                Route("/state", self._show_state),
                Route("/calls", self._show_calls),
                Route("/faults", self._show_faults),
                Route("/faults", self._add_fault, methods=["POST"]),
                Route("/faults", self._clear_faults, methods=["DELETE"]),
                Route("/crm/{path:path}", self._take_call, methods=METHODS),
                Route("/erp/{path:path}", self._take_call, methods=METHODS),
            ]
        )

    async def _show_page(self, _request: Request) -> Response:
        return HTMLResponse(render_page(self._state))

    async def _show_state(self, _request: Request) -> Response:
        return _json(200, self._state.summary())

    async def _show_calls(self, _request: Request) -> Response:
        return _json(200, [call._asdict() for call in self._state.calls])

    async def _show_faults(self, _request: Request) -> Response:
        return _json(200, self.faults.coming())

    async def _add_fault(self, request: Request) -> Response:
        try:
            self.faults.add(Fault.parse(orjson.loads(await request.body())))
        except ValueError as error:  # not JSON, or not a fault
            return _json(400, {"error": str(error)})
        return _json(201, self.faults.coming())

    async def _clear_faults(self, _request: Request) -> Response:
        self.faults.clear()
        return Response(status_code=204)

    async def _take_call(self, request: Request) -> Response:
        """A call to the CRM or the ERP: answered rightly, or with the fault that was asked for."""
        text = await request.body()
        fault = self.faults.take(request.method, request.url.path) or NO_FAULT
        await asyncio.sleep(fault.delay_seconds)
        key = request.headers.get("idempotency-key")
        known = self._state.answers.get(key) if key else None
        answer = self._answer(request, text, fault, known)
        call = Call(
            at=datetime.datetime.now(datetime.UTC),
            method=request.method,
            path=request.url.path,
            body=_parsed(text),
            status=0 if fault.drop else answer.status,
            message=answer.message,
            idempotency_key=key,
            is_repeat=answer is known,
        )
        self._state.remember(call, answer)
        if fault.drop:
            self._disconnect(request)
            await request.receive()  # comes when the connection is gone: only then is no answer no error
        return _json(answer.status, answer.body, fault.headers) if answer.status else Response()

    def _answer(self, request: Request, text: bytes, fault: Fault, known: Answer | None) -> Answer:
        if fault.drop == "before":
            return refusal(0, "dropped unseen")
        if fault.status is not None:
            return refusal(fault.status, fault.message)
        if not hmac.compare_digest(request.headers.get("authorization", ""), f"Bearer {self._key}"):
            return refusal(401, "the token is missing or wrong")
        if known is not None:
            return known
        # each segment unquoted by itself: an id may have a slash in it
        path = tuple(map(urllib.parse.unquote, request.scope["raw_path"].decode().strip("/").split("/")))
        return self._state.destination.answer(request.method, path, _parsed(text))


def _parsed(text: bytes) -> Any:
    """The body as JSON; None for what isn't, which the destination refuses where it needs a body."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _json(status: int, body: object, headers: Any = None) -> Response:
    if status == 204:
        return Response(status_code=204, headers=headers)
    return Response(orjson.dumps(body), status, headers, "application/json")
