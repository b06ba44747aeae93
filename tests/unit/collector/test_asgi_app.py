"""Every answer of the collector, over a real server on a loopback port, and what is durable by then."""

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
    """What another process sees in the file now: each request's events."""
    page = read_page_after(event_store_path(project.settings), model, 0, most=1000)
    return [orjson.loads(intake.body) for intake in page]


# --- what is taken


def test_an_event_is_durable_when_it_is_acknowledged(project: EventProject) -> None:
    """Another process sees it at once: it is in the file, not in somebody's memory."""
    with project.running_collector() as serving:
        said = serving.client.post({"page": "/a", "seconds": 3})
        assert (202, {"accepted": 1}) == said[:2]
        assert [{"page": "/a", "seconds": 3}] == kept(project)


def test_a_batch_is_taken_whole_or_not_at_all(project: EventProject) -> None:
    """Who gets an answer knows what to send again: all of it, or nothing."""
    with project.running_collector() as serving:
        assert (202, {"accepted": 2}) == serving.client.post([GOOD, {"page": "/b"}], f"{EVENTS_PATH}/batch")[:2]
        assert (202, {"accepted": 0}) == serving.client.post([], f"{EVENTS_PATH}/batch")[:2]
        said = serving.client.post([GOOD, {"page": 1}, {"seconds": "x"}], f"{EVENTS_PATH}/batch")
        assert 400 == said.status
        assert [
            {"index": 1, "field": "page", "problem": "is a number; expected STRING"},
            {"index": 2, "field": "seconds", "problem": "is a text; expected INT"},
            {"index": 2, "field": "page", "problem": "is missing; it is STRING NOT NULL"},
        ] == said.body["errors"]
        assert [[GOOD, {"page": "/b"}]] == kept(project)


def test_a_path_is_found_however_it_is_spelled(project: EventProject) -> None:
    """Models are named without regard to case."""
    with project.running_collector() as serving:
        assert 202 == serving.client.post(GOOD, "/Collect/EVENTS/Views").status


def test_a_request_that_is_repeated_under_its_key_is_kept_once(project: EventProject) -> None:
    """Who got no answer sends it again, and doesn't know whether it was taken."""
    with project.running_collector() as serving:
        assert (202, {"accepted": 1}) == serving.client.post(GOOD, idempotency_key="k1")[:2]
    with project.running_collector() as serving:  # also when the collector was started anew
        assert (202, {"accepted": 1}) == serving.client.post(GOOD, idempotency_key="k1")[:2]
        assert 409 == serving.client.post({"page": "/b"}, idempotency_key="k1").status
        assert 202 == serving.client.post({"page": "/b"}, idempotency_key="k2").status
        assert 400 == serving.client.post(GOOD, idempotency_key="a key").status
    assert [GOOD, {"page": "/b"}] == kept(project)


# --- what isn't


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
        (b'{"page": "a", "seconds": 1' + b"0" * 5000 + b"}", "fields can't be taken|a field can't|no JSON"),
        (b'{"page": "a", "deep": ' + b"[" * 500 + b"]" * 500 + b"}", "a field can't be taken"),
        (b'{"page": "a", "page": 1}', "a field can't be taken"),
        (b"[]", "a field can't be taken"),
        (b"null", "a field can't be taken"),
        (b"\xef\xbb\xbf{}", "the body isn't JSON"),
    ],
)
def test_what_is_no_event_is_refused_with_a_sentence(project: EventProject, body: bytes, says: str) -> None:
    """Whatever comes in: never a 500, and nothing of it is kept."""
    with project.running_collector() as serving:
        said = serving.client("POST", EVENTS_PATH, body, JSON_HEADERS)
        assert 400 == said.status
        assert any(part in said.body["error"] for part in says.split("|"))
        assert 202 == serving.client.post(GOOD).status  # the connection and the collector are as good as before
    assert [GOOD] == kept(project)


