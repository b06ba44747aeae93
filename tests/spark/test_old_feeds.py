"""A sync that hasn't run for weeks still finds all that has changed since."""

import os
import time
from pathlib import Path

import pytest
from support.model_tables import QUERIED, ModelTables, a_model, values

pytestmark = pytest.mark.spark

FORTY_DAYS = 40 * 24 * 3600


@pytest.mark.parametrize("kind", QUERIED)
def test_a_feed_forty_days_old_is_read(lake: ModelTables, kind: str) -> None:
    """Delta refuses versions that are older than its retention, which is a week if nobody says otherwise."""
    for names in ("'a'", "'b'", "'c'"):
        lake.write(a_model(kind, values(f"1, {names}", "2, 'x'")))
    model = a_model(kind, "")
    newest, expected = lake.state(model).version, lake.told(model, 1)
    long_ago = time.time() - FORTY_DAYS
    for commit in sorted(Path(lake.path(model), "_delta_log").glob("*.json"))[:-1]:
        os.utime(commit, (long_ago, long_ago))
    lake.warehouse.session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    history = lake.warehouse.session.sql(f"describe history delta.`{lake.path(model)}`")
    oldest = history.agg({"timestamp": "min"}).collect()[0][0]
    assert long_ago + 1 > oldest.timestamp()
    assert expected
    assert expected == lake.told(model, 1)
    assert lake.told(model, None, newest - 1)
