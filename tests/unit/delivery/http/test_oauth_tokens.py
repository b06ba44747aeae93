"""The OAuth tokens of a push function: a token server next to the API, whose tokens expire, are revoked and rotate."""

import json
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from ondatra_dagster.delivery.http.api_client import ApiClient, BatchCalls, RetryClock
from ondatra_dagster.delivery.http.request_builder import HttpCall
from ondatra_dagster.delivery.push.push_config import OAuth2, PushConfig, Variable

SECRETS = {"CLIENT": "cl:ient-canary", "SECRET": "s3cret/canary+", "REFRESH": "refresh-canary-0"}


class TokenClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class TokenServer:
    """A token server at /token, and an API that accepts the tokens which are valid at the moment."""

    def __init__(self, loopback_api: Any, make_reply: Callable[..., Any]) -> None:
        self.url = loopback_api.url
        self.asked: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.calls: list[tuple[str, str, int]] = []  # path, Idempotency-Key, status
        self.good: set[str] = set()
        self.refresh: str | None = None  # the valid one, if this server rotates them
        self.life: object = 3600
        self.refusals: list[tuple[int, dict[str, str]]] = []
        self._reply = make_reply
        self._lock = threading.Lock()
        loopback_api.reply_function = self.answer

    def answer(self, handler: Any, seen: Any) -> None:
        with self._lock:
            status, body = self._token(seen) if seen.path == "/token" else self._call(seen)
        self._reply(status, json.dumps(body).encode())(handler, seen)

    def _token(self, seen: Any) -> tuple[int, object]:
        form = {name: values[0] for name, values in parse_qs(seen.body).items()}
        self.asked.append(form)
        self.headers.append(seen.headers)
        if self.refusals:
            return self.refusals.pop(0) if len(self.refusals) > 1 else self.refusals[0]
        if self.refresh and form["refresh_token"] != self.refresh:
            return 400, {"error": "invalid_grant", "error_description": f"used: {form['refresh_token']}"}
        token = f"access-canary-{len(self.asked)}"
        self.good = {token}
        body: dict[str, object] = {"access_token": token, "token_type": "bearer", "expires_in": self.life}
        if self.refresh:
            body["refresh_token"] = self.refresh = f"refresh-canary-{len(self.asked)}"
        return 200, body

    def _call(self, seen: Any) -> tuple[int, object]:
        token = seen.headers.get("authorization", "").removeprefix("Bearer ")
        status = 200 if token in self.good else 401
        self.calls.append((seen.path, seen.headers.get("idempotency-key", ""), status))
        return status, {"echo": token}


@pytest.fixture
def server(loopback_api: Any, make_reply: Callable[..., Any]) -> TokenServer:
    return TokenServer(loopback_api, make_reply)


@pytest.fixture
def open_api(server: TokenServer, tmp_path: Path) -> Iterator[Callable[..., ApiClient]]:
    opened: list[ApiClient] = []

    def an_api(clock: Callable[[], float] | None = None, retry: int = 0, **oauth: Any) -> ApiClient:
        auth = OAuth2(
            **{"token_url": "/token", "client_id": Variable("CLIENT"), "client_secret": Variable("SECRET"), **oauth}
        )
        config = PushConfig(
            name="crm",
            file="lib/crm.star",
            destination="crm",
            object="crm",
            base_url=server.url,
            auth=auth,
            retry=retry,
        )
        api = ApiClient(
            config,
            secrets=SECRETS.get,
            retry_clock=RetryClock(now=clock or TokenClock(), sleep=lambda _: None),
            token_folder=tmp_path / "tokens",
        )
        opened.append(api)
        return api

    yield an_api
    for api in opened:
        api.close()


ROTATING = {"refresh_token": Variable("REFRESH")}


def a_post(calls: BatchCalls, path: str = "/c") -> int:
    return calls.send_call(HttpCall(method="POST", url=path, json="1")).status_code


def test_a_token_is_requested_with_the_client_credentials(
    server: TokenServer, open_api: Callable[..., ApiClient]
) -> None:
    """It is requested once, for any number of calls."""
    calls = open_api(scope="a b", params=(("audience", "crm"),)).begin_calls()

    assert [200, 200] == [a_post(calls), a_post(calls)]
    expected = {
        "grant_type": "client_credentials",
        "client_id": SECRETS["CLIENT"],
        "client_secret": SECRETS["SECRET"],
        "scope": "a b",
        "audience": "crm",
    }
    assert [expected] == server.asked
    assert "authorization" not in server.headers[0]


