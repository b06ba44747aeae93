"""The Delta table of a model: how it is created, altered and written. The kinds decide which rows are written.

Every write is one commit, and the commit carries the note of the write.
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
    # allows names with spaces, and lets columns be dropped or renamed without a rewrite
    "delta.columnMapping.mode": "name",
    **RETENTION_PROPERTIES,  # only `ondatra maintain` frees space
}
KIND_PROPERTY, KEY_PROPERTY, CLUSTERING_PROPERTY = "ondatra.kind", "ondatra.key", "ondatra.clustered_by"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
MERGE_VIEW = "__ondatra_merged"
DELETE_FLAG = "__ondatra_goes"  # True: delete the table's row


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """The kind and key, the kind's own columns and the layout with which a table is created."""

    kind: str
    key_columns: tuple[str, ...]
    # the columns that the kind adds, with their types
    own_columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # the values of own_columns in rows that another kind wrote
    backfill_values: Mapping[str, str] = dataclasses.field(default_factory=dict)
    partition_column: str | None = None  # one of own_columns, if the table is partitioned
    clustering_columns: tuple[str, ...] = ()  # used only when the table is created

    @property
    def properties(self) -> dict[str, str]:
        return {
            KIND_PROPERTY: self.kind,
            KEY_PROPERTY: orjson.dumps([name.casefold() for name in self.key_columns]).decode(),
        }

    def differs_from(self, state: TableState) -> bool:
        """Return whether the table was created with another kind or another key."""
        return any(state.properties.get(name, value) != value for name, value in self.properties.items())


