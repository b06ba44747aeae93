"""The fixtures of the command line's tests: a shop as the working directory, and a demo API on loopback."""

from pathlib import Path

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.testing.demo_api.demo_server import DemoApi


@pytest.fixture
def shop(tmp_path: Path, api: DemoApi, dagster_home: Path, monkeypatch: pytest.MonkeyPatch) -> ShopProject:
    """Return a shop with two contacts that hasn't run yet; it is the working directory."""
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home))
    shop = ShopProject.create(tmp_path / "my shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com")
    monkeypatch.chdir(shop.root)
    return shop


@pytest.fixture
def ondatra(capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capfd)
