"""A model's Delta table: how it is made, altered, read and written to. What is written is up to the kinds.

Every write is one commit, which carries its note.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_log import TableState, read_table_state
from ondatra_dagster.planning.delta_schema import PARTITION, ROWID
from ondatra_dagster.project.references import quoted
from ondatra_dagster.warehouse.column_types import Alteration, alteration, ddl, visible
from ondatra_dagster.warehouse.comparison import column_of

PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    "delta.columnMapping.mode": "name",  # for names with spaces, and to drop or rename without a rewrite
    "delta.deletedFileRetentionDuration": "interval 3650 days",  # only `maintain` frees space
    "delta.logRetentionDuration": "interval 3650 days",
}
KIND, KEY, STALE_HASHES = "ondatra.kind", "ondatra.key", "ondatra.stale_hashes"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
MERGED = "__ondatra_merged"
GOES = "__ondatra_goes"  # whether a row that is there is deleted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a table is, once and for all."""

    kind: str
    key_columns: tuple[str, ...]
    own_columns: Mapping[str, str] = dataclasses.field(default_factory=dict)  # the kind's, with their types
    partitioned_by: str | None = None  # one of those
    clustered_by: tuple[str, ...] = ()  # how the rows are to lie, where the table is made now

    @property
    def properties(self) -> dict[str, str]:
        return {KIND: self.kind, KEY: orjson.dumps([name.casefold() for name in self.key_columns]).decode()}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table that is ready to take the rows of a query."""

    session: SparkSession
    path: str
    rows: DataFrame  # all that it has now, with the hidden columns
    key_columns: tuple[str, ...]  # as the table spells them
    own_columns: Mapping[str, str]  # the kind's
    state: TableState

    @property
    def fields(self) -> list[StructField]:
        """The query's columns."""
        return [field for field in visible(self.rows.schema) if field.name not in self.own_columns]

    @property
    def is_partitioned(self) -> bool:
        return PARTITION in self.state.partition_columns

    def only_fields(self, rows: DataFrame) -> DataFrame:
        """Rows with just the model's columns, in the table's order."""
        return rows.select(*(column_of(field.name) for field in self.fields))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written; one that was emptied since counts as written."""
        return self.state.version == 0 and not self.state.metrics.get("numOutputRows")

    @property
    def trusts_hashes(self) -> bool:
        """Whether the hashes that were kept are of the columns as they are now."""
        return STALE_HASHES not in self.state.properties

    def append(self, rows: DataFrame, note: CommitNote) -> None:
        rows.write.format("delta").mode("append").option("userMetadata", note.dump()).save(self.path)

    def overwrite(self, rows: DataFrame, note: CommitNote) -> None:
        rows.write.format("delta").mode("overwrite").option("userMetadata", note.dump()).save(self.path)

    def overwrite_partitions(self, rows: DataFrame, note: CommitNote) -> None:
        """Replace the partitions that the rows belong to, and no other."""
        write = rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic")
        write.option("userMetadata", note.dump()).save(self.path)

    def merge(self, rows: DataFrame, note: CommitNote, *, updates: Sequence[str] = ()) -> None:
        """Insert the rows without a rowid; of the others delete those that go, set `updates` in the rest.

        Without `updates`, all columns of the rest are set.
        """
        names = [name for name in rows.columns if name not in (ROWID, GOES)]
        values = ", ".join(f"s.{quoted(name)}" for name in names)
        changes = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in updates or names)
        goes = f" when matched and s.{GOES} then delete" if GOES in rows.columns else ""
        rows.createOrReplaceTempView(MERGED)
        with _commit_metadata(self.session, note):
            self.session.sql(
                f"merge into {path_table(self.path)} t using {MERGED} s on t.{ROWID} = s.{ROWID}"
                f"{goes} when matched then update set {changes}"
                f" when not matched then insert ({', '.join(map(quoted, names))}) values ({values})"
            ).collect()


def open_target(
    session: SparkSession,
    path: str,
    query: Sequence[StructField],
    identity: Identity,
    *,
    before_change: Callable[[], object] = lambda: None,
) -> Target:
    """The table at `path`, made or altered so that it takes the query's rows; WarehouseError if it can't.

    `before_change` is called where something would be made or altered, and may raise to prevent it.
    """
    state = read_table_state(path)
    if state is None:
        before_change()
        _create(session, path, query, identity)
        return _target(session, path, identity)
    _check(state, identity)
    target = _target(session, path, identity)
    change = alteration(target.fields, query)
    if not change:
        return target
    before_change()
    _alter(session, path, change)
    return _target(session, path, identity)


def aligned(frame: DataFrame, target: Target) -> DataFrame:
    """The query's rows in the table's columns, order and types."""
    given = {field.name.casefold(): field for field in frame.schema.fields}
    columns = []
    for field in target.fields:
        own = given[field.name.casefold()]
        value = column_of(own.name)
        if ddl(own.dataType) != ddl(field.dataType):
            value = value.cast(field.dataType)
        columns.append(value.alias(field.name))
    return frame.select(*columns)


def path_table(path: str) -> str:
    return f"delta.{quoted(path)}"


def _target(session: SparkSession, path: str, identity: Identity) -> Target:
    state = read_table_state(path)
    if state is None:
        raise WarehouseError(f"{path} is gone: something removed it while it was being written; run again")
    rows = session.read.format("delta").load(path)
    spelled = {name.casefold(): name for name in rows.columns}
    return Target(
        session=session,
        path=path,
        rows=rows,
        key_columns=tuple(spelled[name.casefold()] for name in identity.key_columns),
        own_columns=identity.own_columns,
        state=state,
    )


def _create(session: SparkSession, path: str, query: Sequence[StructField], identity: Identity) -> None:
    columns = [f"{quoted(field.name)} {ddl(field.dataType)}" for field in query]
    columns += [f"{quoted(name)} {of_type}" for name, of_type in identity.own_columns.items()]
    columns.append(f"{ROWID} bigint generated always as identity")
    layout = ""
    if identity.partitioned_by:
        layout = f" partitioned by ({quoted(identity.partitioned_by)})"
    elif identity.clustered_by:
        layout = f" cluster by ({', '.join(map(quoted, identity.clustered_by))})"
    session.sql(
        f"create table {path_table(path)} ({', '.join(columns)}) using delta{layout}"
        f" tblproperties ({_literals({**PROPERTIES, **identity.properties})})"
    ).collect()


def _check(state: TableState, identity: Identity) -> None:
    """Refuse another kind or key than the one that the table was made for."""
    for name, wanted in identity.properties.items():
        had = state.properties.get(name, wanted)
        if had != wanted:
            what = name.rpartition(".")[2]
            raise WarehouseError(
                f"the table was made with the {what} {had}, and the model now says {wanted}:"
                f" put the {what} back, or give the model another name"
            )


def _alter(session: SparkSession, path: str, change: Alteration) -> None:
    """Bring the table's columns in line; rows that are there stay as they are."""
    table = f"alter table {path_table(path)}"
    if change.dropped or change.widened:
        properties = {STALE_HASHES: "true", "delta.enableTypeWidening": "true"}
        session.sql(f"{table} set tblproperties ({_literals(properties)})").collect()
    if change.added:
        added = ", ".join(f"{quoted(field.name)} {ddl(field.dataType)}" for field in change.added)
        session.sql(f"{table} add columns ({added})").collect()
    for field in change.widened:
        session.sql(f"{table} alter column {quoted(field.name)} type {ddl(field.dataType)}").collect()
    if change.dropped:
        dropped = ", ".join(quoted(name) for name in change.dropped)
        session.sql(f"{table} drop columns ({dropped})").collect()


def _literals(properties: dict[str, str]) -> str:
    def text(value: str) -> str:
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    return ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())


@contextlib.contextmanager
def _commit_metadata(session: SparkSession, note: CommitNote) -> Iterator[None]:
    """The note for the commits made inside; it would stick to every later one, so it is taken back."""
    session.conf.set(USER_METADATA, note.dump())
    try:
        yield
    finally:
        session.conf.unset(USER_METADATA)
