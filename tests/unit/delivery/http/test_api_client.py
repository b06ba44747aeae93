"""A call of an API: the request, its credentials, its retries, and the answer that push() gets."""

import gzip
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from ondatra_dagster.delivery.http.api_client import ApiClient, BatchCalls, CallCounts, RetryClock
from ondatra_dagster.delivery.http.request_builder import HttpCall
from ondatra_dagster.delivery.http.response_status_and_body_decoding import read_response_text
from ondatra_dagster.delivery.push.push_config import (
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    OAuth2,
    ParamAuth,
    PushConfig,
    Variable,
)
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.errors import SettingsError

SECRETS = {"KEY": "s3cr3t-key", "USER": "marta", "OTHER": "0ther-secret"}


def a_config(**fields: object) -> PushConfig:
    defaults = {"name": "crm", "file": "lib/crm.star", "destination": "crm", "object": "crm"}
    return PushConfig(**defaults | {"base_url": "https://api.test/v1"} | fields)  # type: ignore[arg-type]


class ScriptedServer:
    """A server that returns the responses one after the other, and the last one forever. It stores the requests."""

    def __init__(self, *responses: httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self._responses = list(responses) or [httpx.Response(200, json={})]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        response = self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]
        if isinstance(response, Exception):
            raise response
        return response


def an_api(
    server: Callable[[httpx.Request], httpx.Response], *, slept: list[float] | None = None, **fields: object
) -> ApiClient:
    return ApiClient(
        a_config(**fields),
        secrets=SECRETS.get,
        transport=httpx.MockTransport(server),
        retry_clock=RetryClock(now=lambda: 0.0, sleep=([] if slept is None else slept).append, random=lambda: 0.5),
    )


def calls_of(server: ScriptedServer, **fields: object) -> BatchCalls:
    return an_api(server, **fields).begin_calls()


def a_post(url: str = "/c", json: str | None = '{"a":1}', **fields: object) -> HttpCall:
    return HttpCall(method="POST", url=url, json=json, **fields)  # type: ignore[arg-type]


# --- requests


def test_the_path_of_a_call_is_joined_to_base_url() -> None:
    """The body is sent unchanged."""
    server = ScriptedServer(httpx.Response(201, text="made", headers={"Location": "/c/1"}))
    answer = calls_of(server).send_call(a_post(params={"q": "ä b", "on": True, "off": None, "id": [1, 2]}))

    (request,) = server.requests
    assert "https://api.test/v1/c?q=%C3%A4+b&on=true&id=1&id=2" == str(request.url)
    assert b'{"a":1}' == request.content
    assert "application/json" == request.headers["content-type"]
    assert (True, 201, "made", "/c/1") == (
        answer.is_success,
        answer.status_code,
        answer.text,
        answer.headers["location"],
    )


@pytest.mark.parametrize(
    ("data", "body", "content_type"),
    [
        ({"a": "x y", "b": 1}, b"a=x+y&b=1", "application/x-www-form-urlencoded"),
        ("a,b", b"a,b", "text/plain; charset=utf-8"),
    ],
)
def test_data_is_a_form_or_a_text(data: object, body: bytes, content_type: str) -> None:
    """APIs that accept no JSON need one of these."""
    server = ScriptedServer()
    calls_of(server).send_call(HttpCall(method="PUT", url="/c", data=data))

    assert (body, content_type) == (server.requests[0].content, server.requests[0].headers["content-type"])


@pytest.mark.parametrize(
    ("auth", "header", "expected"),
    [
        (BearerAuth(Variable("KEY")), "authorization", "Bearer s3cr3t-key"),
        (HeaderAuth(Variable("KEY"), "X-Api-Key"), "x-api-key", "s3cr3t-key"),
        (BasicAuth(Variable("USER"), Variable("KEY")), "authorization", "Basic bWFydGE6czNjcjN0LWtleQ=="),
    ],
)
def test_credentials_are_sent_to_the_host_of_base_url(auth: object, header: str, expected: str) -> None:
    """They have the form that the API expects."""
    server = ScriptedServer()
    calls_of(server, auth=auth).send_call(a_post())

    assert expected == server.requests[0].headers[header]


