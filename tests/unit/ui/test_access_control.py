"""Who is let in: the page shows customers' rows, and any page in the user's browser could ask for it."""

import pytest
from support.projects.shop_project import ShopProject
from support.projects.ui_client import COOKIE, HOST, PAGE_TOKEN, PORT, PageReader, ParsedPage

from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.ui.access_control import SECURITY_HEADERS
from ondatra_dagster.ui.web_app_and_server import PAGE_ROUTES

ADDRESSES = ["/", "/syncs/sync.crm", "/syncs/sync.crm/records", "/syncs/sync.crm/records.csv", "/nowhere"]


@pytest.fixture
def unauthenticated_reader(shop_with_history: ShopProject) -> PageReader:
    return PageReader(ProjectCache(shop_with_history.root), is_in=False)


def test_the_token_opens_the_page_once_and_a_cookie_from_then_on(unauthenticated_reader: PageReader) -> None:
    """An address with the token in it mustn't stay in the browser's history."""
    first = unauthenticated_reader.client.get(f"/syncs/sync.crm?page=1&token={PAGE_TOKEN}&x=a+b")
    assert (303, f"http://{HOST}/syncs/sync.crm?page=1&x=a+b") == (first.status_code, first.headers["location"])
    cookie = first.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}={PAGE_TOKEN}; ")
    for flag in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert flag in cookie
    assert 200 == unauthenticated_reader("/").status


def test_who_is_in_loses_the_token_from_the_address_too(get_page: PageReader) -> None:
    """The printed address is opened a second time, and by then the browser has the cookie."""
    answer = get_page.client.get("/?token=whatever")
    assert (303, f"http://{HOST}/") == (answer.status_code, answer.headers["location"])


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("token", [None, "", "wrong", PAGE_TOKEN[:-1], f"{PAGE_TOKEN}x", "ü", "\ud800"])
def test_without_the_token_nothing_is_told(unauthenticated_reader: PageReader, address: str, token: str | None) -> None:
    """Not even whether there is such a sync, nor how the project is called."""
    asked = {} if token is None else {"token": token.encode("utf-8", "surrogatepass")}
    told = ParsedPage.parse(unauthenticated_reader.client.get(address, params=asked))
    assert 403 == told.status
    assert "use the address that `ondatra ui` printed" in told.text
    assert "shop" not in told.response.text
    assert "set-cookie" not in told.response.headers


@pytest.mark.parametrize("cookie", [f"{COOKIE}=wrong", f"ondatra_ui_1={PAGE_TOKEN}", f"{COOKIE}=", "=;=;", "\x01"])
def test_a_wrong_cookie_is_none(unauthenticated_reader: PageReader, cookie: str) -> None:
    """One of another port is another project's."""
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
def test_a_foreign_host_is_refused_even_with_the_token(get_page: PageReader, host: str) -> None:
    """A name of somebody else's can be made to lead here: then their page would be this one's."""
    for address in (f"/?token={PAGE_TOKEN}", "/", "/assets/page.css"):
        told = ParsedPage.parse(get_page.client.get(address, headers={"host": host}))
        assert 403 == told.status
        assert "this machine only" in told.text


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
def test_what_is_no_path_is_refused(get_page: PageReader, unauthenticated_reader: PageReader, target: str) -> None:
    """Whoever is in or bears the token too: made an address again, it could be another host's."""
    for reader in (get_page, unauthenticated_reader):
        for asked in (target, f"{target}?token={PAGE_TOKEN}", f"{target}?x=1&token=wrong"):
            told = ParsedPage.parse(reader.client.get_raw_path(asked))
            assert (400, None) == (told.status, told.response.headers.get("location"))
            assert "no path of a page" in told.text
            assert "set-cookie" not in told.response.headers
            assert SECURITY_HEADERS == {name: told.response.headers[name] for name in SECURITY_HEADERS}


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
def test_a_redirect_leads_nowhere_else(unauthenticated_reader: PageReader, path: str, leads_to: str) -> None:
    """A link that bears the right token and a strange path."""
    answer = unauthenticated_reader.client.get_raw_path(f"{path}?token={PAGE_TOKEN}")
    assert (303, f"http://{HOST}{leads_to}") == (answer.status_code, answer.headers["location"])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_the_page_is_for_looking_only(get_page: PageReader, method: str) -> None:
    """Nothing can be changed, so nothing can be made to change by a page of somebody else's."""
    answer = get_page.client.request(method, "/syncs/sync.crm")
    assert (405, "GET, HEAD") == (answer.status_code, answer.headers["allow"])


@pytest.mark.parametrize("address", [*ADDRESSES, "/assets/page.css", "/assets/page.js"])
def test_every_answer_has_the_headers_that_guard_it(
    get_page: PageReader, unauthenticated_reader: PageReader, address: str
) -> None:
    """Those of refusals too."""
    for reader in (get_page, unauthenticated_reader):
        headers = reader.client.get(address).headers
        assert SECURITY_HEADERS == {name: headers[name] for name in SECURITY_HEADERS}


def test_nothing_from_elsewhere_is_loaded_or_run() -> None:
    """Should HTML come through one day, it still can't run, or send anything anywhere."""
    policy = dict(part.strip().split(" ", 1) for part in SECURITY_HEADERS["Content-Security-Policy"].split(";"))
    assert "'none'" == policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"]
    assert "'self'" == policy["script-src"] == policy["style-src"] == policy["form-action"]


def test_head_tells_what_get_would(get_page: PageReader) -> None:
    answer = get_page.client.request("HEAD", "/syncs/sync.crm")
    assert (200, b"") == (answer.status_code, answer.content)


def test_who_is_refused_may_ask_again(unauthenticated_reader: PageReader) -> None:
    """Another site's link leads here without the cookie; from this page it is sent."""
    assert "" in unauthenticated_reader("/syncs/sync.crm").link_addresses


def test_every_page_is_behind_the_door(unauthenticated_reader: PageReader) -> None:
    """One that is added later too."""
    for path in PAGE_ROUTES:
        assert 403 == unauthenticated_reader(path.replace("{", "").replace("}", "")).status
