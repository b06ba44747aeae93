"""The number of ondatra's function calls between a batch and its HTTP request."""

import socket
import threading
import traceback
from pathlib import Path

import pytest
from support.syncs.contact_sync import ASYNC_PUSH, ATOMIC_PUSH, ContactSync

import ondatra_dagster
from ondatra_dagster.testing.demo_api import DemoApi

PACKAGE = Path(ondatra_dagster.__file__).parent
MAX_FRAMES = 16


@pytest.mark.parametrize(("functions", "mode"), [(ATOMIC_PUSH, "atomic"), (ASYNC_PUSH, "async")])
def test_a_request_is_sent_from_a_short_stack(
    api: DemoApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, functions: str, mode: str
) -> None:
    """A developer who debugs a push function can read each call from its thread to the socket."""
    stacks: list[list[str]] = []
    send = socket.socket.send

    def record_and_send(connection: socket.socket, data: bytes, flags: int = 0) -> int:
        if threading.current_thread().name.startswith("push-"):
            frames = traceback.extract_stack()
            stacks.append([frame.name for frame in frames if PACKAGE in Path(frame.filename).parents])
        return send(connection, data, flags)

    monkeypatch.setattr(socket.socket, "send", record_and_send)
    sync = ContactSync(tmp_path, api, functions, {"batch_mode": mode, "poll_interval": "1s"})
    sync.write(c1="1@example.com")
    sync.run()

    assert stacks
    assert {"C-1": "1@example.com"} == sync.delivered_emails()
    deepest = max(stacks, key=len)
    assert len(deepest) <= MAX_FRAMES, f"{len(deepest)} calls: {' → '.join(deepest)}"
