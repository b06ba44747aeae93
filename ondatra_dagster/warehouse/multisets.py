"""Rows as multisets: which of them one side has more often than the other, for every type of column."""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import StructField

from ondatra_dagster.warehouse.comparison import row_hashes

HASHES = ("__ondatra_hash_0", "__ondatra_hash_1")
SURPLUS, PLACE = "__ondatra_surplus", "__ondatra_place"


class Difference(NamedTuple):
    """What two sides don't have in common; a row that one has twice and the other once is there once."""

    ours: DataFrame  # with the columns of that side
    theirs: DataFrame


def difference(ours: DataFrame, theirs: DataFrame, fields: Sequence[StructField]) -> Difference:
    """Which rows each side has too many, compared by `fields`. Both sides are read twice."""
    left, right = _hashed(ours, fields), _hashed(theirs, fields)
    signed = left.select(*HASHES, F.lit(1).alias(SURPLUS)).unionAll(
        right.select(*HASHES, F.lit(-1).alias(SURPLUS))
    )
    surplus = signed.groupBy(*HASHES).agg(F.sum(SURPLUS).alias(SURPLUS))
    return Difference(
        _first_of_each(left, surplus.where(F.col(SURPLUS) > 0)),
        _first_of_each(right, surplus.where(F.col(SURPLUS) < 0)),
    )


def _hashed(rows: DataFrame, fields: Sequence[StructField]) -> DataFrame:
    return rows.withColumns(dict(zip(HASHES, row_hashes(fields), strict=True)))


def _first_of_each(rows: DataFrame, surplus: DataFrame) -> DataFrame:
    """As many of the equal rows as are too many."""
    equal = Window.partitionBy(*HASHES).orderBy(HASHES[0])
    candidates = rows.join(surplus, list(HASHES)).withColumn(PLACE, F.row_number().over(equal))
    return candidates.where(F.col(PLACE) <= F.abs(SURPLUS)).drop(*HASHES, SURPLUS, PLACE)
