"""The access to the UI. It shows customers' rows, and any page in the user's browser could request them."""

import pytest
from support.projects.shop_project import ShopProject
from support.projects.ui_client import COOKIE, HOST, PAGE_TOKEN, PORT, PageReader, ParsedPage

from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.ui.access_control import SECURITY_HEADERS
from ondatra_dagster.ui.web_app_and_server import PAGE_ROUTES

ADDRESSES = ["/", "/syncs/sync.crm", "/syncs/sync.crm/records", "/syncs/sync.crm/records.csv", "/nowhere"]


@pytest.fixture
def unauthenticated_reader(shop_with_history: ShopProject) -> PageReader:
    return PageReader(ProjectCache(shop_with_history.root), has_cookie=False)


def test_the_token_gives_access_once_and_then_a_cookie_does(unauthenticated_reader: PageReader) -> None:
    """An address that contains the token must not remain in the browser's history."""
    first = unauthenticated_reader.client.get(f"/syncs/sync.crm?page=1&token={PAGE_TOKEN}&x=a+b")
    assert (303, f"http://{HOST}/syncs/sync.crm?page=1&x=a+b") == (first.status_code, first.headers["location"])
    cookie = first.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}={PAGE_TOKEN}; ")
    for flag in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert flag in cookie
    assert 200 == unauthenticated_reader("/").status


def test_the_token_is_removed_from_the_address_of_an_authenticated_user(get_page: PageReader) -> None:
    """When the user opens the printed address again, the browser already has the cookie."""
    answer = get_page.client.get("/?token=whatever")
    assert (303, f"http://{HOST}/") == (answer.status_code, answer.headers["location"])


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("token", [None, "", "wrong", PAGE_TOKEN[:-1], f"{PAGE_TOKEN}x", "ü", "\ud800"])
def test_without_the_token_a_page_shows_nothing(
    unauthenticated_reader: PageReader, address: str, token: str | None
) -> None:
    """It doesn't even show whether the sync exists, or the project's name."""
    params = {} if token is None else {"token": token.encode("utf-8", "surrogatepass")}
    page = ParsedPage.parse(unauthenticated_reader.client.get(address, params=params))
    assert 403 == page.status
    assert "use the address that `ondatra ui` printed" in page.text
    assert "shop" not in page.response.text
    assert "set-cookie" not in page.response.headers


@pytest.mark.parametrize("cookie", [f"{COOKIE}=wrong", f"ondatra_ui_1={PAGE_TOKEN}", f"{COOKIE}=", "=;=;", "\x01"])
def test_a_wrong_cookie_gives_no_access(unauthenticated_reader: PageReader, cookie: str) -> None:
    """A cookie of another port belongs to another project."""
    assert 403 == unauthenticated_reader.client.get("/", headers={"cookie": cookie}).status_code


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        "127.0.0.1:1",
        f"127.0.0.1:{PORT}.evil.example",
        f"localhost.evil.example:{PORT}",
        f"0.0.0.0:{PORT}",
        "",
    ],
)
def test_another_host_is_refused_even_with_the_token(get_page: PageReader, host: str) -> None:
    """Another site can make its name point to this machine. Then this page would belong to that site's origin."""
    for address in (f"/?token={PAGE_TOKEN}", "/", "/assets/page.css"):
        page = ParsedPage.parse(get_page.client.get(address, headers={"host": host}))
        assert 403 == page.status
        assert "this machine only" in page.text


def test_localhost_is_this_machine(unauthenticated_reader: PageReader) -> None:
    answer = unauthenticated_reader.client.get(f"/?token={PAGE_TOKEN}", headers={"host": f"localhost:{PORT}"})
    assert f"http://localhost:{PORT}/" == answer.headers["location"]


