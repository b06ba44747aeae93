"""The records page in a real browser, over a project that has really run. No Spark is started for it."""

import csv
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from support.files.sample_records import build_record
from support.projects.chromium_options import open_chromium
from support.projects.shop_project import ShopProject, write_contacts
from support.projects.shop_with_history import HOSTILE_EMAIL, create_shop_with_history, run_shop

from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.testing.demo_api import DemoApi
from ondatra_dagster.ui.web_app_and_server import PageServer, open_listener

pytestmark = pytest.mark.browser

PAGE_SECONDS = 60  # a busy machine, not a slow page
WIDE, NARROW = {"width": 1400, "height": 900}, {"width": 400, "height": 850}
SYNC = "/syncs/sync.crm"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with open_chromium(wait_seconds=PAGE_SECONDS) as browser:
        yield browser


@pytest.fixture
def shop(tmp_path: Path, api: DemoApi) -> ShopProject:
    return create_shop_with_history(tmp_path / "my <shop>", api)


@pytest.fixture
def server(shop: ShopProject) -> Iterator[PageServer]:
    server = PageServer(ProjectCache(shop.root), open_listener(0))
    server.start()
    yield server
    server.stop()


class PageBrowser:
    """A browser that opens the page, and the messages of its console."""

    def __init__(self, context: BrowserContext, server: PageServer) -> None:
        context.set_default_timeout(PAGE_SECONDS * 1000)
        self.context = context
        self.page: Page = context.new_page()
        self.console_messages: list[str] = []
        self.page.on("console", lambda message: self.console_messages.append(message.text))
        self.page.on("dialog", lambda dialog: self.console_messages.append(dialog.message))
        self.page.on("pageerror", lambda error: self.console_messages.append(error.message))
        self.origin = f"http://{urlsplit(server.url).netloc}"
        self._server = server

    def open_ui(self) -> None:
        """Open the address that `ondatra ui` printed."""
        self.page.goto(self._server.url)

    def open_path(self, path: str) -> None:
        self.page.goto(self.origin + path)

    def expect_keys(self, *keys: str) -> None:
        """Expect these identifiers in the table, once the requested page is there."""
        expect(self.page.locator("tbody th")).to_have_text(list(keys))

    def expect_records(self, count: int) -> None:
        expect(self.page.locator("tbody th")).to_have_count(count)

    def is_wider_than_the_window(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


@pytest.fixture
def page_browser(chromium: Browser, server: PageServer) -> Iterator[PageBrowser]:
    context = chromium.new_context(viewport=WIDE, accept_downloads=True)
    browser = PageBrowser(context, server)
    yield browser
    context.close()
    assert [] == browser.console_messages


def test_the_printed_address_gives_a_browser_lasting_access(page_browser: PageBrowser, chromium: Browser) -> None:
    """With the cookie that the browser gets, a link from Dagster opens the page; without it none does."""
    page_browser.open_ui()
    assert f"{page_browser.origin}/" == page_browser.page.url
    expect(page_browser.page.get_by_role("heading", name="Syncs")).to_be_visible()
    (cookie,) = page_browser.context.cookies()
    assert (True, "Strict") == (cookie["httpOnly"], cookie["sameSite"])
    assert "" == page_browser.page.evaluate("document.cookie")
    page_browser.open_path(SYNC)
    expect(page_browser.page.get_by_role("heading", name="sync.crm")).to_be_visible()

    stranger = chromium.new_context().new_page()
    stranger.goto(page_browser.origin + SYNC)
    expect(stranger.get_by_role("heading", name="Access denied")).to_be_visible()
    assert "sync.crm" not in stranger.content()
    stranger.context.close()


def test_a_link_from_another_site_opens_the_page_after_one_more_click(page_browser: PageBrowser) -> None:
    """For a browser, Dagster at localhost is another site than 127.0.0.1. It first withholds a strict cookie."""
    page_browser.open_ui()
    page_browser.open_path(SYNC)
    other = page_browser.origin.replace("127.0.0.1", "localhost")
    page_browser.page.goto(other)  # another site for the browser, without access
    page_browser.page.evaluate("address => { location.href = address }", page_browser.origin + SYNC)
    page_browser.page.get_by_role("link", name="Open this page again").click()
    expect(page_browser.page.get_by_role("heading", name="sync.crm")).to_be_visible()
    page_browser.console_messages = [message for message in page_browser.console_messages if "403" not in message]


def test_a_user_finds_why_a_row_was_refused(page_browser: PageBrowser) -> None:
    """The test clicks and types its way from the list of syncs to the payload."""
    page_browser.open_ui()
    page = page_browser.page
    page.get_by_role("link", name="sync.crm").first.click()
    page.get_by_role("link", name="View records").click()
    expect(page.get_by_role("rowheader", name="c3")).to_be_visible()
    page_browser.expect_records(6)
    page.get_by_role("navigation", name="Status").get_by_role("link", name="Rejected").click()
    page_browser.expect_keys("b2")
    expect(page.get_by_role("cell", name="isn't an address")).to_be_visible()
    page.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("details pre")).to_contain_text(HOSTILE_EMAIL)
    assert 1 == page.locator("script").count()

    page.get_by_role("link", name="All", exact=True).click()
    page_browser.expect_records(6)
    page.wait_for_load_state()  # the script handles the key
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("a")
    page.keyboard.press("Enter")
    expect(page.get_by_role("searchbox")).to_have_value("a")
    page_browser.expect_keys("a1")


