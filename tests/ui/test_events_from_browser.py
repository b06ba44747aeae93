"""The events that a web page's script sends, in a real browser: only a browser shows what CORS allows."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright
from support.projects.chromium_options import CHROMIUM, CHROMIUM_FLAGS
from support.projects.event_project import EVENTS_PATH, EventProject

from ondatra_dagster.collector.event_store import event_store_path, read_page_after

pytestmark = pytest.mark.browser

PAGE_SECONDS = 60  # a busy machine, not a slow page
SEND = """
async ([url, event]) => {
    const headers = {"content-type": "application/json"};
    try {
        const answer = await fetch(url, {method: "POST", headers, body: JSON.stringify(event)});
        return [answer.status, await answer.json()];
    } catch (refused) {
        return [refused.name, null];
    }
}
"""


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write no log, because the test doesn't read it."""


@pytest.fixture
def site_origin(tmp_path: Path) -> Iterator[str]:
    """Serve a page of another web site, and yield its origin."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>A shop</title>")
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="site")
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(site_origin: str) -> Iterator[Page]:
    """Yield a browser page that shows the site."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        page = browser.new_page()
        page.set_default_timeout(PAGE_SECONDS * 1000)
        page.goto(site_origin)
        yield page
        browser.close()


def sends(page: Page, port: int, event: object) -> Any:
    return page.evaluate(SEND, [f"http://127.0.0.1:{port}{EVENTS_PATH}", event])


def taken(project: EventProject) -> int:
    return len(read_page_after(event_store_path(project.settings), "events.views", 0, limit=9))


def test_a_page_with_an_allowed_origin_sends_and_reads_the_answer(tmp_path: Path, site_origin: str, page: Page) -> None:
    """The browser asks first, because the body is JSON. An error must reach the script, too."""
    project = EventProject.create(tmp_path, settings=f'events.origins = ["{site_origin}"]')
    with project.running_collector() as serving:
        assert 202 == sends(page, serving.port, {"page": "/shoes"})[0]
        status, body = sends(page, serving.port, {"page": 7})
    assert (400, "page") == (status, body["errors"][0]["field"])
    assert 1 == taken(project)


def test_a_page_with_another_origin_is_stopped_by_the_browser(tmp_path: Path, page: Page) -> None:
    """Its event never arrives, because the browser sends it only after a permission."""
    project = EventProject.create(tmp_path, settings='events.origins = ["https://shop.example.com"]')
    with project.running_collector() as serving:
        assert ["TypeError", None] == sends(page, serving.port, {"page": "/shoes"})
    assert 0 == taken(project)