def test_a_batch_that_is_none_is_refused(project: EventProject) -> None:
    """An object sent to /batch is a mistake of the sender's, not a batch of one."""
    with project.running_collector() as serving:
        said = serving.client.post(GOOD, f"{EVENTS_PATH}/batch")
        assert (400, "a batch is an array of events: [{…}, …]") == (said.status, said.body["error"])


def test_many_problems_are_told_as_far_as_there_is_room(project: EventProject) -> None:
    """The answer stays smaller than the request."""
    with project.running_collector() as serving:
        said = serving.client.post([{}] * 3000, f"{EVENTS_PATH}/batch")
        assert (400, 1000, 2000) == (said.status, len(said.body["errors"]), said.body["more"])


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
def test_an_unknown_model_is_told_with_the_nearest(tmp_path: Path, path: str, says: str) -> None:
    """A typo in a sender's address should cost a minute, not a day's events."""
    models = {"events/views": VIEWS_MODEL, "mart/orders": "SELECT 1 AS id"}
    with EventProject.create(tmp_path, models=models).running_collector() as serving:
        said = serving.client.post(GOOD, path)
        assert 404 == said.status
        assert says in said.body["error"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("GET", EVENTS_PATH, "POST, OPTIONS"), ("DELETE", EVENTS_PATH, "POST, OPTIONS"), ("POST", "/health", "GET, HEAD")],
)
def test_another_method_is_refused(project: EventProject, method: str, path: str, allow: str) -> None:
    with project.running_collector() as serving:
        said = serving.client(method, path)
        assert (405, allow) == (said.status, said.headers["allow"])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {**JSON_HEADERS, "content-encoding": "gzip"},
    ],
)
def test_only_json_is_taken(project: EventProject, headers: dict[str, str]) -> None:
    """Any web page can make a browser send a form or a text here without asking; JSON it has to ask for."""
    with project.running_collector() as serving:
        assert 415 == serving.client("POST", EVENTS_PATH, b'{"page": "/a"}', headers).status
        assert (
            202
            == serving.client(
                "POST", EVENTS_PATH, b'{"page": "/a"}', {"content-type": "Application/JSON; charset=UTF-8"}
            ).status
        )


def test_without_the_token_nothing_is_taken_or_told(project: EventProject) -> None:
    """Where one is set. How the collector is may be asked by anybody: that names no model."""
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


def test_a_body_that_is_too_large_is_refused_however_it_comes(tmp_path: Path) -> None:
    """With its length or without: nobody may fill the memory."""
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
    said = serving.client.post(GOOD)
    assert 429 == said.status
    assert int(said.headers["retry-after"]) >= 1
    assert f'ondatra_events_refused_total{{reason="{reason}"}} 1' in serving.client("GET", "/metrics").body


def test_more_than_the_rate_is_told_to_come_later(tmp_path: Path) -> None:
    """A batch may take more than a second's worth; then nothing is taken until that is made up for."""
    project = EventProject.create(tmp_path, settings="events.per_second = 10")
    with project.running_collector() as serving:
        assert 202 == serving.client.post([GOOD] * 50_000, f"{EVENTS_PATH}/batch").status
        refused_for(project, serving, "rate")


def test_too_many_that_wait_are_told_to_come_later(tmp_path: Path) -> None:
    """When no run takes them, somebody has to notice before the disk does; and a restart doesn't forget."""
    project = EventProject.create(tmp_path, settings="events.max_waiting = 2")
    with project.running_collector() as serving:
        assert 202 == serving.client.post([GOOD, GOOD], f"{EVENTS_PATH}/batch").status
    with project.running_collector() as serving:
        refused_for(project, serving, "waiting")
        assert (503, "waiting") == (
            serving.client("GET", "/health").status,
            serving.client("GET", "/health").body["status"],
        )


def test_a_disk_that_is_nearly_full_is_left_to_others(tmp_path: Path) -> None:
    """Events must not be what takes the last bytes of the machine."""
    project = EventProject.create(tmp_path, settings=f"events.free_bytes = {10**17}")
    with project.running_collector() as serving:
        refused_for(project, serving, "disk")
        assert 503 == serving.client("GET", "/health").status


