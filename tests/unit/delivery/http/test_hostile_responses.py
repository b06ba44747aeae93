"""Answers of a hostile server, from the socket to push(): none raises an exception, and none blocks a run."""

import contextlib
import gzip
import http.server
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.apis.raw_responses import (
    RESPONSE_PUSH,
    STATUS_LINE,
    build_chunked_response,
    build_response,
    build_response_head,
    push_one_row,
)

from ondatra_dagster.delivery.http.api_client import ApiClient
from ondatra_dagster.delivery.http.response_status_and_body_decoding import read_response_text
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import load_library

LONG = "12345678901234567890"


# --- JSON


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"a":%s}' % ("9" * 5_000), None),
        ("[%s]" % ("9" * 100_000), None),
        ("[%s]" % ("9" * 309), None),
        ("[%s]" % ("9" * 300), [int("9" * 300)]),
        ("[%se-4300]" % ("1" * 4_301), [float("1" * 4_301 + "e-4300")]),
        ("[%s.5e-4990]" % ("1" * 5_000), [float("1" * 5_000 + ".5e-4990")]),
        ('["%s"]' % ("9" * 5_000), ["9" * 5_000]),
        ("[1e400]", None),
        ("[-1E+400, 12345678901234567890]", None),
        (f"[{LONG}e400]", None),
        ("[1e-400000]", [0.0]),
        ("[0e9999999999]", [0.0]),
        ("[18446744073709551616, -9223372036854775809]", [2**64, -(2**63) - 1]),
        ("[NaN]", None),
        (f"[Infinity, {LONG}]", None),
        (f'["{LONG}", NaN]', None),
        (r'{"a":"\ud800"}', None),
        (r'{"\udfff":1}', None),
        (rf'["\udc00\ud800", {LONG}]', None),
        (r'{"a":"\ud83d\ude00"}', {"a": "😀"}),
        (r'{"a":"\u0000"}', {"a": "\0"}),
        ('{"a":1,"a":2}', {"a": 2}),
        (f'{{"a":1,"a":{LONG}}}', {"a": int(LONG)}),
        ("{" + '"a":1,' * 50_000 + '"a":2}', {"a": 2}),
        ("[" * 100_000 + "]" * 100_000, None),
        ("[" * 121 + LONG + "]" * 121, None),
        ("[" + "[]," * 2_000_000 + "1]", None),
        ('{"a":' * 127 + "1" + "}" * 127, None),
        ("{} {}", None),
        ("{/*x*/}", None),
        ("{'a':1}", None),
        ("", None),
        ("\ufeff{}", {}),
        (b'{"a":"\xff\xfe"}', {"a": "\ufffd\ufffd"}),
    ],
)
def test_json_is_exact_or_none(push_response: Callable[..., Any], body: str, expected: object) -> None:
    """Numbers that are too large, half characters and deep nesting raise no error in push()."""
    status, _, value, _ = push_response(build_response(body))

    assert (200, expected) == (status, value)


@pytest.mark.parametrize("inner", ["1", LONG])
def test_json_may_be_as_deep_as_starlark_reads_it(push_response: Callable[..., Any], inner: str) -> None:
    """The JSON decoder of Starlark fails at a slightly smaller depth."""
    deep = "[" * 119 + inner + "]" * 119

    assert json.loads(deep) == push_response(build_response(deep))[2]


