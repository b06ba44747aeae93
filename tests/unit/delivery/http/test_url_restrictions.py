"""The URLs that a call may use: only the host of base_url gets the key, and no path leaves base_url."""

from collections.abc import Iterator
from typing import Any

import pytest

from ondatra_dagster.delivery.http.api_client import ApiClient, BatchCalls
from ondatra_dagster.delivery.http.request_builder import HttpCall
from ondatra_dagster.delivery.push.push_config import BearerAuth, PushConfig, Variable

KEY = "kanarie-1234"


@pytest.fixture
def calls(loopback_api: Any) -> Iterator[BatchCalls]:
    """Yield the calls of the loopback server. It also has the name localhost, which gets no key."""
    config = PushConfig(
        name="x",
        file="lib/x.star",
        destination="x",
        object="x",
        base_url=f"{loopback_api.url}/api",
        allow_hosts=(f"localhost:{port_of(loopback_api)}",),
        auth=BearerAuth(Variable("KEY")),
        retry=0,
    )
    with ApiClient(config, secrets={"KEY": KEY}.get) as api:
        yield api.begin_calls()


def port_of(loopback_api: Any) -> str:
    return str(loopback_api.url.rpartition(":")[2])


def a_get(calls: BatchCalls, url: str, **fields: Any) -> Any:
    return calls.send_call(HttpCall(method="GET", url=url, **fields))


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.2:PORT/x", "//127.0.0.2:PORT/x", "///127.0.0.2:PORT/x", "//", "///"),
        *("http://evil@127.0.0.1:PORT/x", "http://127.0.0.1:PORT@127.0.0.2:PORT/x"),
        *("http://127.0.0.1%2f@127.0.0.2:PORT/", "http://127.0.0.1:PORT.evil.com/x"),
        *("http://2130706434:PORT/x", "http://0x7f.0.0.2:PORT/x", "http://0177.0.0.2:PORT/x"),
        *("http://0:PORT/x", "http://127.1:PORT/x", "http://[::1]:PORT/x", "http://[::ffff:127.0.0.2]:PORT/x"),
        *("http://localhost.:PORT/x", "http://localhost/x", "https://127.0.0.1:PORT/x", "http://127.0.0.1:1/x"),
        *("http://127.0.0.1:99999/x", "http://127.0.0.1:-1/x", "http://127.0.0.1:0/x"),
        *("http:/127.0.0.2:PORT/x", "http:\\\\127.0.0.2:PORT/x", "\\\\127.0.0.2/x"),
        *("http://127.0.0.1:PORT\t.evil/x", "\thttp://127.0.0.2:PORT/", "ht\ntp://127.0.0.2/"),
        *("file:///etc/passwd", "ftp://127.0.0.1/x", "javascript:1"),
        *("http://\uff11\uff12\uff17.0.0.2:PORT/x", "http://127\u30020\u30020\u30022:PORT/x"),
        *("/x\r\nX-Evil: 1", "/x\0y", "/x?\r\nA: b", "/" + "a" * 70_000),
        *("/a/../../secret", "/a/%2e%2e/secret", "/a/%252e%252e/secret", "/a/%25252e./secret", "/a/.%2e/secret"),
        *("/a/..%2fsecret", "/a%2f..%2fsecret", "/a/..%5csecret", "/a/..\\secret", "../secret", ".."),
        *("/a/..;/secret", "/..;a=b/secret", "/%2e%2e%3b/secret", "/a/..%3fx/secret", "/a/..%23/secret"),
        *("/a/..%00/secret", "/a/..%09/secret", "/a/.. /secret", "/a/..%20/secret", "/a/.%0d./secret"),
        *("/a/\uff0e\uff0e/secret", "/a/%c0%ae%c0%ae/secret", "/a/%u002e%u002e/secret", "/a\uff0f..\uff0fsecret"),
        *("/%2e%2e", "/%2E%2E%2Fsecret", "http://127.0.0.1:PORT/api/../secret"),
    ],
)
def test_a_url_that_leads_elsewhere_is_not_called(loopback_api: Any, calls: BatchCalls, url: str) -> None:
    """This covers other hosts in any spelling, ports, schemes, paths that leave base_url, and line breaks."""
    answer = a_get(calls, url.replace("PORT", port_of(loopback_api)))

    assert (0, True) == (answer.status_code, answer.is_refused)
    assert answer.text.startswith("not sent: ")
    assert [] == loopback_api.requests


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("", "/api"),
        ("/", "/api/"),
        ("/x", "/api/x"),
        ("/x y", "/api/x%20y"),
        ("/x?a=../../y", "/api/x?a=../../y"),
        ("?x=../../y", "/api?x=../../y"),
        ("#/../x", "/api/"),
        ("/x;a=..", "/api/x;a=.."),
        ("/a/...//x", "/api/a/...//x"),
        ("/x%0d%0aX-Evil: 1", "/api/x%0d%0aX-Evil:%201"),
        ("/\\127.0.0.2:1/x", "/api/\\127.0.0.2:1/x"),
        (" http://127.0.0.2:1/x", "/api/%20http://127.0.0.2:1/x"),
        ("@127.0.0.2:1/x", "/api/@127.0.0.2:1/x"),
        (":1@127.0.0.2/", "/api/:1@127.0.0.2/"),
        (".evil.com/x", "/api/.evil.com/x"),
        ("HTTP://127.0.0.1:PORT/x", "/x"),
        ("http://127.0.0.1:PORT#@127.0.0.2/x", "/"),
        ("http://127.0.0.1:PORT?@127.0.0.2/x", "/?@127.0.0.2/x"),
    ],
)
def test_a_url_on_the_host_of_base_url_is_called_with_the_key(
    loopback_api: Any, calls: BatchCalls, url: str, path: str
) -> None:
    """A text in it that looks like another host is part of the path."""
    assert a_get(calls, url.replace("PORT", port_of(loopback_api))).is_success

    (request,) = loopback_api.requests
    assert (path, f"Bearer {KEY}") == (request.path, request.headers["authorization"])


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST"])
def test_an_allowed_host_gets_no_key(loopback_api: Any, calls: BatchCalls, host: str) -> None:
    """It may belong to another company."""
    assert a_get(calls, f"http://{host}:{port_of(loopback_api)}/x").is_success

    assert KEY not in str(loopback_api.requests)


