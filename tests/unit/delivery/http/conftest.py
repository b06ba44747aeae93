"""An API that answers with the raw bytes that a test chooses."""

import http.server
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.apis.raw_responses import RESPONSE_PUSH, push_one_row

from ondatra_dagster.delivery.http.api_client import ApiClient
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import load_library


@pytest.fixture
def push_response(loopback_api: Any, write_library: Callable[..., Path]) -> Iterator[Callable[..., Any]]:
    """Yield a function that answers a call with these bytes and returns what push() gets."""
    library = load_library(write_library(crm=RESPONSE_PUSH % loopback_api.url))
    with ApiClient(library.config, secrets={}.get) as api:

        def call(raw: bytes | Iterable[bytes]) -> Any:
            def reply(handler: http.server.BaseHTTPRequestHandler, _seen: object) -> None:
                handler.close_connection = True
                for piece in [raw] if isinstance(raw, bytes) else raw:
                    handler.wfile.write(piece)

            loopback_api.reply_function = reply
            return push_one_row(library, api.begin_calls())

        yield call