def test_the_records_that_are_found_can_be_downloaded(page_browser: PageBrowser, tmp_path: Path) -> None:
    page_browser.open_ui()
    page_browser.open_path(f"{SYNC}/records?status=rejected")
    with page_browser.page.expect_download() as coming:
        page_browser.page.get_by_role("link", name="CSV").first.click()
    coming.value.save_as(tmp_path / "records.csv")
    assert "sync.crm-rejected.csv" == coming.value.suggested_filename
    with (tmp_path / "records.csv").open(newline="") as file:
        assert ["b2"] == [row["identifier"] for row in csv.DictReader(file)]


def test_rejects_are_grouped_by_reason(page_browser: PageBrowser) -> None:
    """Each reason leads to its records."""
    page_browser.open_ui()
    page_browser.open_path(SYNC)
    page_browser.page.get_by_role("link", name="Reasons").click()
    expect(page_browser.page.get_by_role("cell", name="100.0 %")).to_be_visible()
    page_browser.page.get_by_role("link", name="its records").click()
    page_browser.expect_keys("b2")
    page_browser.page.get_by_role("link", name="show all reasons").click()
    expect(page_browser.page.get_by_text("Only with the reason")).to_have_count(0)


def test_dead_letters_show_what_a_replay_would_send(page_browser: PageBrowser) -> None:
    page_browser.open_ui()
    page_browser.open_path(f"{SYNC}/queue")
    page_browser.expect_keys("b2")
    expect(page_browser.page.get_by_text("ondatra replay sync.crm")).to_be_visible()
    page_browser.page.locator("summary").click()
    expect(page_browser.page.locator("details pre")).to_contain_text('"email"')


def test_the_page_is_complete_without_scripts(chromium: Browser, server: PageServer) -> None:
    """Filters are links, a search is a form, and a payload opens without a script."""
    context = chromium.new_context(viewport=WIDE, java_script_enabled=False)
    browser = PageBrowser(context, server)
    browser.open_ui()
    browser.open_path(f"{SYNC}/records")
    browser.page.get_by_role("searchbox").fill("b")
    browser.page.get_by_role("button", name="Search").click()
    browser.expect_keys("b2")
    browser.page.locator("summary").click()
    expect(browser.page.locator("details pre")).to_be_visible()
    context.close()


def test_a_keyboard_user_skips_the_header_and_sees_the_focus(page_browser: PageBrowser) -> None:
    page_browser.open_ui()
    page_browser.page.keyboard.press("Tab")
    skip = page_browser.page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page_browser.page.keyboard.press("Enter")
    page_browser.page.keyboard.press("Tab")
    page_browser.page.keyboard.press("Tab")
    focused = page_browser.page.locator(":focus")
    expect(focused).to_have_text("sync.crm")
    assert "solid" == focused.evaluate("element => getComputedStyle(element).outlineStyle")


