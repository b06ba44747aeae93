"""The Chromium of Debian, with flags by which it connects only to the pages that tests open."""

import contextlib
from collections.abc import Iterator

from playwright.sync_api import Browser, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextlib.contextmanager
def open_chromium(*, wait_seconds: int) -> Iterator[Browser]:
    """Yield a browser. `expect` waits this long for what it expects."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        expect.set_options(timeout=wait_seconds * 1000)
        yield browser
        browser.close()
