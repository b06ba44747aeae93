"""Shallow clones: tables to write to whose rows are another's, which isn't touched. Dry runs have them."""

import contextlib

from pyspark.sql import SparkSession

from ondatra_dagster.planning.delta_log import GOES_ON_FROM, TableState
from ondatra_dagster.warehouse.altered_table import literals
from ondatra_dagster.warehouse.delta_tables import commit_metadata, path_table


def clone_table(session: SparkSession, original: str, state: TableState, path: str) -> None:
    """Make a table at `path` of what `original` has in `state`, whatever else is written to that meanwhile.

    It has a log, an id and a feed of its own, and begins with the note of the original's newest commit; its
    properties tell which version it goes on from.
    """
    told = commit_metadata(session, state.note) if state.note else contextlib.nullcontext()
    properties = literals({GOES_ON_FROM: f"{state.table_id}@{state.log_version}"})
    with told:
        session.sql(
            f"create table {path_table(path)} shallow clone {path_table(original)}"
            f" version as of {state.log_version} tblproperties ({properties})"
        ).collect()