def test_the_client_credentials_may_be_sent_with_basic_authentication(
    server: TokenServer, open_api: Callable[..., ApiClient]
) -> None:
    """They are quoted first, because the id may contain a colon."""
    assert 200 == a_post(open_api(client_auth="basic").begin_calls())
    assert [{"grant_type": "client_credentials"}] == server.asked
    assert "Basic Y2wlM0FpZW50LWNhbmFyeTpzM2NyZXQlMkZjYW5hcnklMkI=" == server.headers[0]["authorization"]


@pytest.mark.parametrize(("life", "expected"), [(100, 2), ("100", 2), (None, 1), (True, 1)])
def test_a_token_is_renewed_before_it_expires(
    server: TokenServer, open_api: Callable[..., ApiClient], life: object, expected: int
) -> None:
    """It is renewed after nine tenths of its lifetime. A token without a lifetime is used until the API refuses it."""
    server.life = life
    clock = TokenClock()
    calls = open_api(clock).begin_calls()
    for later in (0.0, 89.0, 91.0):
        clock.now = 1_000_000.0 + later
        assert 200 == a_post(calls)

    assert expected == len(server.asked)
    assert [200, 200, 200] == [status for _, _, status in server.calls]


@pytest.mark.parametrize(("back", "expected"), [(240, 1), (86_400, 2)])
def test_a_token_is_renewed_after_the_clock_was_set_back_a_day(
    server: TokenServer, open_api: Callable[..., ApiClient], back: int, expected: int
) -> None:
    """With the correct clock it would seem valid for days after its end."""
    clock = TokenClock()
    calls = open_api(clock).begin_calls()
    assert 200 == a_post(calls)
    clock.now -= back
    assert 200 == a_post(calls)
    assert expected == len(server.asked)


def test_a_refused_token_is_renewed_once(server: TokenServer, open_api: Callable[..., ApiClient]) -> None:
    """push() doesn't see the 401. The call is sent again with a new Idempotency-Key."""
    calls = open_api().begin_calls()
    a_post(calls)
    server.good.clear()

    assert 200 == a_post(calls, "/d")
    assert 2 == len(server.asked)
    first, second = [key for path, key, _ in server.calls if path == "/d"]
    assert first != second


def test_push_gets_a_401_when_a_new_token_is_refused_too(
    server: TokenServer, open_api: Callable[..., ApiClient]
) -> None:
    """The token is renewed once in a call, and not before each retry."""
    calls = open_api(retry=3).begin_calls()
    server.refusals = [(200, {"access_token": "access-canary-x"})]

    assert 401 == a_post(calls)
    assert [401, 401] == [status for _, _, status in server.calls]
    assert 2 == len(server.asked)


def test_threads_share_one_token(server: TokenServer, open_api: Callable[..., ApiClient]) -> None:
    """When eight threads find that a token was revoked, they request one new token."""
    api = open_api()
    a_post(api.begin_calls())
    server.good.clear()
    together = threading.Barrier(8)
    statuses = []

    def work() -> None:
        calls = api.begin_calls()
        together.wait()
        statuses.append(a_post(calls))

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert [200] * 8 == statuses
    assert 2 == len(server.asked)


def test_a_token_is_requested_with_a_refresh_token(server: TokenServer, open_api: Callable[..., ApiClient]) -> None:
    """A client without a secret may have a refresh token too."""
    api = open_api(client_secret=None, **ROTATING)

    assert 200 == a_post(api.begin_calls())
    expected = {"grant_type": "refresh_token", "refresh_token": SECRETS["REFRESH"], "client_id": SECRETS["CLIENT"]}
    assert [expected] == server.asked


