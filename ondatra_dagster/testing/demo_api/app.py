"""The demo API's HTTP side: paths, the bearer token, idempotency keys, and faults where they were asked for.

What is done with a call that gets through is decided in destination.
"""

import hmac
from collections.abc import Callable

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ondatra_dagster.changes import Json
from ondatra_dagster.testing.calls import Answer, CallTaker, as_json, refusal, segments
from ondatra_dagster.testing.demo_api.page import render_page
from ondatra_dagster.testing.demo_api.state import DemoState
from ondatra_dagster.testing.faults import Fault, Faults

DEMO_KEY = "shop-demo-key-0001"  # opens nothing but this pretend API
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


class DemoApp:
    """The pages for people and the calls of machines, over one state."""

    def __init__(self, state: DemoState, *, key: str, disconnect: Callable[[Request], None]) -> None:
        self.faults = Faults()
        self._state = state
        self._key = key
        calls = CallTaker(self.faults, state, self._answer, disconnect=disconnect, refuse=self._refuse)
        self.asgi = Starlette(
            routes=[
                Route("/", self._show_page),
                Route("/state", self._show_state),
                Route("/calls", self._show_calls),
                Route("/faults", self._show_faults),
                Route("/faults", self._add_fault, methods=["POST"]),
                Route("/faults", self._clear_faults, methods=["DELETE"]),
                Route("/crm/{path:path}", calls.take, methods=METHODS),
                Route("/erp/{path:path}", calls.take, methods=METHODS),
            ]
        )

    async def _show_page(self, _request: Request) -> Response:
        return HTMLResponse(render_page(self._state))

    async def _show_state(self, _request: Request) -> Response:
        return as_json(200, self._state.summary())

    async def _show_calls(self, _request: Request) -> Response:
        return as_json(200, [call._asdict() for call in self._state.calls])

    async def _show_faults(self, _request: Request) -> Response:
        return as_json(200, self.faults.coming())

    async def _add_fault(self, request: Request) -> Response:
        try:
            self.faults.add(Fault.parse(orjson.loads(await request.body())))
        except ValueError as error:  # not JSON, or not a fault
            return as_json(400, {"error": str(error)})
        return as_json(201, self.faults.coming())

    async def _clear_faults(self, _request: Request) -> Response:
        self.faults.clear()
        return Response(status_code=204)

    def _refuse(self, request: Request) -> Answer | None:
        """Who doesn't show the key is told no more than that."""
        if hmac.compare_digest(request.headers.get("authorization", ""), f"Bearer {self._key}"):
            return None
        return refusal(401, "the token is missing or wrong")

    def _answer(self, request: Request, body: Json) -> Answer:
        return self._state.destination.answer(request.method, segments(request), body)
