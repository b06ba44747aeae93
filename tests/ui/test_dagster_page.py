"""The UI of Dagster over one of our projects, in a real browser: what a user clicks runs, and is shown.

The test starts `dg dev`, and its runs start Spark, because it is about both of them together.
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
    """Return a project of one sync, with the files by which Dagster finds a project that `ondatra init` created."""
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
        context.pages[0].screenshot(path=tmp_path / "last.png")  # the page at which a test failed
        context.close()


class DagsterPage:
    """The pages of Dagster that our users open; each step saves a screenshot in `pictures`."""

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
        """Expect that a run of that origin appears in the list and succeeds; both pages refresh themselves."""
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
        """Expect the texts of a check where a user looks for them."""
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


def test_a_materialized_model_is_pushed_and_a_reject_is_shown(
    api: DemoApi, root: Path, dagster: DagsterDevServer, browser: BrowserContext, tmp_path: Path
) -> None:
    """Only this test shows a sensor that is off, or a check without samples."""
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
