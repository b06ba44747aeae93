"""The answers of the collector, over a real server on a loopback port, and which events are durable by then."""

import http.client
import socket
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.projects.event_project import EVENTS_PATH, JSON_HEADERS, VIEWS_MODEL, EventProject, RunningCollector

from ondatra_dagster.collector.event_store import event_store_path, read_page_after

TOKEN = "ONDATRA_EVENTS_TOKEN=s3cret-and-long\n"
GOOD = {"page": "/a"}


def kept(project: EventProject, model: str = "events.views") -> list[Any]:
    """Return the events of each request that another process sees in the file now."""
    page = read_page_after(event_store_path(project.settings), model, 0, limit=1000)
    return [orjson.loads(intake.body) for intake in page]


# --- accepted events


def test_an_event_is_durable_when_it_is_acknowledged(project: EventProject) -> None:
    """Another process sees it immediately, because it is in the file and not only in memory."""
    with project.running_collector() as serving:
        response = serving.client.post({"page": "/a", "seconds": 3})
        assert (202, {"accepted": 1}) == response[:2]
        assert [{"page": "/a", "seconds": 3}] == kept(project)


def test_a_batch_is_accepted_as_a_whole_or_not_at_all(project: EventProject) -> None:
    """A sender with an answer knows what to send again: the whole batch, or nothing."""
    with project.running_collector() as serving:
        assert (202, {"accepted": 2}) == serving.client.post([GOOD, {"page": "/b"}], f"{EVENTS_PATH}/batch")[:2]
        assert (202, {"accepted": 0}) == serving.client.post([], f"{EVENTS_PATH}/batch")[:2]
        response = serving.client.post([GOOD, {"page": 1}, {"seconds": "x"}], f"{EVENTS_PATH}/batch")
        assert 400 == response.status
        assert [
            {"index": 1, "field": "page", "problem": "is a number; expected STRING"},
            {"index": 2, "field": "seconds", "problem": "is a text; expected INT"},
            {"index": 2, "field": "page", "problem": "is missing; it is STRING NOT NULL"},
        ] == response.body["errors"]
        assert [[GOOD, {"page": "/b"}]] == kept(project)


def test_a_path_is_found_in_upper_and_lower_case(project: EventProject) -> None:
    """Names of models aren't case-sensitive."""
    with project.running_collector() as serving:
        assert 202 == serving.client.post(GOOD, "/Collect/EVENTS/Views").status


def test_a_request_that_is_repeated_with_its_key_is_stored_once(project: EventProject) -> None:
    """A sender without an answer repeats its request, and doesn't know whether the first one was accepted."""
    with project.running_collector() as serving:
        assert (202, {"accepted": 1}) == serving.client.post(GOOD, idempotency_key="k1")[:2]
    with project.running_collector() as serving:  # also after a restart of the collector
        assert (202, {"accepted": 1}) == serving.client.post(GOOD, idempotency_key="k1")[:2]
        assert 409 == serving.client.post({"page": "/b"}, idempotency_key="k1").status
        assert 202 == serving.client.post({"page": "/b"}, idempotency_key="k2").status
        assert 400 == serving.client.post(GOOD, idempotency_key="a key").status
    assert [GOOD, {"page": "/b"}] == kept(project)


# --- refused events


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the body isn't JSON"),
        (b"{", "the body isn't JSON"),
        (b'{"page": NaN}', "the body isn't JSON"),
        (b'{"page": "a", "seconds": Infinity}', "the body isn't JSON"),
        (b'{"page": "\\ud800"}', "the body isn't JSON"),
        (b'{"page": "\xff"}', "the body isn't JSON"),
        (b"[" * 100_000, "the body isn't JSON"),
        (b'{"a":' * 100_000, "the body isn't JSON"),
        (b'{"page": "a", "seconds": 1' + b"0" * 5000 + b"}", "fields can't be accepted|a field can't|isn't JSON"),
        (b'{"page": "a", "deep": ' + b"[" * 500 + b"]" * 500 + b"}", "a field can't be accepted"),
        (b'{"page": "a", "page": 1}', "a field can't be accepted"),
        (b"[]", "a field can't be accepted"),
        (b"null", "a field can't be accepted"),
        (b"\xef\xbb\xbf{}", "the body isn't JSON"),
    ],
)
def test_an_invalid_body_is_refused_with_a_clear_error(project: EventProject, body: bytes, says: str) -> None:
    """No body causes a 500, and none of its content is stored."""
    with project.running_collector() as serving:
        response = serving.client("POST", EVENTS_PATH, body, JSON_HEADERS)
        assert 400 == response.status
        assert any(part in response.body["error"] for part in says.split("|"))
        assert 202 == serving.client.post(GOOD).status  # the connection and the collector still work
    assert [GOOD] == kept(project)


def test_an_object_instead_of_a_batch_is_refused(project: EventProject) -> None:
    """An object sent to /batch is a mistake of the sender, and not a batch of one."""
    with project.running_collector() as serving:
        response = serving.client.post(GOOD, f"{EVENTS_PATH}/batch")
        assert (400, "a batch is an array of events: [{…}, …]") == (response.status, response.body["error"])


