"""The pictures of the documentation: the example project, run with the demo API, in a real browser.

`make pictures` takes them into docs/pictures. In the soak run they are taken into the test's own folder, so the
steps and the pages stay correct.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from support.processes.dagster_dev_server import PAGE_SECONDS, DagsterDevServer
from support.projects.chromium_options import open_chromium

from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.testing.demo_api import DemoApi
from ondatra_dagster.ui.web_app_and_server import PageServer, open_listener

pytestmark = [pytest.mark.soak, pytest.mark.browser]

ROOT = Path(__file__).parents[2]
PROJECT_FILES = ("models", "lib", "data", "ondatra_project", "pyproject.toml", "workspace.yaml", "dagster.yaml")
ONDATRA = Path(sys.executable).with_name("ondatra")
THEMES = ("light", "dark")
WINDOW = {"width": 1280, "height": 800}
LARGEST_PICTURE = 400_000  # bytes: the pages are loaded over slow connections too


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, shared_demo_api: DemoApi) -> Path:
    """Return the example project after three runs: rows were delivered, rejected, invalid, and one waits."""
    root = tmp_path_factory.mktemp("pictures") / "shop"
    root.mkdir()
    for name in PROJECT_FILES:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / name)
    shutil.copy(ROOT / ".env.example", root / ".env")
    for push_file in root.glob("lib/*.star"):
        push_file.write_text(push_file.read_text().replace("http://127.0.0.1:8321", shared_demo_api.url))
    shared_demo_api.clear()
    customers = root / "data" / "customers.csv"
    run_ondatra(root, "run")
    customers.write_text(customers.read_text().replace("astrid.lindqvist@example.com,SE", "astrid@example.com,DK"))
    run_ondatra(root, "run")
    text = customers.read_text().replace("marco.bianchi@example.com", "marco@example.com")
    text = text.replace("jonas.weber@example.com", "jonas.weber.example.com")  # the API rejects it
    customers.write_text(text + "C-1039,Hugo,Lund,hugo.lund@example.com,SE,2026-11-02\n")  # the API fails
    shared_demo_api.fail(path="/crm/contacts", status=503, times=None, message="maintenance until 14:00")
    run_ondatra(root, "run")
    return root


def run_ondatra(root: Path, *words: str) -> None:
    """Run a command. Rejected and failed rows are only warnings while other rows are delivered."""
    completed = subprocess.run([ONDATRA, *words], cwd=root, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with open_chromium(wait_seconds=PAGE_SECONDS) as browser:
        yield browser


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for the pictures: the one that `make pictures` names, or a new one."""
    name = os.environ.get("ONDATRA_TEST_PICTURES")
    folder = ROOT / name if name else tmp_path_factory.mktemp("taken")
    folder.mkdir(exist_ok=True)
    return folder


def open_page(chromium: Browser, theme: str) -> Page:
    context = chromium.new_context(viewport=WINDOW, color_scheme=theme)  # type: ignore[arg-type]  # one of its literals
    context.set_default_timeout(PAGE_SECONDS * 1000)
    return context.new_page()


def take_picture(page: Page, pictures: Path, name: str, theme: str) -> None:
    """Write NAME-THEME.png, and check that it is dark or light and not too large."""
    file = pictures / f"{name}-{theme}.png"
    page.screenshot(path=file, animations="disabled", caret="hide")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(background.removeprefix("rgba(").removeprefix("rgb(").split(",")[0])
    assert (red < 128) == (theme == "dark"), background
    assert file.stat().st_size < LARGEST_PICTURE


@pytest.mark.parametrize("theme", THEMES)
def test_the_records_page(project: Path, chromium: Browser, pictures: Path, theme: str) -> None:
    server = PageServer(ProjectCache(project), open_listener(0))
    server.start()
    try:
        page = open_page(chromium, theme)
        page.goto(server.url)
        expect(page.get_by_role("link", name="sync.crm").first).to_be_visible()
        take_picture(page, pictures, "syncs", theme)
        page.get_by_role("link", name="sync.crm").first.click()
        expect(page.get_by_role("heading", name="sync.crm")).to_be_visible()
        take_picture(page, pictures, "sync", theme)
        page.get_by_role("link", name="View records").click()
        expect(page.get_by_role("cell", name="maintenance until 14:00")).to_be_visible()
        page.locator("summary").first.click()
        take_picture(page, pictures, "records", theme)
    finally:
        server.stop()


def test_the_pages_of_dagster(project: Path, chromium: Browser, pictures: Path, tmp_path: Path) -> None:
    run_ondatra(project, "pause", "sync.crm")  # a retry would replace the results that the pictures show
    dagster = DagsterDevServer(project, tmp_path / "dagster.log")
    try:
        dagster.wait_until_ready()
        for theme in THEMES:
            page = open_page(chromium, theme)
            page.goto(f"{dagster.url}/assets/push/sync/crm?view=lineage&lineageScope=upstream&lineageDepth=5")
            for name in ("customers.csv", "order_lines.csv", "orders.csv", "products.csv"):
                expect(page.get_by_text(name, exact=True)).to_be_visible()
            take_picture(page, pictures, "dagster", theme)
            page.goto(f"{dagster.url}/assets/push/sync/crm?view=checks")
            page.get_by_text("rejects", exact=True).first.click()
            expect(page.get_by_text("isn't an address").first).to_be_visible()
            take_picture(page, pictures, "dagster-check", theme)
    finally:
        dagster.stop()
