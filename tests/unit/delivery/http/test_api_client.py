"""One call of an API: who gets the credentials, what is tried again, what the caller sees."""

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
    """Answers with the given responses one after the other, the last one for ever; keeps the requests."""

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


# --- what is sent


def test_a_call_goes_below_base_url() -> None:
    """With the body as it was given."""
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
    """APIs that take no JSON want one of these."""
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
def test_credentials_go_to_base_urls_host(auth: object, header: str, expected: str) -> None:
    """In the form that the API wants."""
    server = ScriptedServer()
    calls_of(server, auth=auth).send_call(a_post())

    assert expected == server.requests[0].headers[header]


def test_a_key_may_be_a_parameter() -> None:
    """Beside the call's own."""
    server = ScriptedServer()
    calls_of(server, auth=ParamAuth(Variable("KEY"), "api_key")).send_call(a_post("/c?a=1"))

    assert "https://api.test/v1/c?a=1&api_key=s3cr3t-key" == str(server.requests[0].url)


def test_headers_of_the_config_and_of_the_call_are_joined() -> None:
    """The call's own win, whatever their case."""
    server = ScriptedServer()
    headers = (("X-Team", "red"), ("X-Token", Variable("OTHER")), ("Content-Type", "text/x"))
    calls_of(server, headers=headers).send_call(a_post(headers={"x-team": "blue", "X-Number": 4, "X-None": None}))

    sent = server.requests[0].headers
    assert ("blue", "0ther-secret", "4") == (sent["x-team"], sent["x-token"], sent["x-number"])
    assert "x-none" not in sent


def test_another_host_gets_no_credentials() -> None:
    """Neither the key, nor the headers of the config, nor the parameter; no token is asked for either."""
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


def test_an_absolute_address_on_base_urls_host_is_home() -> None:
    """APIs hand out such links for the next page."""
    server = ScriptedServer()
    calls_of(server, auth=BearerAuth(Variable("KEY"))).send_call(HttpCall(method="GET", url="https://api.test/v2/x"))

    assert "Bearer s3cr3t-key" == server.requests[0].headers["authorization"]


@pytest.mark.parametrize("host", ["Files.test", "files.test:443", "[::1]:8080"])
def test_a_host_may_be_allowed_in_any_spelling(host: str) -> None:
    """As people write them."""
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
def test_a_wrong_address_is_refused_and_nothing_is_sent(url: str) -> None:
    """With a reason, and without an exception."""
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
    """A line break in a header would be a second request."""
    server = ScriptedServer()
    answer = calls_of(server).send_call(a_post(**fields))  # type: ignore[arg-type]

    assert ([], False, 0) == (server.requests, answer.is_success, answer.status_code)


# --- what is tried again


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_passing_failure_is_tried_again(status: int) -> None:
    """Up to `retry` times more, waiting longer each time."""
    slept: list[float] = []
    server = ScriptedServer(httpx.Response(status), httpx.Response(status), httpx.Response(200))
    calls = an_api(server, slept=slept, backoff_seconds=2.0).begin_calls()

    assert calls.send_call(a_post()).is_success
    assert [2.0, 4.0] == slept
    assert CallCounts(calls=1, is_answered=True, last_status=200) == calls.call_counts
    assert 3 == len(server.requests)


def test_a_lasting_failure_ends() -> None:
    """`retry: 3` is up to four requests; the last answer is the answer."""
    server = ScriptedServer(httpx.Response(503, text="down"))
    calls = calls_of(server, retry=3)
    answer = calls.send_call(a_post())

    assert (4, False, 503, "down") == (len(server.requests), answer.is_success, answer.status_code, answer.text)
    assert calls.call_counts.is_outage


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 301])
def test_a_lasting_answer_is_not_tried_again(status: int) -> None:
    """The API has said no; a redirect isn't followed, since it would carry the key along."""
    server = ScriptedServer(httpx.Response(status, headers={"Location": "https://evil.test/"}))
    calls = calls_of(server)

    assert (False, status) == ((answer := calls.send_call(a_post())).is_success, answer.status_code)
    assert 1 == len(server.requests)
    assert not calls.call_counts.is_outage


def test_a_connection_fault_is_tried_again_and_then_told() -> None:
    """status_code 0 and why, without the secret that the address holds."""
    server = ScriptedServer(httpx.ConnectError("no route to api.test?api_key=s3cr3t-key"))
    calls = calls_of(server, auth=ParamAuth(Variable("KEY"), "api_key"), retry=1)
    answer = calls.send_call(a_post())

    assert (2, 0) == (len(server.requests), answer.status_code)
    assert "no answer: no route to api.test?api_key=*** (ConnectError)" == answer.text
    assert CallCounts(calls=1, unanswered_calls=1, outage_calls=1, last_status=0) == calls.call_counts


@pytest.mark.parametrize(
    ("last", "unanswered"), [(httpx.Response(200), 0), (httpx.Response(500), 1), (httpx.Response(409), 1)]
)
def test_an_unanswered_try_leaves_open_what_was_done(last: httpx.Response, unanswered: int) -> None:
    """Only a success tells for sure; a 409 may well say that the first try came through."""
    server = ScriptedServer(httpx.ReadTimeout("late"), last)
    calls = calls_of(server, retry=1)
    calls.send_call(a_post())

    assert unanswered == calls.call_counts.unanswered_calls


def test_a_call_that_failed_after_a_crash_may_have_been_done_before_it(tmp_path: Path) -> None:
    """It may be the one that was under way; and the journal remembers what stayed open."""
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


def test_the_server_may_say_when() -> None:
    """Retry-After is waited out."""
    slept: list[float] = []
    server = ScriptedServer(httpx.Response(429, headers={"Retry-After": "7"}), httpx.Response(200))
    an_api(server, slept=slept).begin_calls().send_call(a_post())

    assert [7.0] == slept