def test_the_number_of_problems_in_an_answer_is_limited(project: EventProject) -> None:
    """The answer stays smaller than the request."""
    with project.running_collector() as serving:
        response = serving.client.post([{}] * 3000, f"{EVENTS_PATH}/batch")
        assert (400, 1000, 2000) == (response.status, len(response.body["errors"]), response.body["more"])


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/collect/events/view", "there is no model 'events.view'; did you mean 'events.views'?"),
        ("/collect/mart/orders", "mart.orders is of kind table; the models of kind events are events.views"),
        ("/collect/events/views/batches", "for an array of events write …/batch"),
        ("/collect/events", "POST an event to /collect/SCHEMA/TABLE"),
        ("/collect/events/views/", "for an array of events write …/batch"),
        ("/nope", "POST an event to /collect/SCHEMA/TABLE"),
        ("/collect/%2e%2e/%00", "there is no model"),
    ],
)
def test_an_unknown_model_is_refused_with_the_nearest_name(tmp_path: Path, path: str, says: str) -> None:
    """A typo in a sender's URL must cost a minute, and not a day's events."""
    models = {"events/views": VIEWS_MODEL, "mart/orders": "SELECT 1 AS id"}
    with EventProject.create(tmp_path, models=models).running_collector() as serving:
        response = serving.client.post(GOOD, path)
        assert 404 == response.status
        assert says in response.body["error"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("GET", EVENTS_PATH, "POST, OPTIONS"), ("DELETE", EVENTS_PATH, "POST, OPTIONS"), ("POST", "/health", "GET, HEAD")],
)
def test_another_method_is_refused(project: EventProject, method: str, path: str, allow: str) -> None:
    with project.running_collector() as serving:
        response = serving.client(method, path)
        assert (405, allow) == (response.status, response.headers["allow"])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {**JSON_HEADERS, "content-encoding": "gzip"},
    ],
)
def test_only_json_is_accepted(project: EventProject, headers: dict[str, str]) -> None:
    """Any web page can make a browser send a form or a text without permission. For JSON the browser asks first."""
    with project.running_collector() as serving:
        assert 415 == serving.client("POST", EVENTS_PATH, b'{"page": "/a"}', headers).status
        assert (
            202
            == serving.client(
                "POST", EVENTS_PATH, b'{"page": "/a"}', {"content-type": "Application/JSON; charset=UTF-8"}
            ).status
        )


def test_without_the_token_only_health_answers(project: EventProject) -> None:
    """This holds for projects with a token. The health needs none, because it names no model."""
    (project.root / ".env").write_text(TOKEN)
    with project.running_collector() as serving:
        send = serving.client
        for wrong in ({}, {"authorization": "Bearer s3cret"}, {"authorization": "Basic s3cret-and-long"}):
            assert 401 == send("POST", EVENTS_PATH, b"{}", {**JSON_HEADERS, **wrong}).status
            assert 401 == send("POST", "/collect/no/model", b"{}", {**JSON_HEADERS, **wrong}).status
            assert 401 == send("GET", "/metrics", None, wrong).status
        right = {"authorization": "Bearer s3cret-and-long"}
        assert 202 == send("POST", EVENTS_PATH, orjson.dumps(GOOD), {**JSON_HEADERS, **right}).status
        assert 200 == send("GET", "/metrics", None, right).status
        assert 200 == send("GET", "/health").status
    assert [GOOD] == kept(project)


# --- limits


def test_a_body_that_is_too_large_is_refused_with_and_without_a_length(tmp_path: Path) -> None:
    """No sender may fill the memory."""
    project = EventProject.create(tmp_path, settings="events.max_bytes = 1000")
    with project.running_collector() as serving:
        large = orjson.dumps({"page": "x" * 2000})
        assert 413 == serving.client("POST", EVENTS_PATH, large, JSON_HEADERS).status
    with project.running_collector() as serving:
        connection = http.client.HTTPConnection("127.0.0.1", serving.port)
        connection.request("POST", EVENTS_PATH, iter([large[:700], large[700:]]), JSON_HEADERS, encode_chunked=True)
        assert 413 == connection.getresponse().status
        connection.close()
        connection.request("POST", EVENTS_PATH, iter([b'{"page":', b'"/a"}']), JSON_HEADERS, encode_chunked=True)
        assert 202 == connection.getresponse().status
        connection.close()
    assert [GOOD] == kept(project)


def refused_for(project: EventProject, serving: RunningCollector, reason: str) -> None:
    response = serving.client.post(GOOD)
    assert 429 == response.status
    assert int(response.headers["retry-after"]) >= 1
    assert f'ondatra_events_refused_total{{reason="{reason}"}} 1' in serving.client("GET", "/metrics").body


def test_events_above_the_rate_are_refused_with_retry_after(tmp_path: Path) -> None:
    """A batch may have more events than one second allows. Then new events are refused until that time has passed."""
    project = EventProject.create(tmp_path, settings="events.per_second = 10")
    with project.running_collector() as serving:
        assert 202 == serving.client.post([GOOD] * 50_000, f"{EVENTS_PATH}/batch").status
        refused_for(project, serving, "rate")


