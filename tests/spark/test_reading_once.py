"""How often files are read: told by the jobs of a Spark of our own."""

import pytest
from support.model_files import a_file, reading
from support.model_tables import ModelTables

from ondatra_dagster.warehouse.model_run import evaluate

pytestmark = pytest.mark.spark


def test_files_without_a_broken_row_are_read_once(lake: ModelTables) -> None:
    """The count is for who has to correct a file: a million good rows don't pay for it."""
    a_file(lake, "x.json", '{"id": 1}\n')
    tracker = lake.warehouse.session.sparkContext.statusTracker()
    frame = evaluate(lake.warehouse, reading("x.json", "json", schema="id INT"), {})
    lake.warehouse.session.sparkContext.setJobGroup("reading", "")
    frame.collect()
    assert 1 == len(tracker.getJobIdsForGroup("reading"))
