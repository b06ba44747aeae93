"""Fixtures of Dagster's tests: a shop beside a demo API on loopback, and the Materialize button."""

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.testing.demo_api.demo_server import DemoApi


@pytest.fixture
def dagster_instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """Dagster's history, in memory."""
    # without a folder it makes one, and leaves that to the garbage collector, with a warning
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        yield instance


@pytest.fixture
def shop(tmp_path: Path, api: DemoApi) -> ShopProject:
    """Two contacts, and nothing has run yet."""
    shop = ShopProject.create(tmp_path / "my shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com")
    return shop


@pytest.fixture
def materialize(dagster_instance: dg.DagsterInstance) -> Callable[..., dg.ExecuteInProcessResult]:
    """What the Materialize button does, on all assets or on these."""

    def button(shop: ShopProject, *keys: dg.AssetKey, tags: dict[str, str] | None = None) -> dg.ExecuteInProcessResult:
        definitions = definitions_of(shop.workspace, opened=shop.open_engine)
        job = definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=dagster_instance,
            asset_selection=keys or None,
            raise_on_error=False,
            tags=tags,
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )

    return button
