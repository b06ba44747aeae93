"""Which addresses may be called."""

import pytest

from ondatra_dagster.delivery.http.http_guards import Origin, has_dot_segments, is_absolute, is_allowed, join


@pytest.mark.parametrize(
    "path",
    [
        "/a/../b",
        "..",
        "/a/./b",
        "/a/%2e%2e/b",
        "/a/%2E./b",
        "/a/%252e%252e/b",
        "/a%2f..%2fb",
        "/a/..%5cb",
        "/a\\..\\b",
        "/a/..;x=1/b",
        "/a/%2e%2e%3fx",
    ],
)
def test_a_path_can_not_climb(path: str) -> None:
    """A row's value in a path must not reach another part of the API, whatever the server decodes."""
    assert has_dot_segments(path)


@pytest.mark.parametrize(
    "path", ["/a/b.c", "/a/...", "/a/..b", "/a?x=../y", "/v1.0/.well-known", "/a%20b", ""]
)
def test_other_dots_are_fine(path: str) -> None:
    """Names and queries may hold them."""
    assert not has_dot_segments(path)


@pytest.mark.parametrize(
    ("base_url", "path", "expected"),
    [
        ("https://x.test", "/a", "https://x.test/a"),
        ("https://x.test/v1", "/a", "https://x.test/v1/a"),
        ("https://x.test/v1/", "a", "https://x.test/v1/a"),
        ("https://x.test/v1", "", "https://x.test/v1"),
        ("https://x.test/v1", "?q=1", "https://x.test/v1?q=1"),
    ],
)
def test_a_path_stands_below_base_url(base_url: str, path: str, expected: str) -> None:
    """base_url's own path stays in front."""
    assert expected == join(base_url, path)


@pytest.mark.parametrize("url", ["https://x.test/a", "//x.test/a", "HTTP://x", "file:/etc", "\\\\x.test"])
def test_an_address_with_a_host_is_absolute(url: str) -> None:
    """Joining it to base_url would hide where it leads."""
    assert is_absolute(url)


def test_allow_hosts_names_hosts_on_their_usual_port_or_with_one() -> None:
    """Another port of an allowed host is another service."""
    allowed = {"files.test", "x.test:8080"}

    assert is_allowed(Origin("https", "files.test", 443), allowed)
    assert is_allowed(Origin("http", "x.test", 8080), allowed)
    assert not is_allowed(Origin("https", "files.test", 8443), allowed)
    assert not is_allowed(Origin("http", "x.test", 80), allowed)
    assert not is_allowed(Origin("https", "evil-files.test", 443), allowed)