def test_an_api_key_may_be_a_query_parameter() -> None:
    """It is added to the parameters of the call."""
    server = ScriptedServer()
    calls_of(server, auth=ParamAuth(Variable("KEY"), "api_key")).send_call(a_post("/c?a=1"))

    assert "https://api.test/v1/c?a=1&api_key=s3cr3t-key" == str(server.requests[0].url)


def test_headers_of_the_config_and_of_the_call_are_joined() -> None:
    """The call's headers win, in upper or lower case."""
    server = ScriptedServer()
    headers = (("X-Team", "red"), ("X-Token", Variable("OTHER")), ("Content-Type", "text/x"))
    calls_of(server, headers=headers).send_call(a_post(headers={"x-team": "blue", "X-Number": 4, "X-None": None}))

    request_headers = server.requests[0].headers
    assert ("blue", "0ther-secret", "4") == (
        request_headers["x-team"],
        request_headers["x-token"],
        request_headers["x-number"],
    )
    assert "x-none" not in request_headers


def test_another_host_gets_no_credentials() -> None:
    """It gets no key, no header of the config and no parameter, and no token is requested for it."""
    server = ScriptedServer()
    fields = {"allow_hosts": ("files.test",), "headers": (("X-Token", Variable("OTHER")),)}
    oauth2 = OAuth2(token_url="/token", client_id="me", client_secret=Variable("KEY"))
    for auth in (BearerAuth(Variable("KEY")), ParamAuth(Variable("KEY"), "api_key"), oauth2):
        calls_of(server, auth=auth, **fields).send_call(a_post("https://files.test/x", headers={"X-Own": "1"}))

    assert 3 == len(server.requests)
    for request in server.requests:
        assert "s3cr3t" not in f"{request.url}{request.headers}"
        assert "0ther" not in str(request.headers)
        assert "1" == request.headers["x-own"]


def test_an_absolute_url_on_the_host_of_base_url_gets_the_credentials() -> None:
    """APIs return such URLs for the next page."""
    server = ScriptedServer()
    calls_of(server, auth=BearerAuth(Variable("KEY"))).send_call(HttpCall(method="GET", url="https://api.test/v2/x"))

    assert "Bearer s3cr3t-key" == server.requests[0].headers["authorization"]


@pytest.mark.parametrize("host", ["Files.test", "files.test:443", "[::1]:8080"])
def test_a_host_may_be_allowed_in_any_spelling(host: str) -> None:
    """Users write hosts in upper case, with a port, or as an IPv6 address."""
    server = ScriptedServer()
    url = "http://[::1]:8080/x" if host.startswith("[") else "https://FILES.test/x"

    assert calls_of(server, allow_hosts=(host,)).send_call(a_post(url)).is_success


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.test/c",
        "http://api.test/v1/c",
        "https://api.test:8443/c",
        "https://api.test.evil.test/c",
        "https://api.test@evil.test/c",
        "https://me@api.test/c",
        "//evil.test/c",
        "\\\\evil.test\\c",
        "file:///etc/passwd",
        "/c/../../admin",
        "/c/%2e%2e/admin",
        "/c\nX: y",
        "/c\x00",
        "http://[broken/",
        "https://" + "a" * 70_000,
    ],
)
def test_a_wrong_url_is_refused_and_nothing_is_sent(url: str) -> None:
    """The answer has the reason, and no exception is raised."""
    server = ScriptedServer()
    calls = calls_of(server, auth=BearerAuth(Variable("KEY")))
    answer = calls.send_call(a_post(url))

    assert [] == server.requests
    assert (False, 0, True) == (answer.is_success, answer.status_code, answer.is_refused)
    assert answer.text.startswith("not sent: ")
    assert not calls.call_counts.is_outage


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {"X": "a\r\nEvil: b"}},
        {"headers": {"X y": "a"}},
        {"headers": {"Content-Length": "1"}},
        {"headers": {"Host": "evil.test"}},
        {"headers": ["X"]},
        {"params": "a=b"},
        {"data": "x"},
        {"json": None, "data": 3},
        {"timeout": "soon"},
        {"timeout": 0},
        {"timeout": True},
    ],
)
def test_a_wrong_argument_is_refused_and_nothing_is_sent(fields: dict[str, object]) -> None:
    """A line break in a header would start a second request."""
    server = ScriptedServer()
    answer = calls_of(server).send_call(a_post(**fields))  # type: ignore[arg-type]

    assert ([], False, 0) == (server.requests, answer.is_success, answer.status_code)


