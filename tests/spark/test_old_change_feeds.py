"""The change feed of a sync that hasn't run for weeks: it still has all changes since then."""

import os
import time
from pathlib import Path

import pytest
from support.spark.model_tables import QUERY_KINDS, ModelTables, build_model, values_query

pytestmark = pytest.mark.spark

FORTY_DAYS = 40 * 24 * 3600


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_a_feed_forty_days_old_is_read(model_tables: ModelTables, kind: str) -> None:
    """Delta refuses versions that are older than its retention, which is a week by default."""
    for names in ("'a'", "'b'", "'c'"):
        model_tables.write(build_model(kind, values_query(f"1, {names}", "2, 'x'")))
    model = build_model(kind, "")
    newest, expected = model_tables.state(model).version, model_tables.feed_values(model, 1)
    long_ago = time.time() - FORTY_DAYS
    for commit in sorted(Path(model_tables.path(model), "_delta_log").glob("*.json"))[:-1]:
        os.utime(commit, (long_ago, long_ago))
    model_tables.warehouse.session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    history = model_tables.warehouse.session.sql(f"describe history delta.`{model_tables.path(model)}`")
    oldest = history.agg({"timestamp": "min"}).collect()[0][0]
    assert long_ago + 1 > oldest.timestamp()
    assert expected
    assert expected == model_tables.feed_values(model, 1)
    assert model_tables.feed_values(model, None, newest - 1)
