"""The demo API's HTTP application and its server on a loopback port, in a thread of the process that starts it.

The application has the routes, checks the bearer token, and knows idempotency keys and requested faults. `crm_and_erp`
answers the calls that are allowed.
"""

import contextlib
import hmac
import html
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ondatra_dagster.row_changes import Json
from ondatra_dagster.testing.demo_api.crm_and_erp import Record
from ondatra_dagster.testing.demo_api.persisted_state import DemoState
from ondatra_dagster.testing.fake_api_server import (
    LOOPBACK_HOST,
    Answer,
    Fault,
    FaultQueue,
    LoopbackApi,
    RecordedCall,
    json_response,
    path_segments,
    refusal,
)

DEMO_KEY = "shop-demo-key-0001"  # a public key that only opens the demo API


class DemoApi(LoopbackApi):
    """The running demo API: its web pages and its answers to calls. Both use one state."""

    def __init__(self, listener: socket.socket, *, state: DemoState) -> None:
        self.faults: FaultQueue = FaultQueue()
        self._state = state
        self.answers = state.answers
        pages = [
            Route("/", self._show_page),
            Route("/state", self._show_state),
            Route("/calls", self._show_calls),
            Route("/faults", self._show_faults),
            Route("/faults", self._add_fault, methods=["POST"]),
            Route("/faults", self._clear_faults, methods=["DELETE"]),
        ]
        super().__init__(listener, pages=pages, paths=["/crm/{path:path}", "/erp/{path:path}"])

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """Return every call to the CRM and the ERP, the oldest first."""
        return tuple(self._state.calls)

    def contacts(self) -> dict[str, Record]:
        """Return the CRM's contacts, by customer_id."""
        return dict(self._state.crm_and_erp.contacts.records)

    def invoices(self) -> dict[str, Record]:
        """Return the ERP's invoices, by invoice_id."""
        return dict(self._state.crm_and_erp.invoices.records)

    def timeline(self) -> dict[str, Record]:
        """Return the CRM's timeline entries, by entry_id."""
        return dict(self._state.crm_and_erp.timeline.records)

    def prices(self) -> dict[str, Record]:
        """Return the ERP's price list, by product_id."""
        return dict(self._state.crm_and_erp.prices.records)

    def jobs(self) -> tuple[str, ...]:
        """Return the ids of the jobs that were submitted."""
        return tuple(self._state.crm_and_erp.bulk.jobs)

    def delay_jobs(self, polls: int) -> None:
        """Answer the first `polls` polls of each job with "running"."""
        self._state.crm_and_erp.bulk.polls = polls

    def fail(self, **fault: Any) -> None:
        """Add a fault with the fields of Fault, as in fail(status=503, times=3, path="/crm/*")."""
        self.faults.add(Fault(**fault))

    def recover(self) -> None:
        """Delete the faults that haven't happened yet."""
        self.faults.clear()

    def clear(self) -> None:
        """Delete all records, calls and faults. This is faster than starting a new API."""
        self.recover()
        self._state.clear()

    async def _show_page(self, _request: Request) -> Response:
        return HTMLResponse(render_page(self._state))

    async def _show_state(self, _request: Request) -> Response:
        return json_response(200, self._state.summary())

    async def _show_calls(self, _request: Request) -> Response:
        return json_response(200, [call._asdict() for call in self._state.calls])

    async def _show_faults(self, _request: Request) -> Response:
        return json_response(200, self.faults.pending_faults())

    async def _add_fault(self, request: Request) -> Response:
        try:
            self.faults.add(Fault.parse(orjson.loads(await request.body())))
        except ValueError as error:  # the body isn't JSON, or doesn't describe a fault
            return json_response(400, {"error": str(error)})
        return json_response(201, self.faults.pending_faults())

    async def _clear_faults(self, _request: Request) -> Response:
        self.faults.clear()
        return Response(status_code=204)

    def _refuse(self, request: Request) -> Answer | None:
        """Return the answer 401, without further details, if the request doesn't have the key; None if it does."""
        if hmac.compare_digest(request.headers.get("authorization", ""), f"Bearer {DEMO_KEY}"):
            return None
        return refusal(401, "the token is missing or wrong")

    def _answer(self, request: Request, body: Json) -> Answer:
        return self._state.crm_and_erp.answer_request(request.method, path_segments(request), body)

    def _store_call(self, call: RecordedCall, answer: Answer) -> None:
        self._state.store_call(call, answer)


MAX_SHOWN_CALLS = 25


def render_page(state: DemoState) -> str:
    """Return the web page with the current records and calls."""
    records_by_collection = state.crm_and_erp.records_by_collection()
    calls = state.calls[: -MAX_SHOWN_CALLS - 1 : -1]
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    blocks = {
        **{f"{name}_count": str(len(records)) for name, records in records_by_collection.items()},
        **{
            name: _table([_flatten_lines(record) for record in records.values()])
            for name, records in records_by_collection.items()
        },
        "call_count": str(len(state.calls)),
        "refused_count": str(sum(call.status >= 400 for call in state.calls)),
        "calls": "".join(map(_call_row, calls)) or '<tr><td colspan="4" class="none">none yet</td></tr>',
    }
    for name, block in blocks.items():
        template = template.replace(f"<!--{name}-->", block, 1)
    return template


def _flatten_lines(record: Record) -> Mapping[str, Json]:
    """Return a record that fits in one table row. The lines of an invoice become a text."""
    lines = record.get("lines")
    if not isinstance(lines, list):
        return record
    texts = [f"{line.get('quantity')} {line.get('product')}" for line in lines if isinstance(line, dict)]
    return {**record, "lines": ", ".join(texts)}


def _table(records: Sequence[Mapping[str, Json]]) -> str:
    if not records:
        return '<p class="none">nothing yet</p>'
    columns = list(dict.fromkeys(name for record in records for name in record))
    header_cells = "".join(f"<th>{_escape_value(name)}</th>" for name in columns)
    body = "".join(_row(record.get(name) for name in columns) for record in records)
    return f"<table><thead><tr>{header_cells}</tr></thead><tbody>{body}</tbody></table>"


def _row(values: Iterable[Json]) -> str:
    return "<tr>" + "".join(f"<td>{_escape_value(value)}</td>" for value in values) + "</tr>"


def _call_row(call: RecordedCall) -> str:
    css_class = "ok" if 200 <= call.status < 400 else "bad"
    status = "no answer" if call.status == 0 else str(call.status)
    note = "repeated: not executed again" if call.is_repeat else call.message
    return (
        f"<tr><td>{call.at:%H:%M:%S}</td><td><b>{_escape_value(call.method)}</b> {_escape_value(call.path)}</td>"
        f'<td class="{css_class}">{status}</td><td>{_escape_value(note)}</td></tr>'
    )


def _escape_value(value: Json) -> str:
    return "" if value is None else html.escape(str(value))


@contextlib.contextmanager
def running_demo_api(*, port: int = 0, state: Path | None = None) -> Iterator[DemoApi]:
    """Serve the demo API until the block ends, on `port` or on a free port; raise OSError if the port is in use."""
    listener = socket.create_server((LOOPBACK_HOST, port))
    try:
        api = DemoApi(listener, state=DemoState(state))
    except BaseException:  # for example, the state file is unreadable: release the port
        listener.close()
        raise
    api.start()
    try:
        yield api
    finally:
        api.stop()
