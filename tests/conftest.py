"""What all tests share: one Spark session a run, which starts when the first test asks for it."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

from ondatra_dagster.project.settings.settings import read_settings

if TYPE_CHECKING:
    from ondatra_dagster.warehouse.spark_session import Warehouse

JVM = ("tests/spark/", "tests/acceptance/", "tests/browser/")


class OneJvm(LoadScopeScheduling):
    """Shares tests out one by one, but keeps those that use a JVM on one worker.

    xdist's own `loadgroup` would do that by marks, but finds none with this pytest.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "jvm" if nodeid.startswith(JVM) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneJvm:
    return OneJvm(config, log)


def spark_variables() -> dict[str, str]:
    """Where these tests' Spark runs: here, unless ONDATRA_TEST_SPARK_MASTER and the like say otherwise."""
    elsewhere = {
        name.replace("ONDATRA_TEST_", "ONDATRA_"): value
        for name, value in os.environ.items()
        if name.startswith(("ONDATRA_TEST_SPARK_", "ONDATRA_TEST_WAREHOUSE", "AWS_"))
    }
    return {"ONDATRA_SPARK_MASTER": "local[2]", **elsewhere}


@pytest.fixture(scope="session")
def shared_warehouse(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Warehouse]":
    """The warehouse whose session all tests use."""
    from ondatra_dagster.warehouse.spark_session import Warehouse

    settings = read_settings(tmp_path_factory.mktemp("spark"), spark_variables())
    with Warehouse(settings) as warehouse:
        yield warehouse
