"""What all tests share: one Spark session a run, which starts when the first test asks for it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ondatra_dagster.project.settings import read_settings

if TYPE_CHECKING:
    from ondatra_dagster.warehouse.spark_session import Warehouse

JVM = "jvm"  # tests that use the session stay together on one worker
USES_SPARK = frozenset({"spark", "acceptance"})


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in a hook of the same name
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.get_closest_marker(name) for name in USES_SPARK):
            item.add_marker(pytest.mark.xdist_group(JVM))


@pytest.fixture(scope="session")
def shared_warehouse(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Warehouse]":
    """The warehouse whose session all tests use."""
    from ondatra_dagster.warehouse.spark_session import Warehouse

    settings = read_settings(tmp_path_factory.mktemp("spark"), {"ONDATRA_SPARK_MASTER": "local[2]"})
    with Warehouse(settings) as warehouse:
        yield warehouse
