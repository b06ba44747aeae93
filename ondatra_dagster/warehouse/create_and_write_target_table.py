"""A model's Delta table: how it is made, altered, read and written to. What is written is up to the kinds.

Every write is one commit, which carries its note.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import StructField

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import CLONE_ORIGIN_PROPERTY, TableState, read_table_state
from ondatra_dagster.deltalog.removable_history import RETENTION_PROPERTIES, is_retention_lowered
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.sql.input_references import quote_name
from ondatra_dagster.project.sql.output_and_system_columns import PARTITION_COLUMN, ROWID_COLUMN
from ondatra_dagster.warehouse.row_equality_and_hashes import column_of
from ondatra_dagster.warehouse.schema_evolution import (
    STALE_HASHES,
    TableAlterer,
    ddl_type,
    plan_column_changes,
    property_literals,
    visible_fields,
)

TABLE_PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    "delta.columnMapping.mode": "name",  # for names with spaces, and to drop or rename without a rewrite
    **RETENTION_PROPERTIES,  # only `maintain` frees space
}
KIND_PROPERTY, KEY_PROPERTY, CLUSTERING_PROPERTY = "ondatra.kind", "ondatra.key", "ondatra.clustered_by"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
MERGE_VIEW = "__ondatra_merged"
DELETE_FLAG = "__ondatra_goes"  # whether a row that is there is deleted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """What a table is, once and for all."""

    kind: str
    key_columns: tuple[str, ...]
    own_columns: Mapping[str, str] = dataclasses.field(default_factory=dict)  # the kind's, with their types
    backfill_values: Mapping[str, str] = dataclasses.field(default_factory=dict)  # theirs, in rows of another kind
    partition_column: str | None = None  # one of those
    clustering_columns: tuple[str, ...] = ()  # how the rows are to lie, where the table is made now

    @property
    def properties(self) -> dict[str, str]:
        return {
            KIND_PROPERTY: self.kind,
            KEY_PROPERTY: orjson.dumps([name.casefold() for name in self.key_columns]).decode(),
        }

    def differs_from(self, state: TableState) -> bool:
        """Whether a table is, so far, of another kind or another key."""
        return any(state.properties.get(name, wanted) != wanted for name, wanted in self.properties.items())


class Transaction(NamedTuple):
    """What a commit says of where its rows came from; one of a number that is there already does nothing."""

    sequence_id: str
    number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """A table that is ready to take the rows of a query."""

    session: SparkSession
    path: str
    rows: DataFrame  # all that it has now, with the hidden columns
    key_columns: tuple[str, ...]  # as the table spells them
    own_columns: Mapping[str, str]  # the kind's
    state: TableState
    # properties that it has when it is written
    pending_properties: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def fields(self) -> list[StructField]:
        """The query's columns."""
        return [field for field in visible_fields(self.rows.schema) if field.name not in self.own_columns]

    @property
    def is_partitioned(self) -> bool:
        return PARTITION_COLUMN in self.state.partition_columns

    def select_fields(self, rows: DataFrame) -> DataFrame:
        """Rows with just the model's columns, in the table's order."""
        return rows.select(*(column_of(field.name) for field in self.fields))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written; one that was emptied since counts as written."""
        is_new = self.state.version == 0 and not self.state.metrics.get("numOutputRows")
        return is_new and not (self.state.commit_metadata or int(self.state.metrics.get("sourceNumOfFiles", 0)))

    @property
    def next_version(self) -> int:
        """That of its next commit; of a clone, as if it were its original's."""
        return self.state.version_offset + self.state.log_version + 1

    @property
    def has_valid_hashes(self) -> bool:
        """Whether the hashes that were kept are of the columns as they are now."""
        return STALE_HASHES not in self.state.properties

    def finish_conversion(self, *, is_rewritten: bool = False) -> None:
        """Have the table be what it was made or converted for: its rows are, and all of them if rewritten."""
        table = TableAlterer(self.session, self.path)
        if self.pending_properties:
            table.set_properties(self.pending_properties)
        if is_rewritten and not self.has_valid_hashes:  # else each run would reckon them all anew
            table.mark_hashes_valid()

    def append(self, rows: DataFrame, note: CommitMetadata, *, transaction: Transaction | None = None) -> None:
        write = self._frame_writer(rows, "append", note)
        if transaction:
            write = write.options(txnAppId=transaction.sequence_id, txnVersion=str(transaction.number))
        write.save(self.path)

    def overwrite(self, rows: DataFrame, note: CommitMetadata) -> None:
        # Delta forgets in an overwrite how a table is clustered
        clustered_by = orjson.loads(self.state.properties.get(CLUSTERING_PROPERTY, "[]"))
        rows = rows.orderBy(*map(column_of, clustered_by)) if clustered_by else rows
        self._frame_writer(rows, "overwrite", note).save(self.path)

    def overwrite_partitions(self, rows: DataFrame, note: CommitMetadata) -> None:
        """Replace the partitions that the rows belong to, and no other."""
        write = self._frame_writer(rows, "overwrite", note).option("partitionOverwriteMode", "dynamic")
        write.save(self.path)

    def _frame_writer(self, rows: DataFrame, mode: str, note: CommitMetadata) -> DataFrameWriter:
        # a table that was of kind partition still lies in its folders
        missing = [name for name in self.state.partition_columns if name not in rows.columns]
        for name in missing:
            rows = rows.withColumn(name, F.lit(None).cast("string"))
        return rows.write.format("delta").mode(mode).option("userMetadata", note.dump())

    def merge(
        self, rows: DataFrame, note: CommitMetadata, *, updates: Sequence[str] = (), inserts: bool = True
    ) -> None:
        """Insert the rows without a rowid; of the others delete those that go, set `updates` in the rest.

        Without `updates`, all columns of the rest are set. Told that there is nothing to insert, Delta sends
        the rows to where the table's are, which else have to move.
        """
        names = [name for name in rows.columns if name not in (ROWID_COLUMN, DELETE_FLAG)]
        values = ", ".join(f"s.{quote_name(name)}" for name in names)
        changes = ", ".join(f"t.{quote_name(name)} = s.{quote_name(name)}" for name in updates or names)
        goes = f" when matched and s.{DELETE_FLAG} then delete" if DELETE_FLAG in rows.columns else ""
        new = f" when not matched then insert ({', '.join(map(quote_name, names))}) values ({values})"
        rows.createOrReplaceTempView(MERGE_VIEW)
        with spark_conf(self.session, {USER_METADATA: note.dump()}):
            self.session.sql(
                f"merge into {table_by_path(self.path)} t using {MERGE_VIEW} s on t.{ROWID_COLUMN} = s.{ROWID_COLUMN}"
                f"{goes} when matched then update set {changes}{new if inserts else ''}"
            ).collect()


