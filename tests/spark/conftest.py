"""The fixture that these tests share: an empty warehouse for each test, over the Spark session of the test run."""

import dataclasses
from pathlib import Path

import pytest
from support.spark.model_tables import ModelTables

from ondatra_dagster.warehouse.spark.session import Warehouse


@pytest.fixture
def model_tables(shared_warehouse: Warehouse, tmp_path: Path) -> ModelTables:
    """Return an empty warehouse with a space in its path."""
    root = tmp_path / "a project"
    root.mkdir()
    shared = shared_warehouse.settings
    folder = f"{shared.warehouse}/{root.parent.name}" if shared.uses_s3 else str(root)
    settings = dataclasses.replace(shared, root=root, state=root / ".ondatra", warehouse=f"{folder}/ware house")
    own = Warehouse(settings)
    own._session = shared_warehouse.session
    return ModelTables(own)