# --- headers, sizes, compression


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (build_response_head(b"X: \xff\xfe", b"Content-Length: 0"), {"x": "\xff\xfe"}),
        (build_response_head("X: ä€😀".encode(), b"Content-Length: 0"), {"x": "ä€😀"}),
        (build_response_head(b"X: \xed\xa0\x80", b"Content-Length: 0"), {"x": "\xed\xa0\x80"}),
        (build_response_head(b"X: 1", b"x: 2", b"cOnTeNt-LeNgTh: 0"), {"x": "1, 2"}),
        (build_response_head(b"X: a", b" b", b"\tc", b"Content-Length: 0"), {"x": "a b c"}),
        (build_response("", "Set-Cookie: a=b", *["Set-Cookie: c=d"] * 3_000), {"set-cookie": "a=b" + ", c=d" * 3_000}),
        (build_response("", "Retry-After: " + "9" * 5_000), {"retry-after": "9" * 5_000}),
        (build_response("", "Date: Fri, 99 Zzz 99999 99:99:99 GMT"), {"date": "Fri, 99 Zzz 99999 99:99:99 GMT"}),
        (build_response("", "Location: http://[::1", status=302), {"location": "http://[::1"}),
    ],
)
def test_unusual_headers_are_text(push_response: Callable[..., Any], raw: bytes, expected: dict[str, str]) -> None:
    """They are decoded as UTF-8, or as one character for each byte."""
    status, _, _, headers = push_response(raw)

    assert status in {200, 302}
    assert expected == {name: headers[name] for name in expected}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"hi",
        b"SSH-2.0-OpenSSH\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"HTTP/1.1 099 X\r\n\r\n",
        b"HTTP/1.1 1000 X\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello",
        build_response_head(b"X: a\0b", b"Content-Length: 0"),
        build_response_head(b": x", b"Content-Length: 0"),
        build_response_head(b"Content-Length: 1", b"Content-Length: 2", body=b"ab"),
        build_response_head(b"Content-Length: -1", body=b"ab"),
        build_response_head(b"Content-Length: " + b"9" * 5_000, body=b"ab"),
        build_response_head(b"Content-Length: \xd9\xa2", body=b"ab"),
        build_response_head(b"Content-Length: 100", body=b"ab"),
        build_response_head(*[b"X-Flood: " + b"y" * 1_000] * 2_000),
        STATUS_LINE + b"X: " + b"y" * 200_000,
        build_chunked_response(b"ZZ\r\nab"),
        build_chunked_response(b"-2\r\nab\r\n0\r\n\r\n"),
        build_chunked_response(b"F" * 20 + b"\r\nab"),
        build_chunked_response(b"2;a=" + b"b" * 200_000 + b"\r\nab\r\n0\r\n\r\n"),
        build_chunked_response(b"2\r\nab\r\n0\r\n" + b"E: x\r\n" * 200_000),
        build_response_head(b"Transfer-Encoding: gzip, chunked", body=b"2\r\nab\r\n0\r\n\r\n"),
    ],
)
def test_an_answer_that_is_not_http_counts_as_no_answer(push_response: Callable[..., Any], raw: bytes) -> None:
    """The text has the reason."""
    status, text, value, headers = push_response(raw)

    assert (0, None, {}) == (status, value, headers)
    assert text.startswith("no answer: ")


