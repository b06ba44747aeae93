"""The project cache, which follows changes of the project's files."""

from pathlib import Path

import pytest
from support.projects.shop_project import ShopProject
from support.projects.ui_client import PageReader

from ondatra_dagster.app.workspace import ProjectCache, Workspace, load_workspace
from ondatra_dagster.errors import ProjectError
from ondatra_dagster.testing.demo_api import DemoApi

MODEL = "-- @kind: merge\n-- @unique_key: id\n-- @sink: crm_push\nSELECT id, email FROM raw.contacts\n"


@pytest.fixture
def root(tmp_path: Path, api: DemoApi) -> Path:
    return ShopProject.create(tmp_path / "shop", url=api.url).root


def test_a_new_sync_is_shown_at_the_next_request(root: Path) -> None:
    """A user who writes a model has the page open at the same time."""
    look = PageReader(ProjectCache(root))
    assert 404 == look("/syncs/sync.more").status
    (root / "models" / "sync" / "more.sql").write_text(MODEL)
    assert 200 == look("/syncs/sync.more").status


def test_an_invalid_project_is_shown_in_its_last_valid_state(root: Path) -> None:
    """The page shows the problems until they are fixed."""
    look = PageReader(ProjectCache(root))
    model = root / "models" / "sync" / "crm.sql"
    good = model.read_text()
    model.write_text(good.replace("merge", "mrege"))
    page = look("/syncs/sync.crm")
    assert 200 == page.status
    assert "its last readable state is shown" in page.text
    assert "did you mean 'merge'?" in page.text
    model.write_text(good)
    assert "its last readable state is shown" not in look("/syncs/sync.crm").text


def test_a_project_is_loaded_only_once_while_nothing_changes(root: Path) -> None:
    """Loading a large project takes half a second."""
    read: list[Path] = []

    def load(folder: Path) -> Workspace:
        read.append(folder)
        return load_workspace(folder)

    project = ProjectCache(root, load=load)
    assert project.load_current_project()[0] is project.load_current_project()[0]
    assert [root] == read


def test_a_project_that_was_never_valid_raises_its_problems(root: Path) -> None:
    (root / "models" / "sync" / "crm.sql").write_text("-- @kind: mrege\nSELECT 1")
    with pytest.raises(ProjectError, match="did you mean 'merge'"):
        ProjectCache(root)
