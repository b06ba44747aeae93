"""The URLs that a push function may call."""

import pytest

from ondatra_dagster.delivery.http.request_builder import (
    UrlOrigin,
    has_dot_segments,
    is_absolute_url,
    is_allowed_host,
    join_url,
)


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
        *("/a/..%00/b", "/a/..%00.jpg", "/a/..%20/b", "/a/.. /b", "/a/..%09/b", "/a/.%0d./b", "/a/..%7f"),
        *("/a/%c0%ae%c0%ae/b", "/a%c0%af..%c0%afb", "/a%C1%9c..%c1%9Cb", "/a/%e0%80%ae./b"),
        *("/a/%25c0%25ae%25c0%25ae/b", "/a/%f0%80%80%ae%f0%80%80%ae", "/a/%c0%2e%c0%2e/b"),
        *("/a/%u002e%u002e/b", "/a%u002f..%u002fb", "/a/%uff0e%uff0e/b", "/a/%25u002e./b"),
        *("/a/\uff0e\uff0e/b", "/a/%ef%bc%8e%ef%bc%8e/b", "/a/\u2025/b", "/a/\uff052e\uff052e/b"),
        *("/a\uff0f..\uff0fb", "/a\u2215..\u2044b", "/a\uff3c..\u2216b", "/a/.%e2%80%8b./b", "/a/..%c2%a0/b"),
    ],
)
def test_a_path_can_not_leave_its_folder(path: str) -> None:
    """A row's value in a path must not reach another part of the API, in any encoding that the server decodes."""
    assert has_dot_segments(path)


@pytest.mark.parametrize(
    "path",
    [
        *("/a/b.c", "/a/...", "/a/...//b", "/a/..b", "/a?x=../y", "/v1.0/.well-known", "/a%20b", ""),
        *("/a/\u2026/b", "/a/. .b", "/\xc0\xae\xc0\xae", "/a/%00/b", "/a/ /b", "/a/%c0%ae%c0%aeb"),
    ],
)
def test_other_dots_are_allowed(path: str) -> None:
    """Names and queries may contain them."""
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
def test_a_path_is_joined_to_base_url(base_url: str, path: str, expected: str) -> None:
    """The path of base_url stays in front."""
    assert expected == join_url(base_url, path)


@pytest.mark.parametrize("url", ["https://x.test/a", "//x.test/a", "HTTP://x", "file:/etc", "\\\\x.test"])
def test_a_url_with_a_host_is_absolute(url: str) -> None:
    """If it were joined to base_url, the result would hide where it leads."""
    assert is_absolute_url(url)


def test_allow_hosts_has_hosts_with_their_default_port_or_an_explicit_one() -> None:
    """Another port of an allowed host is another service."""
    allowed = {"files.test", "x.test:8080"}

    assert is_allowed_host(UrlOrigin("https", "files.test", 443), allowed)
    assert is_allowed_host(UrlOrigin("http", "x.test", 8080), allowed)
    assert not is_allowed_host(UrlOrigin("https", "files.test", 8443), allowed)
    assert not is_allowed_host(UrlOrigin("http", "x.test", 80), allowed)
    assert not is_allowed_host(UrlOrigin("https", "evil-files.test", 443), allowed)
