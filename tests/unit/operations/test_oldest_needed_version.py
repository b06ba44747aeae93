"""The oldest version of a table that is still needed: by its sync's queue and snapshot, or by append models."""

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.projects.shop_project import ShopProject, write_contacts

from ondatra_dagster.cli.commands.run import execute_plan
from ondatra_dagster.delivery.queue.queue_status import QueueStatus
from ondatra_dagster.delivery.queue.snapshot_and_restore import QueueSnapshot
from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import INPUT_BASELINE_PROPERTY, TableState
from ondatra_dagster.operations.oldest_needed_version import OldestNeededVersions
from ondatra_dagster.planning.input_versions import table_state_lookup
from ondatra_dagster.testing.demo_api.demo_server import DemoApi

ALL = -1  # every version is needed
APPEND = "-- @kind: append\nSELECT id, email FROM raw.contacts\n"


def a_table(version: int, *, table_id: str = "t", note: CommitMetadata | None = None, **properties: str) -> TableState:
    return TableState(
        table_id=table_id,
        version=version,
        log_version=version,
        commit_metadata=note,
        columns=(),
        properties=properties,
        metrics={},
    )


def a_queue(watermark: int, *, invalid: int = -1, table_id: str = "t") -> QueueStatus:
    return QueueStatus(table_id=table_id, base_url="", watermark=watermark, invalid_watermark=invalid)


@pytest.fixture
def shop(tmp_path: Path, api: DemoApi) -> ShopProject:
    """Return a shop with contacts and one more model, which appends new rows."""
    shop = ShopProject.create(tmp_path / "shop", url=api.url, files={"models/mart/seen.sql": APPEND})
    write_contacts(shop.root, a1="ada@example.com")
    return shop


def needs(shop: ShopProject, queue: QueueStatus | None = None, **tables: TableState) -> OldestNeededVersions:
    workspace = shop.workspace
    tables_by_name = {name.replace("__", "."): table for name, table in tables.items()}
    return OldestNeededVersions(
        workspace.project, workspace.syncs, workspace.tracking, lambda _: queue, tables_by_name.get
    )


def test_a_sync_needs_the_versions_after_its_watermark(shop: ShopProject) -> None:
    """A sync that has never run begins with the newest version."""
    model = shop.workspace.project.model("sync.crm")
    assert 9 == needs(shop).oldest_for_model(model, a_table(9))
    assert 4 == needs(shop, a_queue(4)).oldest_for_model(model, a_table(9))
    assert ALL == needs(shop, a_queue(-1)).oldest_for_model(model, a_table(9))
    assert 9 == needs(shop, a_queue(4, table_id="another")).oldest_for_model(model, a_table(9))


def test_a_queue_snapshot_counts_as_much_as_the_queue(shop: ShopProject) -> None:
    """When the queue is lost, delivery continues from the snapshot."""
    workspace = shop.workspace
    snapshot = QueueSnapshot(
        sync_id="sync.crm",
        run_id="20261118T120102Z-kqzwtm",
        table_id="t",
        watermark=2,
        invalid_watermark=1,
        base_url="",
        written_at=datetime.now(UTC),
        units=(),
        layouts={},
    )
    workspace.tracking.write_snapshot(snapshot)
    model = workspace.project.model("sync.crm")
    assert 2 == needs(shop, a_queue(4, invalid=4)).oldest_for_model(model, a_table(9))
    assert 1 == needs(shop, a_queue(4, invalid=4)).oldest_for_invalid_rows(model, a_table(9))
    assert 2 == needs(shop).oldest_for_model(model, a_table(9))


def test_invalid_rows_are_needed_until_a_sync_has_recorded_them(shop: ShopProject) -> None:
    """A sync that has not run yet begins with the invalid rows that are left then, so nothing is kept for it."""
    project = shop.workspace.project
    assert 9 == needs(shop).oldest_for_invalid_rows(project.model("raw.contacts"), a_table(9))
    assert 9 == needs(shop).oldest_for_invalid_rows(project.model("sync.crm"), a_table(9))
    assert ALL == needs(shop, a_queue(4, invalid=-1)).oldest_for_invalid_rows(project.model("sync.crm"), a_table(9))
    assert 3 == needs(shop, a_queue(4, invalid=3)).oldest_for_invalid_rows(project.model("sync.crm"), a_table(9))


def test_an_append_model_needs_its_inputs_at_its_last_commit(shop: ShopProject) -> None:
    """The query's result at that commit decides which rows are new. Other kinds compare with their own table."""
    raw = shop.workspace.project.model("raw.contacts")
    note = CommitMetadata(definition="d", inputs={"raw.contacts": "t@3"}, run_id="r")
    assert 3 == needs(shop, mart__seen=a_table(1, note=note)).oldest_for_model(raw, a_table(9))
    assert 9 == needs(shop, sync__crm=a_table(1, note=note)).oldest_for_model(raw, a_table(9))
    elsewhere = dataclasses.replace(note, inputs={"raw.contacts": "another@3"})
    assert 9 == needs(shop, mart__seen=a_table(1, note=elsewhere)).oldest_for_model(raw, a_table(9))


def test_an_input_that_a_changed_definition_added_counts_from_then(shop: ShopProject) -> None:
    """No commit names this input yet."""
    raw = shop.workspace.project.model("raw.contacts")
    brought = a_table(1, **{INPUT_BASELINE_PROPERTY: '{"definition": "d", "inputs": {"raw.contacts": "t@2"}}'})
    assert 2 == needs(shop, mart__seen=brought).oldest_for_model(raw, a_table(9))


def test_a_project_that_is_up_to_date_needs_only_the_newest_versions(shop: ShopProject) -> None:
    """The project's tables and queue are real files here."""
    workspace = shop.workspace
    assert 0 == execute_plan(workspace, workspace.plan(None), open_service=shop.open_engine)
    tables = table_state_lookup(workspace.settings)
    needed = OldestNeededVersions(workspace.project, workspace.syncs, workspace.tracking, workspace.queue, tables)
    for model in workspace.project.models.values():
        table = tables(model.id)
        assert table is not None
        assert table.version == needed.oldest_for_model(model, table)
