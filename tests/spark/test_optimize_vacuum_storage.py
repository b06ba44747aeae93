"""The OPTIMIZE, VACUUM and log cleanup of tables, in any storage and with any Spark.

Deletion by age is in test_maintenance.
"""

import math
import time

import pytest
from support.spark.model_tables import ModelTables, build_model, values_query

from ondatra_dagster.deltalog.active_files import read_table_snapshot
from ondatra_dagster.deltalog.log_storage import open_log
from ondatra_dagster.deltalog.removable_history import FILE_RETENTION_PROPERTY, LOG_RETENTION_PROPERTY, NORMAL_RETENTION
from ondatra_dagster.operations.table_maintenance import DEFAULT_THRESHOLDS, ManagedTable, TableMaintenance, Thresholds
from ondatra_dagster.project.settings.storage_access import StorageAddress
from ondatra_dagster.warehouse.optimize_and_vacuum import SparkTableMaintenance

pytestmark = [pytest.mark.spark, pytest.mark.soak]  # with local tables and Spark test_maintenance shows the same


def test_maintenance_does_not_change_the_content_of_a_table(model_tables: ModelTables) -> None:
    """The table gets an append each hour. Then it is maintained by a user who keeps no old versions."""
    for number in range(DEFAULT_THRESHOLDS.small_files + 2):
        model_tables.write(build_model("append", values_query(f"{number}, 'x'")))
    model = build_model("append", "")
    address = StorageAddress(model_tables.path(model), model_tables.warehouse.settings.s3)
    before, rows = model_tables.state(model), sorted(map(str, model_tables.rows(model).collect()))
    commits = len(open_log(address).list_files())
    table = ManagedTable(
        name=model.name, lock_name=model.id, address=address, oldest_needed_version=lambda now: now.version
    )
    upkeep = TableMaintenance(
        lambda table: SparkTableMaintenance(model_tables.warehouse, table.address, lock=table.lock_name),
        days=0,
        clock=time.time,
        worth=Thresholds(files=1),
    )
    result = upkeep.maintain_tables([table])
    assert result.is_successful, result.message
    assert (DEFAULT_THRESHOLDS.small_files + 2, 1) == (result.counts["small_files"], result.counts["became"])
    assert 0 < result.counts["log_files"]
    assert commits > len(open_log(address).list_files())
    again = upkeep.maintain_tables([table])  # by the log, files that OPTIMIZE replaced may be deleted now
    assert again.is_successful, again.message
    after = model_tables.state(model)
    assert (before.version, before.commit_metadata) == (after.version, after.commit_metadata)
    assert {NORMAL_RETENTION} == {after.properties[name] for name in (FILE_RETENTION_PROPERTY, LOG_RETENTION_PROPERTY)}
    live = read_table_snapshot(address)
    assert live
    assert 1 == len(live.files)
    assert math.inf > live.files[0].size > 0
    assert rows == sorted(map(str, model_tables.rows(model).collect()))
    model_tables.write(build_model("append", values_query("99, 'newer'")))
    assert len(rows) + 1 == model_tables.rows(model).count()
