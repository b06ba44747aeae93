"""The fixtures of Dagster's tests: a shop, a demo API on loopback, and the Materialize button."""

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.orchestration.definitions import definitions_of
from ondatra_dagster.testing.demo_api.demo_server import DemoApi


@pytest.fixture
def dagster_instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """Yield a Dagster instance whose history is in memory."""
    # without a folder Dagster creates one, and leaves its removal to the garbage collector, which warns
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        yield instance


@pytest.fixture
def shop(tmp_path: Path, api: DemoApi) -> ShopProject:
    """Return a shop with two contacts that hasn't run yet."""
    shop = ShopProject.create(tmp_path / "my shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com")
    return shop


@pytest.fixture
def materialize(dagster_instance: dg.DagsterInstance) -> Callable[..., dg.ExecuteInProcessResult]:
    """Return a function that materializes these assets, or all, as the Materialize button does."""

    def materialize_assets(
        shop: ShopProject, *keys: dg.AssetKey, tags: dict[str, str] | None = None
    ) -> dg.ExecuteInProcessResult:
        definitions = definitions_of(shop.workspace, open_service=shop.open_engine)
        job = definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=dagster_instance,
            asset_selection=keys or None,
            raise_on_error=False,
            tags=tags,
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )

    return materialize_assets
