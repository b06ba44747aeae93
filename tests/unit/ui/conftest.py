"""The fixtures of a project that has run, and of a reader of its pages."""

from collections.abc import Iterator

import pytest
from support.projects.shop_project import ShopProject
from support.projects.shop_with_history import create_shop_with_history
from support.projects.ui_client import PageReader

from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.testing.demo_api import running_demo_api


@pytest.fixture(scope="session")
def shop_with_history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopProject]:
    """Yield a project with past runs. Reading changes nothing, so all tests share it."""
    with running_demo_api() as api:
        yield create_shop_with_history(tmp_path_factory.mktemp("ui") / "my <shop>", api)


@pytest.fixture
def get_page(shop_with_history: ShopProject) -> PageReader:
    return PageReader(ProjectCache(shop_with_history.root))
