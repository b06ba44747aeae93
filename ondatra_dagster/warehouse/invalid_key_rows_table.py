"""The table SCHEMA.TABLE__invalid with a model's invalid rows. The table's own change feed shows which rows are new."""

import dataclasses
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.planning.find_table_and_columns import invalid_table_path
from ondatra_dagster.project.sql.output_and_system_columns import REASON_COLUMN
from ondatra_dagster.warehouse.create_and_write_target_table import TableSpec, TargetTable, open_target
from ondatra_dagster.warehouse.kinds.table_replacement import write_difference
from ondatra_dagster.warehouse.kinds.write_interface import count_existing_rows


def write_invalid_rows(table: TargetTable, rows: DataFrame, counts: Mapping[str, int], note: CommitMetadata) -> None:
    """Replace the content of the table of invalid rows in one commit. Make no commit if the content is the same."""
    path = invalid_table_path(table.path)
    if not counts and read_table_state(path) is None:
        return
    identity = TableSpec(kind="invalid", key_columns=table.key_columns, own_columns={REASON_COLUMN: "string"})
    target = open_target(table.session, path, table.fields, identity, converts=True)
    if counts or count_existing_rows(target):
        fields = [*target.fields, StructField(REASON_COLUMN, StringType())]
        write_difference(rows, target, fields, dataclasses.replace(note, rows=sum(counts.values())))
    target.finish_conversion()