def test_a_rotated_refresh_token_is_stored_for_the_next_run(
    server: TokenServer, open_api: Callable[..., ApiClient], tmp_path: Path
) -> None:
    """Only the file's owner may read it. The next run requests no token while the stored one is valid."""
    server.refresh = SECRETS["REFRESH"]
    clock = TokenClock()
    assert 200 == a_post(open_api(clock, **ROTATING).begin_calls())
    assert 200 == a_post(open_api(clock, **ROTATING).begin_calls())
    assert 1 == len(server.asked)
    clock.now += 4000
    assert 200 == a_post(open_api(clock, **ROTATING).begin_calls())

    assert [SECRETS["REFRESH"], "refresh-canary-1"] == [form["refresh_token"] for form in server.asked]
    folder = tmp_path / "tokens"
    assert 0o700 == stat.S_IMODE(folder.stat().st_mode)
    assert {0o600} == {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def test_two_runs_do_not_use_the_same_refresh_token(server: TokenServer, open_api: Callable[..., ApiClient]) -> None:
    """Servers that rotate tokens treat the second use as a theft, and revoke all of them."""
    server.refresh = SECRETS["REFRESH"]
    runs = [open_api(**ROTATING).begin_calls() for _ in range(2)]
    together = threading.Barrier(2)
    statuses = []

    def work(calls: BatchCalls) -> None:
        together.wait()
        statuses.append(a_post(calls))

    workers = [threading.Thread(target=work, args=(calls,)) for calls in runs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert [200, 200] == statuses
    assert 1 == len(server.asked)


def test_a_new_refresh_token_in_the_settings_replaces_the_stored_one(
    server: TokenServer, open_api: Callable[..., ApiClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored token came from the user's old one."""
    server.refresh = SECRETS["REFRESH"]
    a_post(open_api(**ROTATING).begin_calls())
    monkeypatch.setitem(SECRETS, "REFRESH", "refresh-canary-anew")
    server.refresh = "refresh-canary-anew"

    assert 200 == a_post(open_api(**ROTATING).begin_calls())


def test_a_damaged_token_file_is_ignored(
    server: TokenServer, open_api: Callable[..., ApiClient], tmp_path: Path
) -> None:
    """The user's refresh token from the settings is used instead."""
    server.refresh = SECRETS["REFRESH"]
    a_post(open_api(**ROTATING).begin_calls())
    (token_file,) = (tmp_path / "tokens").glob("*.json")
    token_file.write_text("[")
    server.refresh = SECRETS["REFRESH"]

    assert 200 == a_post(open_api(**ROTATING).begin_calls())


def test_after_a_refusal_the_token_server_gets_no_second_request(
    server: TokenServer, open_api: Callable[..., ApiClient]
) -> None:
    """More requests could lock the account. The rows have no fault, so the batch is an outage."""
    server.refusals = [(401, {"error": "invalid_client", "error_description": f"no {SECRETS['SECRET']}"})]
    calls = open_api(retry=3).begin_calls()
    answers = [calls.send_call(HttpCall(method="POST", url="/c")) for _ in range(3)]

    text = "not sent: no token from /token: it answered 401: invalid_client, no ***; look at CLIENT, SECRET"
    assert {(0, text)} == {(answer.status_code, answer.text) for answer in answers}
    assert (1, []) == (len(server.asked), server.calls)
    assert calls.call_counts.is_outage
    assert 0 == calls.call_counts.unanswered_calls


def test_a_token_server_that_is_down_is_asked_again_after_31_seconds(
    server: TokenServer, open_api: Callable[..., ApiClient]
) -> None:
    """It gets as many retries as the API. For the next half minute, calls don't wait for it."""
    server.refusals = [(503, {})]
    clock = TokenClock()
    calls = open_api(clock, retry=2).begin_calls()
    assert [0, 0] == [a_post(calls), a_post(calls)]
    assert 3 == len(server.asked)
    server.refusals = []
    clock.now += 31

    assert 200 == a_post(calls)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"access_token": ""},
        {"access_token": "a\r\nX: y"},
        {"access_token": "a", "token_type": "mac"},
        {"access_token": 3},
    ],
)
def test_a_token_answer_without_a_usable_token_is_an_error(
    server: TokenServer, open_api: Callable[..., ApiClient], body: dict[str, str]
) -> None:
    """The value is never sent: a line break in it would make a second header."""
    server.refusals = [(200, body)]
    answer = open_api().begin_calls().send_call(HttpCall(method="GET", url="/c"))

    assert (0, []) == (answer.status_code, server.calls)
    assert answer.text.startswith("not sent: no token from /token: it")


def test_no_token_is_shown(server: TokenServer, open_api: Callable[..., ApiClient]) -> None:
    """Tokens that were received during the run are masked like the secrets in .env."""
    server.refresh = SECRETS["REFRESH"]
    api = open_api(**ROTATING)
    calls = api.begin_calls()
    answer = calls.send_call(HttpCall(method="POST", url="/c", json="1"))

    assert "access-canary-1" in answer.text
    assert '{"echo": "***"}' == api.redactor.redact(answer.text)
    shown = f"{api!r} {api.token_source!r} {vars(calls)!r} {api.config!r}"
    assert "canary" not in shown
