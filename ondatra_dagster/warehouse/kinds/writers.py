"""Which module writes which kind; a test holds the names equal to those of project/kinds."""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from ondatra_dagster.planning.delta_schema import CONTENT_HASH, PARTITION
from ondatra_dagster.warehouse.kinds import append, events, merge, partition, scd2, table, tracked
from ondatra_dagster.warehouse.kinds.effect import Writer

WRITERS: dict[str, Writer] = {
    "table": table.write,
    "append": append.write,
    "merge": merge.write,
    "tracked": tracked.write,
    "scd2": scd2.write,
    "partition": partition.write,
    "events": events.write,
}
# the rows of a table that stand for a key, of kinds that have one a key
STANDING: dict[str, Callable[[DataFrame], DataFrame]] = {"merge": lambda rows: rows, "scd2": scd2.current}
# the columns that a kind's table has beside the query's
OWN_COLUMNS: dict[str, Mapping[str, str]] = {
    "tracked": {CONTENT_HASH: "string"},
    "scd2": {scd2.VALID_FROM: "bigint", scd2.VALID_TO: "bigint", scd2.IS_CURRENT: "boolean"},
    "partition": {CONTENT_HASH: "string", PARTITION: "string"},
    "events": {"_extra": "string"},  # fields that no column is for, as JSON
}
# what these are in rows that were there before the table became of that kind; {version} is that of the commit
FIRST_VALUES: dict[str, Mapping[str, str]] = {
    "scd2": {scd2.VALID_FROM: "{version}", scd2.IS_CURRENT: "true"},
}
