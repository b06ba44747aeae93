"""The site of the documentation, as `make docs` builds it: every page, a search index, and no broken link."""

import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

ROOT = Path(__file__).parents[1]
ZENSICAL = Path(sys.executable).with_name("zensical")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a copy of the configuration and of the pages."""
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    return tmp_path


def build_site(source: Path) -> subprocess.CompletedProcess[str]:
    """Run the command of `make docs` in the folder."""
    command = [ZENSICAL, "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)


def test_the_site_has_every_page_and_a_search_index(source: Path) -> None:
    completed = build_site(source)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    site = source / "site"
    pages = {path.relative_to(source / "docs").with_suffix(".html") for path in source.glob("docs/**/*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    searchable = {
        item["location"].partition("#")[0] for item in orjson.loads((site / "search.json").read_bytes())["items"]
    }
    assert {str(page) for page in pages} <= searchable
    assert (site / "pictures" / "records-dark.png").exists()


@pytest.mark.parametrize("link", ["no-such-page.md", "models.md#no-such-heading"])
def test_a_broken_link_fails_the_build(source: Path, link: str) -> None:
    with (source / "docs" / "tutorial.md").open("a") as page:
        page.write(f"\n[broken]({link})\n")
    completed = build_site(source)
    assert completed.returncode == 1
    assert "does not exist" in completed.stdout + completed.stderr


def test_the_site_asks_no_other_server(source: Path) -> None:
    """Readers of an internal copy may have no internet."""
    assert build_site(source).returncode == 0
    for page in source.glob("site/**/*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'src="http' not in text
        assert '<link rel="stylesheet" href="http' not in text