def test_an_unanswered_try_keeps_its_idempotency_key_and_an_answered_one_does_not() -> None:
    """Some APIs give a stored 500 again under the key that got it."""
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
def test_what_may_be_repeated_anyway_has_no_idempotency_key(method: str, *, expected: bool) -> None:
    """And two equal calls are two calls."""
    server = ScriptedServer()
    calls = calls_of(server)
    for _ in range(2):
        calls.send_call(HttpCall(method=method, url="/c"))

    keys = [request.headers.get("idempotency-key") for request in server.requests]
    assert [expected, expected] == [key is not None for key in keys]
    assert expected == (keys[0] != keys[1])


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key"])
def test_a_key_of_push_s_own_wins(name: str) -> None:
    """Also at a second try after an answered failure: it is push's word."""
    server = ScriptedServer(httpx.Response(500), httpx.Response(200))
    calls_of(server).send_call(a_post(headers={name: "mine"}))

    assert [["mine"], ["mine"]] == [request.headers.get_list("idempotency-key") for request in server.requests]


def test_ctrl_c_comes_out_as_itself() -> None:
    """A call never raises what is the call's; this isn't."""
    server = ScriptedServer()

    def interrupted(_: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    calls = an_api(interrupted).begin_calls()
    with pytest.raises(KeyboardInterrupt):
        calls.send_call(a_post())
    assert [] == server.requests


# --- what comes back


def test_a_packed_answer_is_unpacked() -> None:
    """As the server packs what it is asked to."""
    body = gzip.compress("größe".encode())
    server = ScriptedServer(httpx.Response(200, content=body, headers={"Content-Encoding": "gzip"}))

    assert "größe" == calls_of(server).send_call(a_post()).text


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("after", [b"", b"\n", bytes(9)])
def test_an_answer_may_be_packed_in_several_parts(chunk: int, after: bytes) -> None:
    """As servers do that pack while they write; the first part alone passes for the whole."""
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
    """Whatever the server says of its charset."""
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
def test_an_answer_that_can_not_be_read_is_no_success(headers: dict[str, str], body: bytes) -> None:
    """Nor is it asked for again: the server has done what it did."""

    # a stream: httpx itself would look into a body that is given at once
    server = ScriptedServer(httpx.Response(200, headers=headers, stream=httpx.ByteStream(body)))
    calls = calls_of(server)
    answer = calls.send_call(a_post())

    assert (False, 0, 1) == (answer.is_success, answer.status_for_push, len(server.requests))
    assert 1 == calls.call_counts.unanswered_calls


# --- over a crash


def test_an_answered_call_is_not_sent_again(tmp_path: Path) -> None:
    """The journal answers, also with what was no success; the counts are those of the first time.

    The answer is the same to the letter: a record whose number has an account's in it isn't another one now.
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


def test_a_call_whose_key_was_refused_is_made_again_after_a_crash(tmp_path: Path) -> None:
    """Nothing was done, and by then somebody has mended the key: the old answer would be a failed try."""
    server = ScriptedServer(httpx.Response(401, text="no such key"), httpx.Response(201, text="made"))
    api = an_api(server)
    path = tmp_path / "crm.journal"
    assert 401 == api.begin_calls(ResponseJournal.open(path, "seed")).send_call(a_post()).status_code
    assert "made" == api.begin_calls(ResponseJournal.open(path, "seed")).send_call(a_post()).text

    first, second = server.requests
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


def test_an_unanswered_call_is_sent_again_under_its_key(tmp_path: Path) -> None:
    """It may have arrived."""
    server = ScriptedServer(httpx.ReadError("gone"))
    api = an_api(server, retry=0)
    for _ in range(2):
        api.begin_calls(ResponseJournal.open(tmp_path / "crm.journal", "seed")).send_call(a_post())

    first, second = server.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


# --- settings


def test_a_missing_variable_is_told_before_anything_is_sent() -> None:
    """All of them, by name."""
    with pytest.raises(SettingsError, match=r"lib/crm.star needs EMPTY, GONE; set it in .env") as error:
        ApiClient(a_config(env=("GONE", "EMPTY", "KEY")), secrets={**SECRETS, "EMPTY": ""}.get)
    assert "s3cr3t" not in str(error.value)


def test_a_secret_that_can_not_be_a_header_is_told_without_being_shown() -> None:
    """A line break at its end is left out; one in the middle is a mistake."""
    auth = BearerAuth(Variable("KEY"))
    ApiClient(a_config(auth=auth), secrets={"KEY": "abcdef\n"}.get).close()
    with pytest.raises(SettingsError, match="line break") as error:
        ApiClient(a_config(auth=auth), secrets={"KEY": "abc\ndef"}.get)
    assert "def" not in str(error.value)


def test_a_secret_that_is_no_text_is_told_without_being_shown() -> None:
    """The environment may hold any bytes."""
    with pytest.raises(SettingsError, match=r"lib/crm.star needs KEY, which is not UTF-8") as error:
        ApiClient(a_config(auth=BearerAuth(Variable("KEY"))), secrets={"KEY": "abc\udcffdef"}.get)
    assert "abc" not in str(error.value)


def test_nothing_shows_a_secret() -> None:
    """Values stand in tracebacks and logs by their repr."""
    api = an_api(ScriptedServer(), auth=BearerAuth(Variable("KEY")), env=("OTHER",))
    prepared = api.builder.build_request(a_post())

    assert "s3cr3t" not in f"{api!r} {api.begin_calls()!r} {prepared!r} {api.config!r} {api.redactor!r}"