# --- retries


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_temporary_failure_is_retried(status: int) -> None:
    """There are up to `retry` retries, and each waits longer."""
    slept: list[float] = []
    server = ScriptedServer(httpx.Response(status), httpx.Response(status), httpx.Response(200))
    calls = an_api(server, slept=slept, backoff_seconds=2.0).begin_calls()

    assert calls.send_call(a_post()).is_success
    assert [2.0, 4.0] == slept
    assert CallCounts(calls=1, is_answered=True, last_status=200) == calls.call_counts
    assert 3 == len(server.requests)


def test_a_permanent_failure_ends_the_retries() -> None:
    """`retry: 3` allows four requests, and push() gets the last answer."""
    server = ScriptedServer(httpx.Response(503, text="down"))
    calls = calls_of(server, retry=3)
    answer = calls.send_call(a_post())

    assert (4, False, 503, "down") == (len(server.requests), answer.is_success, answer.status_code, answer.text)
    assert calls.call_counts.is_outage


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 301])
def test_a_permanent_answer_is_not_retried(status: int) -> None:
    """The API has refused. A redirect isn't followed, because the other server would get the key."""
    server = ScriptedServer(httpx.Response(status, headers={"Location": "https://evil.test/"}))
    calls = calls_of(server)

    assert (False, status) == ((answer := calls.send_call(a_post())).is_success, answer.status_code)
    assert 1 == len(server.requests)
    assert not calls.call_counts.is_outage


def test_a_connection_error_is_retried_and_then_reported() -> None:
    """The answer has status_code 0 and the reason, without the secret in the URL."""
    server = ScriptedServer(httpx.ConnectError("no route to api.test?api_key=s3cr3t-key"))
    calls = calls_of(server, auth=ParamAuth(Variable("KEY"), "api_key"), retry=1)
    answer = calls.send_call(a_post())

    assert (2, 0) == (len(server.requests), answer.status_code)
    assert "no answer: no route to api.test?api_key=*** (ConnectError)" == answer.text
    assert CallCounts(calls=1, unanswered_calls=1, outage_calls=1, last_status=0) == calls.call_counts


@pytest.mark.parametrize(
    ("last", "unanswered"), [(httpx.Response(200), 0), (httpx.Response(500), 1), (httpx.Response(409), 1)]
)
def test_after_an_unanswered_try_only_a_success_settles_the_outcome(last: httpx.Response, unanswered: int) -> None:
    """A later 409 may mean that the first try arrived."""
    server = ScriptedServer(httpx.ReadTimeout("late"), last)
    calls = calls_of(server, retry=1)
    calls.send_call(a_post())

    assert unanswered == calls.call_counts.unanswered_calls


def test_a_call_that_fails_after_a_crash_counts_as_unanswered(tmp_path: Path) -> None:
    """It may have been in flight when the process crashed. The journal remembers calls with an unknown outcome."""
    server = ScriptedServer(httpx.Response(409))
    api = an_api(server)
    path = tmp_path / "crm.journal"
    first = api.begin_calls(ResponseJournal.open(path, "seed"))
    first.send_call(a_post(json="1"))
    again = api.begin_calls(ResponseJournal.open(path, "seed"))
    for body in ("1", "2"):
        again.send_call(a_post(json=body))
    third = api.begin_calls(ResponseJournal.open(path, "seed"))
    for body in ("1", "2"):
        third.send_call(a_post(json=body))

    assert [0, 1, 1] == [calls.call_counts.unanswered_calls for calls in (first, again, third)]


def test_a_retry_waits_as_long_as_retry_after_demands() -> None:
    slept: list[float] = []
    server = ScriptedServer(httpx.Response(429, headers={"Retry-After": "7"}), httpx.Response(200))
    an_api(server, slept=slept).begin_calls().send_call(a_post())

    assert [7.0] == slept


