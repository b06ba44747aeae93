"""The writer of each model kind, and its columns; a test compares the names with project/model_kinds."""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from ondatra_dagster.deltalog.system_columns import CONTENT_HASH_COLUMN, PARTITION_COLUMN
from ondatra_dagster.warehouse.kinds import (
    append_new_rows,
    events_from_collector,
    merge_by_key,
    partition_replacement,
    scd2_versions,
    table_replacement,
    tracked_groups,
)
from ondatra_dagster.warehouse.kinds.write_interface import Writer

WRITERS: dict[str, Writer] = {
    "table": table_replacement.write_table,
    "append": append_new_rows.write_append,
    "merge": merge_by_key.write_merge,
    "tracked": tracked_groups.write_tracked,
    "scd2": scd2_versions.write_scd2,
    "partition": partition_replacement.write_partitions,
    "events": events_from_collector.write_events,
}
# the rows of a table that stand for a key, of kinds that have one a key
CURRENT_ROWS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "merge": lambda rows: rows,
    "scd2": scd2_versions.current_version_rows,
}
# the columns that a kind's table has beside the query's
OWN_COLUMNS: dict[str, Mapping[str, str]] = {
    "tracked": {CONTENT_HASH_COLUMN: "string"},
    "scd2": {scd2_versions.VALID_FROM: "bigint", scd2_versions.VALID_TO: "bigint", scd2_versions.IS_CURRENT: "boolean"},
    "partition": {CONTENT_HASH_COLUMN: "string", PARTITION_COLUMN: "string"},
    "events": {"_extra": "string"},  # fields that no column is for, as JSON
}
# what these are in rows that were there before the table became of that kind; {version} is that of the commit
BACKFILL_VALUES: dict[str, Mapping[str, str]] = {
    "scd2": {scd2_versions.VALID_FROM: "{version}", scd2_versions.IS_CURRENT: "true"}
}
