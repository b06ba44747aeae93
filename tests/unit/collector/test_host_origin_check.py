"""The check of hosts and origins, over a real server on a loopback port."""

from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest
from support.projects.event_project import EVENTS_PATH, JSON_HEADERS, EventProject, ReceivedResponse

from ondatra_dagster.collector.http_messages import host_name

GOOD = b'{"page":"/a"}'
REBOUND = "evil.example.com:8330"  # the host name of a web page; its owner has made it resolve to this machine
TOKEN = {"authorization": "Bearer s3cret"}


def collector(root: Path, *, hosts: str = "", origins: str = "", token: bool = False) -> EventProject:
    settings = [f"events.hosts = [{hosts}]" if hosts else "", f"events.origins = {origins}" if origins else ""]
    project = EventProject.create(root, settings="\n".join(settings))
    if token:
        (root / ".env").write_text("ONDATRA_EVENTS_TOKEN=s3cret\n")
    return project


def ask(project: EventProject, method: str, path: str, headers: Mapping[str, str]) -> ReceivedResponse:
    with project.running_collector() as serving:
        body = GOOD if method == "POST" else None
        return serving.client(method, path, body, {**JSON_HEADERS, **headers})


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", EVENTS_PATH), ("POST", f"{EVENTS_PATH}/batch"), ("GET", "/metrics"), ("GET", "/health")],
)
def test_a_page_whose_host_name_resolves_to_this_machine_is_refused(tmp_path: Path, method: str, path: str) -> None:
    """Its browser asks for no permission, because it takes the collector for a part of that page's site."""
    response = ask(collector(tmp_path), method, path, {"host": REBOUND})
    assert 421 == response.status
    assert "'evil.example.com:8330' aren't accepted; use 127.0.0.1 or localhost" in response.body["error"]
    assert "events.hosts" in response.body["error"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9000", "LOCALHOST.", "[::1]", "[::1]:8330", "127.0.0.2:1"])
def test_the_names_of_this_machine_are_accepted_with_any_port(tmp_path: Path, host: str) -> None:
    """A container or a tunnel has another port than the collector."""
    assert 202 == ask(collector(tmp_path), "POST", EVENTS_PATH, {"host": host}).status


@pytest.mark.parametrize(
    "host", ["", "localhost.evil.example", "127.0.0.1.evil.example", "evil@localhost", "localhost/x", "[::1", "0.0.0.0"]
)
def test_a_name_that_only_looks_like_this_machine_is_refused(tmp_path: Path, host: str) -> None:
    assert 421 == ask(collector(tmp_path), "POST", EVENTS_PATH, {"host": host}).status


@pytest.mark.parametrize(
    ("host", "status"), [("Events.Example.com:443", 202), ("[FD00::1]:80", 202), ("example.com", 421)]
)
def test_a_proxy_may_pass_on_the_names_in_the_settings(tmp_path: Path, host: str, status: int) -> None:
    """A proxy on this machine sends the name that its clients use."""
    project = collector(tmp_path, hosts='"events.example.com", "[fd00::1]"')
    assert status == ask(project, "POST", EVENTS_PATH, {"host": host}).status


def test_with_a_token_any_name_is_accepted(tmp_path: Path) -> None:
    """A web page doesn't know the token, and a server may have names that aren't in the settings."""
    project = collector(tmp_path, token=True)
    assert 202 == ask(project, "POST", EVENTS_PATH, {"host": "events.example.com", **TOKEN}).status
    assert 401 == ask(project, "POST", EVENTS_PATH, {"host": REBOUND}).status
    assert 401 == ask(project, "GET", "/metrics", {"host": REBOUND}).status


def test_the_names_in_the_settings_also_apply_with_a_token(tmp_path: Path) -> None:
    project = collector(tmp_path, hosts='"events.example.com"', token=True)
    assert 202 == ask(project, "POST", EVENTS_PATH, {"host": "events.example.com", **TOKEN}).status
    assert 421 == ask(project, "POST", EVENTS_PATH, {"host": "other.example.com", **TOKEN}).status
    assert 421 == ask(project, "GET", "/health", {"host": "other.example.com"}).status


@pytest.mark.parametrize("token", [False, True])
@pytest.mark.parametrize(
    ("origins", "origin", "status"),
    [
        ("", "http://localhost:8330", 403),  # the collector serves no page
        ("", "null", 403),
        ('["https://shop.example.com"]', "https://shop.example.com", 202),
        ('["https://shop.example.com"]', "https://shop.example.com.evil.example", 403),
        ('"*"', "https://any.example.com", 202),
    ],
)
def test_events_of_a_page_need_its_origin_in_the_settings(
    tmp_path: Path, token: bool, origins: str, origin: str, status: int
) -> None:
    project = collector(tmp_path, origins=origins, token=token)
    response = ask(project, "POST", EVENTS_PATH, {"origin": origin, **(TOKEN if token else {})})
    assert status == response.status
    if status == 403:
        assert f"pages of {origin} may not send events; add it to the setting events.origins" in response.body["error"]


def test_a_refusal_is_counted_by_its_reason(tmp_path: Path) -> None:
    """The operator sees that a name is missing in the settings."""
    with collector(tmp_path).running_collector() as serving:
        serving.client("POST", EVENTS_PATH, GOOD, {**JSON_HEADERS, "host": REBOUND})
        serving.client("POST", EVENTS_PATH, GOOD, {**JSON_HEADERS, "origin": "https://evil.example.com"})
        metrics = serving.client("GET", "/metrics").body.splitlines()
    assert 'ondatra_events_refused_total{reason="host"} 1' in metrics
    assert 'ondatra_events_refused_total{reason="origin"} 1' in metrics


def test_a_long_name_is_cut_in_the_error(tmp_path: Path) -> None:
    response = ask(collector(tmp_path), "POST", EVENTS_PATH, {"host": "a" * 5000})
    assert len(orjson.dumps(response.body)) < 400


@pytest.mark.parametrize(
    ("host", "name"), [("A.example:1", "a.example"), ("[::1]:2", "::1"), ("a b", "a b"), ("x:y:z", "x"), ("#", "")]
)
def test_a_name_is_read_without_its_port(host: str, name: str) -> None:
    assert name == host_name(host)
