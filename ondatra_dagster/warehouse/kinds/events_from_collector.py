"""The kind events: the collector's events are appended once each; no row is ever changed or deleted.

A commit holds the number of its newest event, as a Delta transaction. If a killed run has committed, the next run
continues after that commit. Otherwise it reads the same events again.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import read_last_transaction
from ondatra_dagster.event_batches import EventBatch, EventRow, InvalidEvent
from ondatra_dagster.planning.find_table_and_columns import invalid_table_path
from ondatra_dagster.warehouse.create_and_write_target_table import TableSpec, TargetTable, Transaction, open_target
from ondatra_dagster.warehouse.kinds.append_new_rows import ORDER_COLUMN, sort_by_order
from ondatra_dagster.warehouse.kinds.write_interface import WriteRequest, WriteResult, count_existing_rows

MAX_INVALID_SAMPLES = 20  # the maximum number of invalid events that are shown


def write_events(work: WriteRequest) -> WriteResult:
    """Append the waiting events in the order of their arrival, with one commit per batch."""
    rows = rows_before = count_existing_rows(work.target)
    invalid_count, samples = 0, list[InvalidEvent]()
    is_checked = False
    if work.events:
        numbering = work.events.sequence_id
        for batch in work.events.read_batches(read_last_transaction(work.target.path, numbering)):
            rows += len(batch.rows)
            invalid_count += len(batch.invalid_events)
            samples += batch.invalid_events[: MAX_INVALID_SAMPLES - len(samples)]
            _append_batch(work, batch, Transaction(numbering, batch.last_number), rows=rows)
            is_checked = True
    if not is_checked:  # without new events, the checks still run
        work.check_rows(work.rows)
        work.check_before_commit(lambda: work.target.rows)
    return WriteResult(
        inserted=rows - rows_before, rows=rows, invalid_event_count=invalid_count, invalid_event_samples=samples
    )


def _append_batch(work: WriteRequest, portion: EventBatch, transaction: Transaction, *, rows: int) -> None:
    """Append a batch in one commit, with the number of the newest event that the table has after it."""
    frame = event_frame(work.target.session, work.rows.schema, portion.rows)
    try:
        work.check_rows(frame)
        work.check_before_commit(lambda: _rows_after(frame, work.target))
        note = work.commit_note(rows=rows)
        write_invalid_events(work.target, portion.invalid_events, note, transaction)
        query_names = {name.casefold(): name for name in frame.columns}
        table_names = {query_names[field.name.casefold()]: field.name for field in work.target.fields}
        work.target.append(sort_by_order(frame).withColumnsRenamed(table_names), note, transaction=transaction)
    finally:
        frame.unpersist()


def _rows_after(new: DataFrame, target: TargetTable) -> DataFrame:
    """Return all rows of the table as they will be after the write."""
    # read the table again: it also has the rows that this run has already written
    table_rows = target.session.read.format("delta").load(target.path)
    names: Sequence[str] = [*(field.name for field in target.fields), EXTRA_COLUMN]
    return table_rows.select(*names).unionByName(new.select(*names))


INVALID_EVENTS_SPEC = TableSpec(kind="misfits", key_columns=())


def write_invalid_events(
    table: TargetTable, misfits: Sequence[InvalidEvent], note: CommitMetadata, transaction: Transaction
) -> None:
    """Add those invalid events that the table doesn't have yet, in one commit.

    An interrupted flush may have added some of them already.
    """
    if not misfits:
        return
    path = invalid_table_path(table.path)
    invalid_table = open_target(table.session, path, INVALID_EVENT_SCHEMA.fields, INVALID_EVENTS_SPEC, converts=True)
    last_number = read_last_transaction(path, transaction.sequence_id) or 0
    new_events = [misfit for misfit in misfits if misfit.number > last_number]
    if new_events:
        note_with_rows = dataclasses.replace(note, rows=count_existing_rows(invalid_table) + len(new_events))
        columns = [[getattr(misfit, name) for misfit in new_events] for name in INVALID_EVENT_SCHEMA.names]
        frame = _create_frame(table.session, INVALID_EVENT_SCHEMA, columns)
        invalid_table.append(frame, note_with_rows, transaction=transaction)
    invalid_table.finish_conversion()


EXTRA_COLUMN = "_extra"
INVALID_EVENT_SCHEMA = StructType(  # the schema of the table of events that don't fit the columns
    [
        StructField("event", StringType()),
        StructField("problem", StringType()),
        StructField("received_at", TimestampType()),
        StructField("number", LongType()),
    ]
)


def event_frame(session: SparkSession, columns: StructType, rows: Sequence[EventRow]) -> DataFrame:
    """Return a batch's rows with their position in the batch.

    `columns` are the model's columns, in the order of the values.
    """
    schema = StructType(
        [*columns.fields, StructField(EXTRA_COLUMN, StringType()), StructField(ORDER_COLUMN, LongType())]
    )
    values = [[row[index] for row in rows] for index in range(len(columns.fields) + 1)]
    return _create_frame(session, schema, [*values, range(len(rows))])


def _create_frame(session: SparkSession, schema: StructType, columns: Sequence[Sequence[Any]]) -> DataFrame:
    # create the frame from Arrow even without rows: for an empty list, Spark would start a Python process
    arrow = to_arrow_schema(schema, timezone="UTC")  # UTC is the time zone of all sessions
    arrays = [pa.array(values, field.type) for values, field in zip(columns, arrow, strict=True)]
    return session.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), schema)