def open_target(
    session: SparkSession,
    path: str,
    query: Sequence[StructField],
    identity: TableSpec,
    *,
    before_change: Callable[[], object] = lambda: None,
    converts: bool = False,
) -> TargetTable:
    """The table at `path`, made or altered so that it takes the query's rows; WarehouseError if it can't.

    `before_change` is called where something would be made or altered, and may raise to prevent it. With
    `converts`, a table of another kind, another key or other types is turned into one of these.
    """
    state = read_table_state(path)
    if state is None:
        before_change()
        _create_table(session, path, query, identity)
        return _load_target(session, path, identity)
    if not converts:
        _check_spec(state, identity)
    table = TableAlterer(session, path)
    if is_retention_lowered(state):  # by a VACUUM that was cut off: who writes is the only one who has the table
        table.set_properties(RETENTION_PROPERTIES)
    if table.finish_interrupted_casts():  # what a killed run has begun
        state = _require_state(path)
    there = visible_fields(session.read.format("delta").load(path).schema)
    fields = [field for field in there if field.name not in identity.own_columns]
    change = plan_column_changes(fields, query, converts=converts)
    is_another = identity.differs_from(state)
    if not change and not is_another:
        return _load_target(session, path, identity)
    before_change()
    if is_another:
        table.prepare_conversion(identity.own_columns, identity.backfill_values)
    table.alter_columns(change)
    becomes = identity.properties if is_another else {}
    return dataclasses.replace(_load_target(session, path, identity), pending_properties=becomes)