# --- browsers


def test_pages_of_other_origins_may_send_only_when_that_is_set(tmp_path: Path) -> None:
    """A browser asks before it sends JSON, and believes the answer."""
    mine, others = {"origin": "https://shop.example.com"}, {"origin": "https://evil.example.com"}
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    project = EventProject.create(tmp_path, settings='events.origins = ["https://shop.example.com"]')
    with project.running_collector() as serving:
        said = serving.client("OPTIONS", EVENTS_PATH, None, {**mine, **asks})
        assert 204 == said.status
        assert "https://shop.example.com" == said.headers["access-control-allow-origin"]
        assert "content-type" in said.headers["access-control-allow-headers"]
        assert (
            "access-control-allow-origin"
            not in serving.client("OPTIONS", EVENTS_PATH, None, {**others, **asks}).headers
        )
        told = serving.client(
            "POST", EVENTS_PATH, b"{}", {**JSON_HEADERS, **mine}
        )  # what is wrong can be read by the page too
        assert (400, "https://shop.example.com") == (told.status, told.headers["access-control-allow-origin"])


def test_without_the_setting_no_page_may(project: EventProject) -> None:
    with project.running_collector() as serving:
        page = {"origin": "https://shop.example.com"}
        for method, body, status in (("OPTIONS", None, 204), ("POST", b'{"page": "/a"}', 403)):
            said = serving.client(method, EVENTS_PATH, body, {**JSON_HEADERS, **page})
            assert (status, None) == (said.status, said.headers.get("access-control-allow-origin"))


# --- connections


def test_a_sender_that_goes_away_in_mid_body_leaves_nothing(project: EventProject) -> None:
    """Half an event is none."""
    with project.running_collector() as serving:
        with socket.create_connection(("127.0.0.1", serving.port)) as raw:
            raw.sendall(b"POST %s HTTP/1.1\r\nhost: [::1]\r\ncontent-type: application/json\r\n" % EVENTS_PATH.encode())
            raw.sendall(b'content-length: 100\r\n\r\n{"page"')
        assert 202 == serving.client.post(GOOD).status
    assert [GOOD] == kept(project)


def test_a_model_that_changes_is_read_anew_and_a_broken_one_is_not(project: EventProject) -> None:
    """A collector need not stop for a column more; nor must it for a typo."""
    path = project.root / "models" / "events" / "views.sql"
    with project.running_collector() as serving:
        path.write_text(VIEWS_MODEL.replace("seconds INT", "seconds INT NOT NULL"))
        serving.run_periodic_tasks()
        assert 400 == serving.client.post(GOOD).status
        path.write_text("-- @kind: nonsense\n")
        serving.run_periodic_tasks()
        assert 202 == serving.client.post({**GOOD, "seconds": 1}).status


def test_a_model_that_is_added_is_taken_for_however_its_file_is_spelled(project: EventProject) -> None:
    """As it is when the collector starts."""
    with project.running_collector() as serving:
        (project.root / "models" / "events" / "Clicks.SQL").write_text(VIEWS_MODEL)
        serving.run_periodic_tasks()
        assert 202 == serving.client.post(GOOD, "/collect/events/clicks").status


def test_the_metrics_tell_what_was_taken_and_what_waits(project: EventProject) -> None:
    """An operator sees from them that senders send and runs take."""
    with project.running_collector() as serving:
        serving.client.post([GOOD, GOOD], f"{EVENTS_PATH}/batch")
        serving.client.post(GOOD, idempotency_key="k")
        serving.client.post(GOOD, idempotency_key="k")
        serving.client.post({})
        said = serving.client("GET", "/metrics")
        assert "text/plain; version=0.0.4; charset=utf-8" == said.headers["content-type"]
        for line in (
            'ondatra_events_accepted_total{model="events.views"} 3',
            'ondatra_events_repeated_total{model="events.views"} 1',
            'ondatra_events_refused_total{reason="invalid"} 1',
            'ondatra_events_waiting{model="events.views"} 3',
        ):
            assert line in said.body.splitlines()
