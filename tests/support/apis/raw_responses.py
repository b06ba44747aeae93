"""The HTTP responses of tests as raw bytes, and a push function that returns the response it gets."""

from typing import Any

from ondatra_dagster.delivery.http.api_client import BatchCalls
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import PushContext, PushLibrary

STATUS_LINE = b"HTTP/1.1 200 OK\r\n"
RESPONSE_PUSH = """
API = {"base_url": "%s", "retry": 0, "timeout": 20}
def push(rows):
    answer = http.post("/x", json = {"a": 1})
    return [answer.status_code, answer.text, answer.json, answer.headers]
"""


def build_response(body: bytes | str, *headers: str, status: int = 200) -> bytes:
    """Return a response with a Content-Length."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def build_response_head(*lines: bytes, body: bytes = b"") -> bytes:
    return STATUS_LINE + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def build_chunked_response(body: bytes) -> bytes:
    return build_response_head(b"Transfer-Encoding: chunked", body=body)


def push_one_row(library: PushLibrary, calls: BatchCalls) -> Any:
    return library.call_function(
        "push",
        '{"columns":[],"rows":[]}',
        http=calls,
        context=PushContext(sync_id="", kind="append", key_columns=[], arguments=[]),
    )