@pytest.mark.parametrize(
    "headers",
    [
        *({"X": "a\r\nEvil: 1"}, {"X": "a\nEvil: 1"}, {"X": "a\rEvil: 1"}, {"X": "a\0b"}),
        *({"X": "a\x1b[2J"}, {"X": "\x7f"}, {"X": "a\x0bb"}, {"X": "a\x0cb"}, {"X": "\x01"}, {"X": "a\x1c"}),
        *({"X": "\x85Evil: 1"}, {"X": "a\x9b31m"}, {"X": "a\u2028b"}, {"X": "\u2029"}),
        *({"X\r\nEvil": "1"}, {"": "x"}, {"X:Y": "1"}, {" X": "1"}, {"X\0": "1"}, {"\xc4": "1"}),
        *({"Host": "evil"}, {"HOST ": "evil"}, {"content-length": "0"}),
        *({"Transfer-Encoding": "chunked"}, {"Connection": "close"}),
    ],
)
def test_a_header_that_could_change_the_message_is_refused(
    loopback_api: Any, calls: BatchCalls, headers: dict[str, str]
) -> None:
    """This covers line breaks, terminal escapes, and headers that define where a message ends."""
    answer = a_get(calls, "/x", headers=headers)

    assert (0, True, []) == (answer.status_code, answer.is_refused, loopback_api.requests)
    assert answer.text.startswith("not sent: ")


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("a\tb", "a\tb"),
        (" x \r\n", "x"),
        ("\u010d\u010aEvil: 1", "\u010d\u010aEvil: 1"),
        ("a" * 50_000, "a" * 50_000),
        (4, "4"),
    ],
)
def test_other_header_values_are_sent(loopback_api: Any, calls: BatchCalls, value: object, sent: str) -> None:
    """HTTP allows a tab, and a secret read from a file ends with a line break."""
    assert a_get(calls, "/x", headers={"X": value}).is_success

    (request,) = loopback_api.requests
    assert sent == request.headers["x"].encode("latin-1").decode()
    assert "evil" not in request.headers
