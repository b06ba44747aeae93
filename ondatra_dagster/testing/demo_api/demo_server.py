"""The demo API's server on a loopback port, in a thread of the process that starts it."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from ondatra_dagster.testing.api_faults import Fault
from ondatra_dagster.testing.call_handler import RecordedCall
from ondatra_dagster.testing.demo_api.crm_and_erp import Record
from ondatra_dagster.testing.demo_api.demo_app import DEMO_KEY, DemoApp
from ondatra_dagster.testing.demo_api.persisted_state import DemoState
from ondatra_dagster.testing.loopback_server import LOOPBACK_HOST, DisconnectFunction, LoopbackServer


class DemoApi:
    """The running API, for the caller that started it."""

    def __init__(self, listener: socket.socket, *, state: DemoState, key: str) -> None:
        self.key = key
        self._state = state
        self._server = LoopbackServer(listener, self._build_app)
        self.url = self._server.url

    def _build_app(self, disconnect: DisconnectFunction) -> Starlette:
        self._app = DemoApp(self._state, key=self.key, disconnect=disconnect)
        return self._app.asgi

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """Every call to the CRM and the ERP, oldest first."""
        return tuple(self._state.calls)

    def contacts(self) -> dict[str, Record]:
        """What the CRM holds, by customer_id."""
        return dict(self._state.crm_and_erp.contacts.records)

    def invoices(self) -> dict[str, Record]:
        """What the ERP holds, by invoice_id."""
        return dict(self._state.crm_and_erp.invoices.records)

    def timeline(self) -> dict[str, Record]:
        """What the CRM's timeline holds, by entry_id."""
        return dict(self._state.crm_and_erp.timeline.records)

    def prices(self) -> dict[str, Record]:
        """The ERP's price list, by product_id."""
        return dict(self._state.crm_and_erp.prices.records)

    def jobs(self) -> tuple[str, ...]:
        """The ids of the jobs that were begun."""
        return tuple(self._state.crm_and_erp.bulk.jobs)

    def delay_jobs(self, polls: int) -> None:
        """Let a job be done only when it was asked about so often."""
        self._state.crm_and_erp.bulk.polls = polls

    def fail(self, **fault: Any) -> None:
        """Ask for a fault, by the fields of Fault: fail(status=503, times=3, path="/crm/*")."""
        self._app.faults.add(Fault(**fault))

    def recover(self) -> None:
        """Forget the faults that are still to come."""
        self._app.faults.clear()

    def clear(self) -> None:
        """Forget everything: as good as a new one, and quicker."""
        self.recover()
        self._state.clear()

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()


@contextlib.contextmanager
def running_demo_api(*, port: int = 0, state: Path | None = None, key: str = DEMO_KEY) -> Iterator[DemoApi]:
    """The demo API until the block ends, on a free port or on `port` (OSError: that one is taken)."""
    listener = socket.create_server((LOOPBACK_HOST, port))
    try:
        api = DemoApi(listener, state=DemoState(state), key=key)
    except BaseException:  # an unreadable state file: the port isn't ours to keep
        listener.close()
        raise
    api.start()
    try:
        yield api
    finally:
        api.stop()
