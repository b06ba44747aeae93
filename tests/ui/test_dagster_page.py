"""Dagster's own page over a project of ours, in a real browser: what is clicked runs, and is shown.

It starts `dg dev`, and its runs start Spark: that both work together is what this is about.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright
from support.processes.dagster_dev_server import PAGE_SECONDS, RUN_SECONDS, DagsterDevServer, write_dagster_files
from support.projects.chromium_options import CHROMIUM, CHROMIUM_FLAGS
from support.projects.shop_project import write_contacts, write_shop_files

from ondatra_dagster.testing.demo_api import DemoApi

pytestmark = pytest.mark.browser

SENSOR = "push__sync__crm__sensor"
DUE = "push_due"
SCHEDULES = ("ondatra_fact_tables", "ondatra_maintain")


@pytest.fixture
def root(tmp_path: Path, api: DemoApi) -> Path:
    """A project of one sync, as `ondatra init` would have Dagster find it."""
    root = write_shop_files(tmp_path / "a project", url=api.url)
    write_dagster_files(root)
    write_contacts(root, a1="ada@example.com", b2="bo@example.com")
    return root


@pytest.fixture
def dagster(root: Path, tmp_path: Path) -> Iterator[DagsterDevServer]:
    dev = DagsterDevServer(root, tmp_path / "dagster.log")
    try:
        dev.wait_until_ready()
        yield dev
    finally:
        dev.stop()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[BrowserContext]:
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path / "chromium",
            executable_path=CHROMIUM,
            headless=True,
            args=CHROMIUM_FLAGS,
            viewport={"width": 1500, "height": 1000},
        )
        context.set_default_timeout(PAGE_SECONDS * 1000)
        expect.set_options(timeout=PAGE_SECONDS * 1000)
        yield context
        context.pages[0].screenshot(path=tmp_path / "last.png")  # where a failed test stood
        context.close()


class DagsterPage:
    """Dagster's page, as far as a user of ours goes; each step leaves a picture in `pictures`."""

    def __init__(self, page: Page, url: str, pictures: Path) -> None:
        self._page = page
        self._url = url
        self._pictures = pictures
        pictures.mkdir()

    def materialize_all(self) -> None:
        self._open("/asset-groups")
        self._page.get_by_role("button", name="Materialize all").click()
        self._expect_a_launch("materialize-all")

    def materialize(self, *assets: str) -> None:
        self._open("/assets")
        for asset in assets:
            self._page.locator("label", has=self._page.get_by_test_id(f"checkbox-{asset}")).click()
        self._page.get_by_role("button", name=f"Materialize selected ({len(assets)})").click()
        self._expect_a_launch("materialize-selected")

    def _expect_a_launch(self, picture: str) -> None:
        expect(self._page.get_by_text(re.compile("Launched run"))).to_be_visible()
        self._take(picture)

    def expect_success(self, launched_by: str) -> None:
        """A run of that origin comes into the list, and ends well: both pages renew themselves."""
        self._open("/runs")
        run = self._page.locator("[data-index]").filter(has_text=launched_by).first
        run.get_by_role("link", name="run ").click(timeout=RUN_SECONDS * 1000)
        expect(self._page.get_by_text("Success", exact=True)).to_be_visible(timeout=RUN_SECONDS * 1000)
        self._take(f"run-{launched_by}")

    def expect_on_asset(self, asset: str, *texts: str) -> None:
        self._open(f"/assets/{asset}?view=overview")
        for text in texts:
            expect(self._page.get_by_text(text, exact=True).first).to_be_visible()
        self._take(f"asset-{asset}")

    def expect_check(self, asset: str, check: str, *texts: str) -> None:
        """What a check says, where a user looks for it."""
        self._open(f"/assets/{asset}?view=overview")
        self._page.get_by_role("tab", name="Checks").click()
        self._page.get_by_text(check, exact=True).first.click()
        for text in texts:
            expect(self._page.get_by_text(text).first).to_be_visible()
        self._take(f"check-{asset}-{check}")

    def expect_switched_on(self, *names: str) -> None:
        self._open("/automation")
        for name in names:
            expect(self._page.get_by_role("link", name=name)).to_be_visible()
        expect(self._page.locator("input:checked")).to_have_count(len(names))  # the project's only switches
        self._take("automation")

    def _open(self, path: str) -> None:
        self._page.goto(self._url + path)

    def _take(self, name: str) -> None:
        self._page.screenshot(path=self._pictures / f"{name.replace('/', '.')}.png")


def test_what_is_materialized_is_pushed_and_a_reject_is_shown(
    api: DemoApi, root: Path, dagster: DagsterDevServer, browser: BrowserContext, tmp_path: Path
) -> None:
    """Click, look, change, look: a sensor that is off, or a check without samples, shows only here."""
    page = DagsterPage(browser.pages[0], dagster.url, tmp_path / "pictures")
    page.materialize_all()
    page.expect_success("Manually launched")
    assert {"a1": "ada@example.com", "b2": "bo@example.com"} == _emails(api)
    page.expect_on_asset("sync/crm", "Contacts", "email", "2", "backfill")
    page.expect_on_asset("push/sync/crm", "Delivers sync.crm to Demo as Contact", "planned", "queue depth")

    write_contacts(root, a1="ada@example.org", b2="bo@example.com", c3="no address")
    page.expect_switched_on(SENSOR, DUE, *SCHEDULES)
    page.materialize("raw/contacts", "sync/crm")
    page.expect_success(SENSOR)
    assert {"a1": "ada@example.org", "b2": "bo@example.com"} == _emails(api)
    page.expect_check("push/sync/crm", "rejects", "c3", "isn't an address")


def _emails(api: DemoApi) -> dict[str, object]:
    return {key: contact["email"] for key, contact in api.contacts().items()}