PAGES = ["", SYNC, f"{SYNC}/records", f"{SYNC}/reasons", f"{SYNC}/queue"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("window", [WIDE, NARROW], ids=["wide", "narrow"])
def test_pages_fit_their_window_in_light_and_dark(
    chromium: Browser, server: PageServer, shop: ShopProject, tmp_path: Path, scheme: str, window: dict[str, int]
) -> None:
    """Each page saves a screenshot in `pictures`, for a developer to look at."""
    context = chromium.new_context(viewport=window, color_scheme=scheme)  # type: ignore[arg-type]
    browser = PageBrowser(context, server)
    browser.open_ui()
    newest = shop.workspace.history.list_runs("sync.crm")[0].run_id
    for path in [*PAGES, f"{SYNC}/runs/{newest}"]:
        browser.open_path(path)
        if browser.page.locator("summary").count():
            browser.page.locator("summary").first.click()
        name = path.replace("/", ".").strip(".") or "syncs"
        browser.page.screenshot(path=tmp_path / "pictures" / f"{name}-{scheme}.png", full_page=True)
        assert not browser.is_wider_than_the_window(), path
        colours = browser.page.evaluate("getComputedStyle(document.body).backgroundColor").strip("rgb()")
        assert (scheme == "dark") == (int(colours.split(",")[0]) < 128)
    context.close()


def test_a_reason_is_readable_next_to_long_identifiers(page_browser: PageBrowser, shop: ShopProject) -> None:
    """A composite key is long, and users open this page to see why the row was refused."""
    refused = build_record("K" * 700, status="rejected", status_message="the order desk says no " * 5)
    shop.workspace.tracking.publish_records("sync.crm", "20261118T120000Z-abcdef", RecordFileType.UPDATED, 0, [refused])
    page_browser.open_ui()
    page_browser.open_path(f"{SYNC}/records?search=KK")
    page_browser.expect_records(1)
    reason = page_browser.page.locator("td.reason").bounding_box()
    assert reason
    assert reason["width"] > WIDE["width"] / 8
    assert not page_browser.is_wider_than_the_window()


SIDES = """cell => {
    const told = document.createRange();
    told.selectNode(cell.lastChild);
    return [cell.querySelector("small"), told].map(each => each.getBoundingClientRect().left);
}"""


def test_in_a_narrow_window_a_reason_is_next_to_its_name(
    page_browser: PageBrowser, shop: ShopProject, api: DemoApi
) -> None:
    """All of it is there: the number of attempts and the message."""
    write_contacts(shop.root, z9="zoe@example.com")
    api.fail(path="/crm/*", status=400, times=1, message="not now")
    run_shop(shop)
    page_browser.open_ui()
    page_browser.page.set_viewport_size(NARROW)  # type: ignore[arg-type]
    page_browser.open_path(f"{SYNC}/records?search=z9")
    page_browser.expect_keys("z9")
    count_left, message_left = page_browser.page.locator("td.reason").evaluate(SIDES)
    assert count_left == message_left > NARROW["width"] / 3


class CallLimiter:
    """A limiter that lets a number of API calls through, and then none until it is released."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self._lock = threading.Lock()
        self.limit_reached = threading.Event()
        self.released = threading.Event()

    def count_call(self) -> None:
        with self._lock:
            self._left -= 1
            is_shut = self._left < 0
        if is_shut:
            self.limit_reached.set()
            assert self.released.wait(PAGE_SECONDS)


@pytest.fixture
def limited_api() -> Iterator[tuple[str, CallLimiter]]:
    """Yield the address of the API and its limiter."""
    gate = CallLimiter(calls=150)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            gate.count_call()
            self.send_response(201)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", gate
    gate.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_user_can_watch_a_run_in_progress(
    chromium: Browser, tmp_path: Path, limited_api: tuple[str, CallLimiter]
) -> None:
    """The page shows its progress, its records so far and its end, without a reload by the user."""
    url, api = limited_api
    shop = ShopProject.create(tmp_path / "running", url=url)
    write_contacts(shop.root, **{f"k{number:03}": f"{number}@example.com" for number in range(250)})
    server = PageServer(ProjectCache(shop.root), open_listener(0))
    server.start()
    running = threading.Thread(target=run_shop, args=(shop,))
    running.start()
    try:
        assert api.limit_reached.wait(PAGE_SECONDS)
        context = chromium.new_context(viewport=WIDE)
        browser = PageBrowser(context, server)
        browser.open_ui()
        expect(browser.page.get_by_text("running").first).to_be_visible()
        browser.open_path(SYNC)
        browser.page.get_by_role("link", name="A run is active").click()
        expect(browser.page.get_by_text("100 records so far, 150 keys to go")).to_be_visible()
        browser.page.screenshot(path=tmp_path / "pictures" / "running.png")
        run_page = browser.page.url
        browser.page.get_by_role("link", name="View records").click()
        for status in ("Success", "Pending"):
            browser.page.get_by_role("link", name=status).click()
            expect(browser.page.locator(".tabs [aria-current]")).to_have_text(status)
            browser.expect_records(50)

        browser.page.goto(run_page)
        expect(browser.page.locator("main[data-live]")).to_have_count(1)
        api.released.set()
        expect(browser.page.get_by_text("succeeded", exact=True).first).to_be_visible()
        expect(browser.page.locator("main[data-live]")).to_have_count(0)
        expect(browser.page.get_by_role("row", name="succeeded delivered 250 0 0 250")).to_be_visible()
        assert [] == browser.console_messages
        context.close()
    finally:
        api.released.set()
        running.join()
        server.stop()