def test_events_are_refused_while_too_many_events_wait(tmp_path: Path) -> None:
    """If no run writes them, the operator must notice before the disk is full. A restart keeps the count."""
    project = EventProject.create(tmp_path, settings="events.max_waiting = 2")
    with project.running_collector() as serving:
        assert 202 == serving.client.post([GOOD, GOOD], f"{EVENTS_PATH}/batch").status
    with project.running_collector() as serving:
        refused_for(project, serving, "waiting")
        assert (503, "waiting") == (
            serving.client("GET", "/health").status,
            serving.client("GET", "/health").body["status"],
        )


def test_events_are_refused_when_the_disk_is_nearly_full(tmp_path: Path) -> None:
    """Events must not use the machine's last bytes."""
    project = EventProject.create(tmp_path, settings=f"events.free_bytes = {10**17}")
    with project.running_collector() as serving:
        refused_for(project, serving, "disk")
        assert 503 == serving.client("GET", "/health").status


# --- browsers


def test_pages_of_other_origins_may_send_only_with_the_setting(tmp_path: Path) -> None:
    """A browser asks before it sends JSON, and follows the answer."""
    mine, others = {"origin": "https://shop.example.com"}, {"origin": "https://evil.example.com"}
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    project = EventProject.create(tmp_path, settings='events.origins = ["https://shop.example.com"]')
    with project.running_collector() as serving:
        preflight = serving.client("OPTIONS", EVENTS_PATH, None, {**mine, **asks})
        assert 204 == preflight.status
        assert "https://shop.example.com" == preflight.headers["access-control-allow-origin"]
        assert "content-type" in preflight.headers["access-control-allow-headers"]
        assert (
            "access-control-allow-origin"
            not in serving.client("OPTIONS", EVENTS_PATH, None, {**others, **asks}).headers
        )
        response = serving.client(
            "POST", EVENTS_PATH, b"{}", {**JSON_HEADERS, **mine}
        )  # the page can read the problems too
        assert (400, "https://shop.example.com") == (response.status, response.headers["access-control-allow-origin"])


def test_without_the_setting_no_web_page_may_send(project: EventProject) -> None:
    with project.running_collector() as serving:
        page = {"origin": "https://shop.example.com"}
        for method, body, status in (("OPTIONS", None, 204), ("POST", b'{"page": "/a"}', 403)):
            response = serving.client(method, EVENTS_PATH, body, {**JSON_HEADERS, **page})
            assert (status, None) == (response.status, response.headers.get("access-control-allow-origin"))


# --- connections


def test_a_body_that_is_cut_off_is_not_stored(project: EventProject) -> None:
    """Half an event is invalid."""
    with project.running_collector() as serving:
        with socket.create_connection(("127.0.0.1", serving.port)) as raw:
            raw.sendall(b"POST %s HTTP/1.1\r\nhost: [::1]\r\ncontent-type: application/json\r\n" % EVENTS_PATH.encode())
            raw.sendall(b'content-length: 100\r\n\r\n{"page"')
        assert 202 == serving.client.post(GOOD).status
    assert [GOOD] == kept(project)


def test_a_changed_model_is_reloaded_unless_it_is_broken(project: EventProject) -> None:
    """The collector must not stop because of a new column, nor because of a typo."""
    path = project.root / "models" / "events" / "views.sql"
    with project.running_collector() as serving:
        path.write_text(VIEWS_MODEL.replace("seconds INT", "seconds INT NOT NULL"))
        serving.run_periodic_tasks()
        assert 400 == serving.client.post(GOOD).status
        path.write_text("-- @kind: nonsense\n")
        serving.run_periodic_tasks()
        assert 202 == serving.client.post({**GOOD, "seconds": 1}).status


def test_a_new_model_is_found_in_upper_and_lower_case(project: EventProject) -> None:
    """The same holds when the collector starts."""
    with project.running_collector() as serving:
        (project.root / "models" / "events" / "Clicks.SQL").write_text(VIEWS_MODEL)
        serving.run_periodic_tasks()
        assert 202 == serving.client.post(GOOD, "/collect/events/clicks").status


def test_the_metrics_count_accepted_and_waiting_events(project: EventProject) -> None:
    """They show the operator that senders send and that runs write events."""
    with project.running_collector() as serving:
        serving.client.post([GOOD, GOOD], f"{EVENTS_PATH}/batch")
        serving.client.post(GOOD, idempotency_key="k")
        serving.client.post(GOOD, idempotency_key="k")
        serving.client.post({})
        response = serving.client("GET", "/metrics")
        assert "text/plain; version=0.0.4; charset=utf-8" == response.headers["content-type"]
        for line in (
            'ondatra_events_accepted_total{model="events.views"} 3',
            'ondatra_events_repeated_total{model="events.views"} 1',
            'ondatra_events_refused_total{reason="invalid"} 1',
            'ondatra_events_waiting{model="events.views"} 3',
        ):
            assert line in response.body.splitlines()
