"""How often files are read: told by the jobs of a Spark of our own."""

import pytest
from support.spark.file_models import build_file_model, write_input_file
from support.spark.model_tables import ModelTables

from ondatra_dagster.warehouse.model_run import evaluate_query

pytestmark = pytest.mark.spark


def test_files_without_a_broken_row_are_read_once(model_tables: ModelTables) -> None:
    """The count is for who has to correct a file: a million good rows don't pay for it."""
    write_input_file(model_tables, "x.json", '{"id": 1}\n')
    tracker = model_tables.warehouse.session.sparkContext.statusTracker()
    frame = evaluate_query(model_tables.warehouse, build_file_model("x.json", "json", schema="id INT"), {})
    model_tables.warehouse.session.sparkContext.setJobGroup("reading", "")
    frame.collect()
    assert 1 == len(tracker.getJobIdsForGroup("reading"))