NO_PATHS = [
    *("", "*", "x", "@evil.example/", ".evil.example/", ":80@evil.example", "[", "[::1", "http://[/"),
    *("http://evil.example/", f"http://{HOST}/", "https:/evil.example", "javascript:alert(1)"),
    *("//", "//evil.example/", "//evil.example/syncs/", "///evil.example", "/%2Fevil.example/", "%2F/x"),
    *("/\\evil.example", "/%5Cevil.example", "\\\\evil.example", "/syncs/\\..\\x"),
    *("/%00", "/syncs/sync.crm%00", "/%0d%0aSet-Cookie:%20a=b", "/%09/evil.example", "/%7f"),
]


@pytest.mark.parametrize("target", NO_PATHS)
def test_a_target_that_is_not_a_path_is_refused(
    get_page: PageReader, unauthenticated_reader: PageReader, target: str
) -> None:
    """This applies to every request. As an address, the target could point to another host."""
    for reader in (get_page, unauthenticated_reader):
        for path in (target, f"{target}?token={PAGE_TOKEN}", f"{target}?x=1&token=wrong"):
            page = ParsedPage.parse(reader.client.get_raw_path(path))
            assert (400, None) == (page.status, page.response.headers.get("location"))
            assert "isn't the path of a page" in page.text
            assert "set-cookie" not in page.response.headers
            assert SECURITY_HEADERS == {name: page.response.headers[name] for name in SECURITY_HEADERS}


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/", "/"),
        ("/%3Fx", "/%3Fx"),
        ("/@evil.example//", "/%40evil.example//"),
        ("/a%20b/%F0%9F%98%80%23", "/a%20b/%F0%9F%98%80%23"),
        ("/syncs/..//evil.example/", "/syncs/..//evil.example/"),
    ],
)
def test_a_redirect_stays_on_this_host(unauthenticated_reader: PageReader, path: str, leads_to: str) -> None:
    """The link has the right token and an unusual path."""
    answer = unauthenticated_reader.client.get_raw_path(f"{path}?token={PAGE_TOKEN}")
    assert (303, f"http://{HOST}{leads_to}") == (answer.status_code, answer.headers["location"])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_the_pages_are_read_only(get_page: PageReader, method: str) -> None:
    """No request changes anything, so another site's page can't cause a change."""
    answer = get_page.client.request(method, "/syncs/sync.crm")
    assert (405, "GET, HEAD") == (answer.status_code, answer.headers["allow"])


@pytest.mark.parametrize("address", [*ADDRESSES, "/assets/page.css", "/assets/page.js"])
def test_every_response_has_the_security_headers(
    get_page: PageReader, unauthenticated_reader: PageReader, address: str
) -> None:
    """Refusals have them too."""
    for reader in (get_page, unauthenticated_reader):
        headers = reader.client.get(address).headers
        assert SECURITY_HEADERS == {name: headers[name] for name in SECURITY_HEADERS}


def test_nothing_from_other_sites_is_loaded_or_executed() -> None:
    """If HTML is ever injected, it still can't run, and can't send anything."""
    policy = dict(part.strip().split(" ", 1) for part in SECURITY_HEADERS["Content-Security-Policy"].split(";"))
    assert "'none'" == policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"]
    assert "'self'" == policy["script-src"] == policy["style-src"] == policy["form-action"]


def test_head_has_the_status_of_get(get_page: PageReader) -> None:
    answer = get_page.client.request("HEAD", "/syncs/sync.crm")
    assert (200, b"") == (answer.status_code, answer.content)


def test_a_refused_page_has_a_link_to_itself(unauthenticated_reader: PageReader) -> None:
    """A link from another site opens the page without the cookie. A link on this page sends it."""
    assert "" in unauthenticated_reader("/syncs/sync.crm").link_addresses


def test_every_page_needs_access(unauthenticated_reader: PageReader) -> None:
    """This includes pages that are added later."""
    for path in PAGE_ROUTES:
        assert 403 == unauthenticated_reader(path.replace("{", "").replace("}", "")).status