def test_only_an_unanswered_try_keeps_its_idempotency_key() -> None:
    """Some APIs return a stored 500 again for the same key."""
    fault = httpx.ReadError("gone")
    server = ScriptedServer(fault, httpx.Response(500), fault, httpx.Response(200))
    calls_of(server).send_call(a_post())

    first, second, third, fourth = [request.headers["idempotency-key"] for request in server.requests]
    assert first == second
    assert second != third
    assert third == fourth


@pytest.mark.parametrize(
    ("method", "expected"), [("POST", True), ("PATCH", True), ("PUT", False), ("DELETE", False), ("GET", False)]
)
def test_a_method_that_may_be_repeated_has_no_idempotency_key(method: str, *, expected: bool) -> None:
    """Two equal calls of the other methods have two keys."""
    server = ScriptedServer()
    calls = calls_of(server)
    for _ in range(2):
        calls.send_call(HttpCall(method=method, url="/c"))

    keys = [request.headers.get("idempotency-key") for request in server.requests]
    assert [expected, expected] == [key is not None for key in keys]
    assert expected == (keys[0] != keys[1])


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key"])
def test_an_idempotency_key_that_push_sets_wins(name: str) -> None:
    """It stays the same even after an answered failure, because push chose it."""
    server = ScriptedServer(httpx.Response(500), httpx.Response(200))
    calls_of(server).send_call(a_post(headers={name: "mine"}))

    assert [["mine"], ["mine"]] == [request.headers.get_list("idempotency-key") for request in server.requests]


def test_ctrl_c_is_not_caught_by_a_call() -> None:
    """A call returns its errors as an answer, but an interrupt isn't an error of the call."""
    server = ScriptedServer()

    def interrupted(_: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    calls = an_api(interrupted).begin_calls()
    with pytest.raises(KeyboardInterrupt):
        calls.send_call(a_post())
    assert [] == server.requests


# --- answers


def test_a_compressed_answer_is_decompressed() -> None:
    """Requests say that the server may use gzip."""
    body = gzip.compress("größe".encode())
    server = ScriptedServer(httpx.Response(200, content=body, headers={"Content-Encoding": "gzip"}))

    assert "größe" == calls_of(server).send_call(a_post()).text


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("after", [b"", b"\n", bytes(9)])
def test_an_answer_may_have_several_gzip_members(chunk: int, after: bytes) -> None:
    """Some servers compress while they write. The first member alone would look like a whole answer."""
    body = gzip.compress(b"hello ") + gzip.compress(b"wor") + gzip.compress(b"ld") + after
    chunks = [body[begin : begin + chunk] for begin in range(0, len(body), chunk)]

    assert "hello world" == read_response_text(chunks, {"content-encoding": "gzip"})


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/plain; charset=latin-1", "grün".encode("latin-1"), "grün"),
        ("text/plain; charset=nonsense", b"a", "a"),
        ("text/plain; charset=hex", b"a", "a"),
        ("text/plain; charset=idna", b"xn--a-ecp.ru", "xn--a-ecp.ru"),
        ("application/json", b"\xff", "\ufffd"),
    ],
)
def test_an_answer_is_always_a_text(content_type: str, body: bytes, expected: str) -> None:
    """The server may name any charset, even a wrong one."""
    server = ScriptedServer(httpx.Response(200, content=body, headers={"Content-Type": content_type}))

    assert expected == calls_of(server).send_call(a_post()).text


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Encoding": "gzip"}, b"not gzip"),
        ({"Content-Encoding": "gzip"}, gzip.compress(b"x" * 1000, mtime=0)[:-9]),
        ({"Content-Encoding": "gzip"}, gzip.compress(b"x", mtime=0) + gzip.compress(b"y", mtime=0)[:-9]),
        ({"Content-Encoding": "br"}, b"x"),
    ],
)
def test_an_answer_that_can_not_be_read_is_not_a_success(headers: dict[str, str], body: bytes) -> None:
    """The call isn't retried either, because the server has already acted on it."""

    # a stream, because httpx itself decodes a body that is passed as bytes
    server = ScriptedServer(httpx.Response(200, headers=headers, stream=httpx.ByteStream(body)))
    calls = calls_of(server)
    answer = calls.send_call(a_post())

    assert (False, 0, 1) == (answer.is_success, answer.status_for_push, len(server.requests))
    assert 1 == calls.call_counts.unanswered_calls


