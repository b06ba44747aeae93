"""An API that answers with any bytes."""

import http.server
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.raw_answers import PUSH, push

from ondatra_dagster.delivery.http.http_api import HttpApi
from ondatra_dagster.delivery.push.starlark.push_library import load_library


@pytest.fixture
def answer_with(loopback: Any, lib: Callable[..., Path]) -> Iterator[Callable[..., Any]]:
    """What push() sees of an answer of these bytes."""
    library = load_library(lib(crm=PUSH % loopback.url))
    with HttpApi(library.config, secrets={}.get) as api:

        def call(raw: bytes | Iterable[bytes]) -> Any:
            def reply(handler: http.server.BaseHTTPRequestHandler, _seen: object) -> None:
                handler.close_connection = True
                for piece in [raw] if isinstance(raw, bytes) else raw:
                    handler.wfile.write(piece)

            loopback.reply = reply
            return push(library, api.begin())

        yield call
