"""The number of times that files are read, counted by the jobs of the Spark session."""

import pytest
from support.spark.file_models import build_file_model, write_input_file
from support.spark.model_tables import ModelTables

from ondatra_dagster.warehouse.model_run import evaluate_query

pytestmark = pytest.mark.spark


def test_files_without_a_broken_row_are_read_once(model_tables: ModelTables) -> None:
    """Broken rows are counted only for a user who must correct a file. A million good rows aren't read twice."""
    write_input_file(model_tables, "x.json", '{"id": 1}\n')
    tracker = model_tables.warehouse.session.sparkContext.statusTracker()
    frame = evaluate_query(model_tables.warehouse, build_file_model("x.json", "json", schema="id INT"), {})
    model_tables.warehouse.session.sparkContext.setJobGroup("reading", "")
    frame.collect()
    assert 1 == len(tracker.getJobIdsForGroup("reading"))
