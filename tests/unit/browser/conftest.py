"""A project that has run, and somebody who looks at its pages."""

from collections.abc import Iterator

import pytest
from support.pages import Reader
from support.ran_shop import ran_shop
from support.shop import Shop

from ondatra_dagster.orchestration.project_reader import ProjectReader
from ondatra_dagster.testing.demo_api import running_demo_api


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Looking changes nothing, so all tests look at the same one."""
    with running_demo_api() as api:
        yield ran_shop(tmp_path_factory.mktemp("ui") / "my <shop>", api)


@pytest.fixture
def look(ran: Shop) -> Reader:
    return Reader(ProjectReader(ran.root))
