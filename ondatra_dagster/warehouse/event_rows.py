"""Events as a DataFrame: values of the columns' own types, by way of Arrow, which loses none of them."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from ondatra_dagster.arrivals import Misfit, Row

ORDER = "__ondatra_order"
EXTRA = "_extra"
ASIDE = StructType(  # of the table of events that have no place in the columns
    [
        StructField("event", StringType()),
        StructField("problem", StringType()),
        StructField("received_at", TimestampType()),
        StructField("number", LongType()),
    ]
)


def event_frame(session: SparkSession, columns: StructType, rows: Sequence[Row]) -> DataFrame:
    """The rows of a portion with their place in it; `columns` are the model's, in the order of the values."""
    schema = StructType([*columns.fields, StructField(EXTRA, StringType()), StructField(ORDER, LongType())])
    values = [[row[place] for row in rows] for place in range(len(columns.fields) + 1)]
    return _frame(session, schema, [*values, range(len(rows))])


def misfit_frame(session: SparkSession, misfits: Sequence[Misfit]) -> DataFrame:
    columns = ("event", "problem", "received_at", "number")
    return _frame(session, ASIDE, [[getattr(misfit, name) for misfit in misfits] for name in columns])


def in_turn(frame: DataFrame) -> DataFrame:
    """The rows one after another, without their places: they get rowids in the order in which they came."""
    return frame.repartition(1).sortWithinPartitions(ORDER).drop(ORDER)


def _frame(session: SparkSession, schema: StructType, columns: Sequence[Sequence[Any]]) -> DataFrame:
    # also where there are no rows: Spark would start a Python to make an empty frame of a list
    arrow = to_arrow_schema(schema, timezone="UTC")  # as sessions have it
    arrays = [pa.array(values, of.type) for values, of in zip(columns, arrow, strict=True)]
    return session.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), schema)