@pytest.mark.parametrize(
    ("raw", "status", "text"),
    [
        (b"HTTP/1.1 103 E\r\n\r\n" * 5_000 + build_response("x"), 200, "x"),
        (build_response("", status=999), 999, ""),
        (STATUS_LINE + b"\r\nhi", 200, "hi"),
        (b"HTTP/1.0 200 \xff\r\n\r\nhi", 200, "hi"),
        (
            build_response_head(b"Content-Length: 2", b"Connection: close", body=b"hi" + build_response("evil")),
            200,
            "hi",
        ),
        (build_chunked_response(b'2;a=b;c="d"\r\nhi\r\n0;x\r\nEvil: x\r\n\r\n'), 200, "hi"),
        (build_response(b"\x1b]0;owned\x07\x00\x9b31m"), 200, "\x1b]0;owned\x07\x00\ufffd31m"),
        (build_response("x" * 50_000_000), 200, "x" * 50_000_000),
        (build_response(gzip.compress(b"x" * 50_000_000, 1), "Content-Encoding: GZIP"), 200, "x" * 50_000_000),
        (build_response(gzip.compress(b"hi") + bytes(100), "Content-Encoding: gzip"), 200, "hi"),
        (build_response(gzip.compress(b""), "Content-Encoding: gzip"), 200, ""),
        (build_response(zlib.compress(b"hi"), "Content-Encoding: deflate"), 200, "hi"),
    ],
    ids=lambda value: f"{str(value)[:40]!r}" if isinstance(value, bytes) else "",
)
def test_an_unusual_answer_that_can_be_read_is_an_answer(
    push_response: Callable[..., Any], raw: bytes, status: int, text: str
) -> None:
    """Its body may have up to 50 MB."""
    assert [status, True] == [(response := push_response(raw))[0], response[1] == text]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (build_response("x" * 50_000_001), "the response has more than 50 MB"),
        (
            build_response(gzip.compress(bytes(300_000_000), 1), "Content-Encoding: gzip"),
            "the response has more than 50 MB",
        ),
        (build_response(gzip.compress(b"hello" * 100)[:-9], "Content-Encoding: gzip"), "response ends too early"),
        (build_response("no gzip at all", "Content-Encoding: gzip"), "can't be decompressed"),
        (build_response("x", "Content-Encoding: br"), "compressed as 'br'"),
        (build_response("x", "Content-Encoding: gzip", "Content-Encoding: gzip"), "compressed as 'gzip, gzip'"),
        (build_response("x", "Content-Encoding: " + "gzip," * 10_000), "compressed as 'gzip,gzip"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,
)
def test_an_answer_that_can_not_be_read_has_a_reason(push_response: Callable[..., Any], raw: bytes, why: str) -> None:
    """It counts as no answer."""
    status, text, value, _ = push_response(raw)

    assert (0, None) == (status, value)
    assert why in text
    assert len(text) <= 1_000


# --- the deadline


def many(part: bytes, *, before: bytes) -> Iterator[bytes]:
    """Yield a body without an end, as fast as the client reads it."""
    yield before
    with contextlib.suppress(ConnectionError):
        while True:
            yield part


@pytest.mark.parametrize(
    ("before", "part"),
    [
        (b"", b"HTTP/1.1 103 E\r\n\r\n" * 1_000),
        (build_response_head(b"Content-Encoding: gzip"), gzip.compress(b"") * 1_000),
        (build_response_head(b"Content-Encoding: gzip") + gzip.compress(b"")[:10], b"\x00\x00\x00\xff\xff" * 10_000),
        (build_response_head(b"Transfer-Encoding: chunked"), b"1\r\n\xff\r\n" * 1_000),
    ],
    ids=["1xx", "empty gzips", "empty blocks", "chunks of a byte"],
)
def test_an_answer_without_an_end_is_cut_off(
    loopback_api: Any, write_library: Callable[..., Path], before: bytes, part: bytes
) -> None:
    """The timeout includes decompression, joining and headers. The row gets "no answer"."""

    def reply(handler: http.server.BaseHTTPRequestHandler, _seen: object) -> None:
        for piece in many(part, before=before):
            handler.wfile.write(piece)

    loopback_api.reply_function = reply
    text = (RESPONSE_PUSH % loopback_api.url).replace('"timeout": 20', '"timeout": 0.5')
    library = load_library(write_library(crm=text))
    with ApiClient(library.config, secrets={}.get) as api:
        status, text, _, _ = push_one_row(library, api.begin_calls())

    assert (0, "no answer: timed out (ReadTimeout)") == (status, text)


@pytest.mark.parametrize("charset", ["utf-8", "cp1253", "punycode"])
def test_the_timeout_is_checked_while_a_body_is_decoded(charset: str) -> None:
    """It is checked once per million bytes, because some charsets need minutes for 50 MB."""
    looks: list[int] = []
    headers = {"content-type": f"text/plain; charset={charset}"}
    read_response_text([b"a" * 5_000_000], headers, check_time=lambda: looks.append(1))

    assert 6 == len(looks)
