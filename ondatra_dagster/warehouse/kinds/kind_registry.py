"""The writer of each model kind, and the columns that each kind adds.

A test compares the kinds' names with those in project/model_kinds.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from ondatra_dagster.project.sql.output_and_system_columns import CONTENT_HASH_COLUMN, PARTITION_COLUMN
from ondatra_dagster.warehouse.kinds.append_new_rows import write_append
from ondatra_dagster.warehouse.kinds.events_from_collector import write_events
from ondatra_dagster.warehouse.kinds.merge_and_scd2 import (
    IS_CURRENT,
    VALID_FROM,
    VALID_TO,
    current_version_rows,
    write_merge,
    write_scd2,
)
from ondatra_dagster.warehouse.kinds.table_replacement import write_table
from ondatra_dagster.warehouse.kinds.tracked_and_partition import write_partitions, write_tracked
from ondatra_dagster.warehouse.kinds.write_interface import Writer

WRITERS: dict[str, Writer] = {
    "table": write_table,
    "append": write_append,
    "merge": write_merge,
    "tracked": write_tracked,
    "scd2": write_scd2,
    "partition": write_partitions,
    "events": write_events,
}
# kind → function that returns the current row of each key, for kinds with one current row per key
CURRENT_ROWS: dict[str, Callable[[DataFrame], DataFrame]] = {"merge": lambda rows: rows, "scd2": current_version_rows}
# the columns that a kind adds to those of the query
OWN_COLUMNS: dict[str, Mapping[str, str]] = {
    "tracked": {CONTENT_HASH_COLUMN: "string"},
    "scd2": {VALID_FROM: "bigint", VALID_TO: "bigint", IS_CURRENT: "boolean"},
    "partition": {CONTENT_HASH_COLUMN: "string", PARTITION_COLUMN: "string"},
    "events": {"_extra": "string"},  # the event's fields that have no column, as JSON
}
# the values of these columns in rows from before the table's conversion to the kind; {version} is its commit's version
BACKFILL_VALUES: dict[str, Mapping[str, str]] = {"scd2": {VALID_FROM: "{version}", IS_CURRENT: "true"}}
