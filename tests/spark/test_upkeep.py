"""OPTIMIZE, VACUUM and old commits wherever tables are and Spark runs. What goes by age: test_maintenance."""

import math
import time

import pytest
from support.model_tables import ModelTables, a_model, values

from ondatra_dagster.operations.tables import WORTH, Maintained, Upkeep, Worth
from ondatra_dagster.planning.live_files import live_table
from ondatra_dagster.planning.log_files import open_log
from ondatra_dagster.planning.table_past import COMMITS_KEPT, FILES_KEPT, KEPT
from ondatra_dagster.project.settings.addresses import Address
from ondatra_dagster.warehouse.upkeep import UpkeepTable

pytestmark = [pytest.mark.spark, pytest.mark.soak]  # on this machine test_maintenance shows the same


def test_a_table_is_looked_after_and_is_what_it_was(lake: ModelTables) -> None:
    """An append each hour; then somebody who keeps nothing of the past maintains."""
    for number in range(WORTH.small_files + 2):
        lake.write(a_model("append", values(f"{number}, 'x'")))
    model = a_model("append", "")
    address = Address(lake.path(model), lake.warehouse.settings.s3)
    before, rows = lake.state(model), sorted(map(str, lake.rows(model).collect()))
    commits = len(open_log(address).names())
    table = Maintained(name=model.name, lock=model.id, address=address, needed=lambda now: now.version)
    upkeep = Upkeep(
        lambda table: UpkeepTable(lake.warehouse, table.address, lock=table.lock),
        days=0,
        clock=time.time,
        worth=Worth(files=1),
    )
    done = upkeep.go([table])
    assert done.is_good, done.did
    assert (WORTH.small_files + 2, 1) == (done.counts["small_files"], done.counts["became"])
    assert 0 < done.counts["log_files"]
    assert commits > len(open_log(address).names())
    again = upkeep.go([table])  # what the OPTIMIZE took out may go now, by the log
    assert again.is_good, again.did
    after = lake.state(model)
    assert (before.version, before.note) == (after.version, after.note)
    assert {KEPT} == {after.properties[name] for name in (FILES_KEPT, COMMITS_KEPT)}
    live = live_table(address)
    assert live
    assert 1 == len(live.files)
    assert math.inf > live.files[0].size > 0
    assert rows == sorted(map(str, lake.rows(model).collect()))
    lake.write(a_model("append", values("99, 'newer'")))
    assert len(rows) + 1 == lake.rows(model).count()