class Transaction(NamedTuple):
    """The sequence and number of a commit's rows.

    Delta ignores a second commit with the same sequence and number.
    """

    sequence_id: str
    number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """A table that is ready for the rows of a query."""

    session: SparkSession
    path: str
    rows: DataFrame  # all current rows of the table, with the hidden columns
    key_columns: tuple[str, ...]  # in the spelling of the table
    own_columns: Mapping[str, str]  # the columns that the kind adds, with their types
    state: TableState
    # properties of the table that are set after the write
    pending_properties: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def fields(self) -> list[StructField]:
        """Return the columns of the query as fields of the table."""
        return [field for field in visible_fields(self.rows.schema) if field.name not in self.own_columns]

    @property
    def is_partitioned(self) -> bool:
        return PARTITION_COLUMN in self.state.partition_columns

    def select_fields(self, rows: DataFrame) -> DataFrame:
        """Return the rows with only the model's columns, in the table's order."""
        return rows.select(*(column_of(field.name) for field in self.fields))

    @property
    def is_empty(self) -> bool:
        """Return whether the table was never written. A table whose rows were all deleted counts as written."""
        is_new = self.state.version == 0 and not self.state.metrics.get("numOutputRows")
        return is_new and not (self.state.commit_metadata or int(self.state.metrics.get("sourceNumOfFiles", 0)))

    @property
    def next_version(self) -> int:
        """Return the version of the table's next commit. For a clone, return the next version of the original."""
        return self.state.version_offset + self.state.log_version + 1

    @property
    def has_valid_hashes(self) -> bool:
        """Return whether the stored hashes were computed from the table's current columns."""
        return STALE_HASHES not in self.state.properties

    def finish_conversion(self, *, is_rewritten: bool = False) -> None:
        """Set the pending properties after the write. If all rows were rewritten, mark their hashes as valid."""
        table = TableAlterer(self.session, self.path)
        if self.pending_properties:
            table.set_properties(self.pending_properties)
        if is_rewritten and not self.has_valid_hashes:  # without this, each run would compute all hashes again
            table.mark_hashes_valid()

    def append(self, rows: DataFrame, note: CommitMetadata, *, transaction: Transaction | None = None) -> None:
        write = self._frame_writer(rows, "append", note)
        if transaction:
            write = write.options(txnAppId=transaction.sequence_id, txnVersion=str(transaction.number))
        write.save(self.path)

    def overwrite(self, rows: DataFrame, note: CommitMetadata) -> None:
        # in an overwrite, Delta forgets how a table is clustered
        clustering_columns = orjson.loads(self.state.properties.get(CLUSTERING_PROPERTY, "[]"))
        rows = rows.orderBy(*map(column_of, clustering_columns)) if clustering_columns else rows
        self._frame_writer(rows, "overwrite", note).save(self.path)

    def overwrite_partitions(self, rows: DataFrame, note: CommitMetadata) -> None:
        """Replace the partitions that the rows belong to. Other partitions don't change."""
        write = self._frame_writer(rows, "overwrite", note).option("partitionOverwriteMode", "dynamic")
        write.save(self.path)

    def _frame_writer(self, rows: DataFrame, mode: str, note: CommitMetadata) -> DataFrameWriter:
        # the table is still partitioned if it was of kind partition before
        missing_columns = [name for name in self.state.partition_columns if name not in rows.columns]
        for name in missing_columns:
            rows = rows.withColumn(name, F.lit(None).cast("string"))
        return rows.write.format("delta").mode(mode).option("userMetadata", note.dump())

    def merge(
        self, rows: DataFrame, note: CommitMetadata, *, updates: Sequence[str] = (), inserts: bool = True
    ) -> None:
        """Insert the rows without a rowid, delete rows with the delete flag, and update the others.

        An update sets the columns in `updates`, or all columns if there are none. If there is nothing to insert, pass
        `inserts=False`. Delta can then send the given rows to the table's rows, and doesn't move the table's rows.
        """
        names = [name for name in rows.columns if name not in (ROWID_COLUMN, DELETE_FLAG)]
        values = ", ".join(f"s.{quote_name(name)}" for name in names)
        changes = ", ".join(f"t.{quote_name(name)} = s.{quote_name(name)}" for name in updates or names)
        delete_clause = f" when matched and s.{DELETE_FLAG} then delete" if DELETE_FLAG in rows.columns else ""
        insert_clause = f" when not matched then insert ({', '.join(map(quote_name, names))}) values ({values})"
        rows.createOrReplaceTempView(MERGE_VIEW)
        with spark_conf(self.session, {USER_METADATA: note.dump()}):
            self.session.sql(
                f"merge into {table_by_path(self.path)} t using {MERGE_VIEW} s on t.{ROWID_COLUMN} = s.{ROWID_COLUMN}"
                f"{delete_clause} when matched then update set {changes}{insert_clause if inserts else ''}"
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
    """Return the table at `path`, created or altered for the query's rows. Raises WarehouseError if that is impossible.

    `before_change` is called before the table is created or altered, and may raise an error to prevent that. With
    `converts`, a table of another kind, with another key or other types, is converted.
    """
    state = read_table_state(path)
    if state is None:
        before_change()
        _create_table(session, path, query, identity)
        return _load_target(session, path, identity)
    if not converts:
        _check_spec(state, identity)
    table = TableAlterer(session, path)
    # an interrupted VACUUM lowered it; the writer has the lock, so no VACUUM is running
    if is_retention_lowered(state):
        table.set_properties(RETENTION_PROPERTIES)
    if table.finish_interrupted_casts():  # a killed run left them unfinished
        state = _require_state(path)
    table_fields = visible_fields(session.read.format("delta").load(path).schema)
    fields = [field for field in table_fields if field.name not in identity.own_columns]
    change = plan_column_changes(fields, query, converts=converts)
    is_another = identity.differs_from(state)
    if not change and not is_another:
        return _load_target(session, path, identity)
    before_change()
    if is_another:
        table.prepare_conversion(identity.own_columns, identity.backfill_values)
    table.alter_columns(change)
    pending_properties = identity.properties if is_another else {}
    return dataclasses.replace(_load_target(session, path, identity), pending_properties=pending_properties)


def align_columns(frame: DataFrame, target: TargetTable) -> DataFrame:
    """Return the query's rows with the columns, order and types of the table."""
    query_fields = {field.name.casefold(): field for field in frame.schema.fields}
    columns = []
    for field in target.fields:
        query_field = query_fields[field.name.casefold()]
        value = column_of(query_field.name)
        if ddl_type(query_field.dataType) != ddl_type(field.dataType):
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
    names_by_casefold = {name.casefold(): name for name in rows.columns}
    return TargetTable(
        session=session,
        path=path,
        rows=rows,
        key_columns=tuple(names_by_casefold[name.casefold()] for name in identity.key_columns),
        own_columns=identity.own_columns,
        state=state,
    )


def _create_table(session: SparkSession, path: str, query: Sequence[StructField], identity: TableSpec) -> None:
    columns = [f"{quote_name(field.name)} {ddl_type(field.dataType)}" for field in query]
    columns += [f"{quote_name(name)} {type_}" for name, type_ in identity.own_columns.items()]
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
    """Raise WarehouseError if the table was created with another kind or another key."""
    for name, expected_value in identity.properties.items():
        stored_value = state.properties.get(name, expected_value)
        if stored_value != expected_value:
            setting = name.rpartition(".")[2]
            raise WarehouseError(
                f"the table was created with the {setting} {stored_value}, and the model now says {expected_value}:"
                f" restore the {setting}, or run with --full-refresh"
            )


@contextlib.contextmanager
def spark_conf(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set these settings of Spark inside the context, and unset them at its end."""
    for name, value in conf.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in conf:
            session.conf.unset(name)


def clone_table(session: SparkSession, original: str, state: TableState, path: str) -> None:
    """Create a table at `path` with the content of `original` in `state`, even if others write to `original` meanwhile.

    The clone has its own log, id and change feed. Its first commit has the note of the original's newest commit that
    changed rows. Its properties name the id and version of the original.
    """
    note = {USER_METADATA: state.commit_metadata.dump()} if state.commit_metadata else {}
    properties = property_literals({CLONE_ORIGIN_PROPERTY: f"{state.table_id}@{state.log_version}"})
    with spark_conf(session, note):
        session.sql(
            f"create table {table_by_path(path)} shallow clone {table_by_path(original)}"
            f" version as of {state.log_version} tblproperties ({properties})"
        ).collect()