# --- after a crash


def test_an_answered_call_is_not_sent_again_after_a_crash(tmp_path: Path) -> None:
    """The journal also returns answers that weren't a success, and the call counts stay the same.

    The answer is identical, secrets included: a record's id that contains an account's number must not change.
    """
    echo = httpx.Response(201, text="made s3cr3t-key", headers={"X-Seen": "s3cr3t-key"})
    server = ScriptedServer(echo, httpx.Response(422, text="bad"))
    api = an_api(server, auth=BearerAuth(Variable("KEY")))
    path = tmp_path / "crm.journal"
    before = api.begin_calls(ResponseJournal.open(path, "seed"))
    for body in ("1", "2"):
        before.send_call(a_post(json=body))

    after = api.begin_calls(ResponseJournal.open(path, "seed"))
    answers = [after.send_call(a_post(json=body)) for body in ("1", "2")]

    assert 2 == len(server.requests)
    assert [(True, 201, "made s3cr3t-key"), (False, 422, "bad")] == [
        (answer.is_success, answer.status_code, answer.text) for answer in answers
    ]
    assert "s3cr3t-key" == answers[0].headers["x-seen"]
    assert CallCounts(calls=2, is_answered=True, last_status=422) == after.call_counts
    assert 0o600 == path.stat().st_mode & 0o777


def test_a_call_whose_credentials_were_refused_is_sent_again_after_a_crash(tmp_path: Path) -> None:
    """The API did nothing, and the user may have fixed the key by then. The old answer would count as a failed try."""
    server = ScriptedServer(httpx.Response(401, text="no such key"), httpx.Response(201, text="made"))
    api = an_api(server)
    path = tmp_path / "crm.journal"
    assert 401 == api.begin_calls(ResponseJournal.open(path, "seed")).send_call(a_post()).status_code
    assert "made" == api.begin_calls(ResponseJournal.open(path, "seed")).send_call(a_post()).text

    first, second = server.requests
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


def test_an_unanswered_call_is_sent_again_with_the_same_key(tmp_path: Path) -> None:
    """The request may have arrived."""
    server = ScriptedServer(httpx.ReadError("gone"))
    api = an_api(server, retry=0)
    for _ in range(2):
        api.begin_calls(ResponseJournal.open(tmp_path / "crm.journal", "seed")).send_call(a_post())

    first, second = server.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


# --- settings


def test_missing_variables_are_reported_before_anything_is_sent() -> None:
    """The error names all of them."""
    with pytest.raises(SettingsError, match=r"lib/crm.star needs EMPTY, GONE; set it in .env") as error:
        ApiClient(a_config(env=("GONE", "EMPTY", "KEY")), secrets={**SECRETS, "EMPTY": ""}.get)
    assert "s3cr3t" not in str(error.value)


def test_a_secret_with_a_line_break_is_reported_without_its_value() -> None:
    """A line break at its end is removed, but one in the middle is a mistake."""
    auth = BearerAuth(Variable("KEY"))
    ApiClient(a_config(auth=auth), secrets={"KEY": "abcdef\n"}.get).close()
    with pytest.raises(SettingsError, match="line break") as error:
        ApiClient(a_config(auth=auth), secrets={"KEY": "abc\ndef"}.get)
    assert "def" not in str(error.value)


def test_a_secret_that_is_not_utf_8_is_reported_without_its_value() -> None:
    """An environment variable may contain any bytes."""
    with pytest.raises(SettingsError, match=r"lib/crm.star needs KEY, which is not UTF-8") as error:
        ApiClient(a_config(auth=BearerAuth(Variable("KEY"))), secrets={"KEY": "abc\udcffdef"}.get)
    assert "abc" not in str(error.value)


def test_no_repr_shows_a_secret() -> None:
    """Tracebacks and logs contain the repr of values."""
    api = an_api(ScriptedServer(), auth=BearerAuth(Variable("KEY")), env=("OTHER",))
    prepared = api.builder.build_request(a_post())

    assert "s3cr3t" not in f"{api!r} {api.begin_calls()!r} {prepared!r} {api.config!r} {api.redactor!r}"