def align_columns(frame: DataFrame, target: TargetTable) -> DataFrame:
    """The query's rows in the table's columns, order and types."""
    given = {field.name.casefold(): field for field in frame.schema.fields}
    columns = []
    for field in target.fields:
        own = given[field.name.casefold()]
        value = column_of(own.name)
        if ddl_type(own.dataType) != ddl_type(field.dataType):
            value = value.cast(field.dataType)
        columns.append(value.alias(field.name))
    return frame.select(*columns)


def table_by_path(path: str) -> str:
    return f"delta.{quote_name(path)}"


def _require_state(path: str) -> TableState:
    state = read_table_state(path)
    if state is None:
        raise WarehouseError(f"{path} is gone: something removed it while it was being written; run again")
    return state


def _load_target(session: SparkSession, path: str, identity: TableSpec) -> TargetTable:
    state = _require_state(path)
    rows = session.read.format("delta").load(path)
    spelled = {name.casefold(): name for name in rows.columns}
    return TargetTable(
        session=session,
        path=path,
        rows=rows,
        key_columns=tuple(spelled[name.casefold()] for name in identity.key_columns),
        own_columns=identity.own_columns,
        state=state,
    )


def _create_table(session: SparkSession, path: str, query: Sequence[StructField], identity: TableSpec) -> None:
    columns = [f"{quote_name(field.name)} {ddl_type(field.dataType)}" for field in query]
    columns += [f"{quote_name(name)} {of_type}" for name, of_type in identity.own_columns.items()]
    columns.append(f"{ROWID_COLUMN} bigint generated always as identity")
    layout, properties = "", {**TABLE_PROPERTIES, **identity.properties}
    if identity.partition_column:
        layout = f" partitioned by ({quote_name(identity.partition_column)})"
    elif identity.clustering_columns:
        layout = f" cluster by ({', '.join(map(quote_name, identity.clustering_columns))})"
        properties[CLUSTERING_PROPERTY] = orjson.dumps(identity.clustering_columns).decode()
    session.sql(
        f"create table {table_by_path(path)} ({', '.join(columns)}) using delta{layout}"
        f" tblproperties ({property_literals(properties)})"
    ).collect()


def _check_spec(state: TableState, identity: TableSpec) -> None:
    """Refuse another kind or key than the one that the table was made for."""
    for name, wanted in identity.properties.items():
        had = state.properties.get(name, wanted)
        if had != wanted:
            what = name.rpartition(".")[2]
            raise WarehouseError(
                f"the table was made with the {what} {had}, and the model now says {wanted}:"
                f" put the {what} back, or run with --full-refresh"
            )


@contextlib.contextmanager
def spark_conf(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set Spark's settings for what is done inside, and unset them afterwards."""
    for name, value in conf.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in conf:
            session.conf.unset(name)


def clone_table(session: SparkSession, original: str, state: TableState, path: str) -> None:
    """Make a table at `path` of what `original` has in `state`, whatever else is written to that meanwhile.

    It has a log, an id and a feed of its own, and begins with the note of the original's newest commit; its
    properties tell which version it goes on from.
    """
    note = {USER_METADATA: state.commit_metadata.dump()} if state.commit_metadata else {}
    properties = property_literals({CLONE_ORIGIN_PROPERTY: f"{state.table_id}@{state.log_version}"})
    with spark_conf(session, note):
        session.sql(
            f"create table {table_by_path(path)} shallow clone {table_by_path(original)}"
            f" version as of {state.log_version} tblproperties ({properties})"
        ).collect()
