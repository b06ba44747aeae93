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

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_log import TableState, read_table_state
from ondatra_dagster.planning.delta_schema import PARTITION, ROWID
from ondatra_dagster.planning.table_past import RETENTIONS, is_lowered
from ondatra_dagster.project.sql.references import quoted
from ondatra_dagster.warehouse.altered_table import STALE_HASHES, AlteredTable, literals
from ondatra_dagster.warehouse.column_types import alteration, ddl, visible
from ondatra_dagster.warehouse.comparison import column_of

PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    "delta.columnMapping.mode": "name",  # for names with spaces, and to drop or rename without a rewrite
    **RETENTIONS,  # only `maintain` frees space
}
KIND, KEY, CLUSTERED_BY = "ondatra.kind", "ondatra.key", "ondatra.clustered_by"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
MERGED = "__ondatra_merged"
GOES = "__ondatra_goes"  # whether a row that is there is deleted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a table is, once and for all."""

    kind: str
    key_columns: tuple[str, ...]
    own_columns: Mapping[str, str] = dataclasses.field(default_factory=dict)  # the kind's, with their types
    first_values: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # theirs, in rows of another kind
    partitioned_by: str | None = None  # one of those
    clustered_by: tuple[str, ...] = ()  # how the rows are to lie, where the table is made now

    @property
    def properties(self) -> dict[str, str]:
        return {KIND: self.kind, KEY: orjson.dumps([name.casefold() for name in self.key_columns]).decode()}

    def is_another_than(self, state: TableState) -> bool:
        """Whether a table is, so far, of another kind or another key."""
        return any(state.properties.get(name, wanted) != wanted for name, wanted in self.properties.items())


class Transaction(NamedTuple):
    """What a commit says of where its rows came from; one of a number that is there already does nothing."""

    numbering: str
    number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table that is ready to take the rows of a query."""

    session: SparkSession
    path: str
    rows: DataFrame  # all that it has now, with the hidden columns
    key_columns: tuple[str, ...]  # as the table spells them
    own_columns: Mapping[str, str]  # the kind's
    state: TableState
    becomes: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # properties that it has when it is written

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
        is_new = self.state.version == 0 and not self.state.metrics.get("numOutputRows")
        return is_new and not (self.state.note or int(self.state.metrics.get("sourceNumOfFiles", 0)))

    @property
    def next_version(self) -> int:
        """That of its next commit; of a clone, as if it were its original's."""
        return self.state.commits_before + self.state.log_version + 1

    @property
    def trusts_hashes(self) -> bool:
        """Whether the hashes that were kept are of the columns as they are now."""
        return STALE_HASHES not in self.state.properties

    def end(self, *, is_rewritten: bool = False) -> None:
        """Have the table be what it was made or converted for: its rows are, and all of them if rewritten."""
        table = AlteredTable(self.session, self.path)
        if self.becomes:
            table.become(self.becomes)
        if is_rewritten and not self.trusts_hashes:  # else each run would reckon them all anew
            table.trust_hashes()

    def read_anew(self) -> DataFrame:
        """All that it has by now, with what this run has written."""
        return self.session.read.format("delta").load(self.path)

    def append(self, rows: DataFrame, note: CommitNote, *, transaction: Transaction | None = None) -> None:
        write = self._write(rows, "append", note)
        if transaction:
            write = write.options(txnAppId=transaction.numbering, txnVersion=str(transaction.number))
        write.save(self.path)

    def overwrite(self, rows: DataFrame, note: CommitNote) -> None:
        # Delta forgets in an overwrite how a table is clustered
        clustered_by = orjson.loads(self.state.properties.get(CLUSTERED_BY, "[]"))
        rows = rows.orderBy(*map(column_of, clustered_by)) if clustered_by else rows
        self._write(rows, "overwrite", note).save(self.path)

    def overwrite_partitions(self, rows: DataFrame, note: CommitNote) -> None:
        """Replace the partitions that the rows belong to, and no other."""
        write = self._write(rows, "overwrite", note).option("partitionOverwriteMode", "dynamic")
        write.save(self.path)

    def _write(self, rows: DataFrame, mode: str, note: CommitNote) -> DataFrameWriter:
        # a table that was of kind partition still lies in its folders
        missing = [name for name in self.state.partition_columns if name not in rows.columns]
        for name in missing:
            rows = rows.withColumn(name, F.lit(None).cast("string"))
        return rows.write.format("delta").mode(mode).option("userMetadata", note.dump())

    def merge(
        self, rows: DataFrame, note: CommitNote, *, updates: Sequence[str] = (), inserts: bool = True
    ) -> None:
        """Insert the rows without a rowid; of the others delete those that go, set `updates` in the rest.

        Without `updates`, all columns of the rest are set. Told that there is nothing to insert, Delta sends
        the rows to where the table's are, which else have to move.
        """
        names = [name for name in rows.columns if name not in (ROWID, GOES)]
        values = ", ".join(f"s.{quoted(name)}" for name in names)
        changes = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in updates or names)
        goes = f" when matched and s.{GOES} then delete" if GOES in rows.columns else ""
        new = f" when not matched then insert ({', '.join(map(quoted, names))}) values ({values})"
        rows.createOrReplaceTempView(MERGED)
        with commit_metadata(self.session, note):
            self.session.sql(
                f"merge into {path_table(self.path)} t using {MERGED} s on t.{ROWID} = s.{ROWID}"
                f"{goes} when matched then update set {changes}{new if inserts else ''}"
            ).collect()


def open_target(
    session: SparkSession,
    path: str,
    query: Sequence[StructField],
    identity: Identity,
    *,
    before_change: Callable[[], object] = lambda: None,
    converts: bool = False,
) -> Target:
    """The table at `path`, made or altered so that it takes the query's rows; WarehouseError if it can't.

    `before_change` is called where something would be made or altered, and may raise to prevent it. With
    `converts`, a table of another kind, another key or other types is turned into one of these.
    """
    state = read_table_state(path)
    if state is None:
        before_change()
        _create(session, path, query, identity)
        return _target(session, path, identity)
    if not converts:
        _check(state, identity)
    table = AlteredTable(session, path)
    if is_lowered(state):  # by a VACUUM that was cut off: who writes is the only one who has the table
        table.become(RETENTIONS)
    if table.finish():  # what a killed run has begun
        state = _state(path)
    there = visible(session.read.format("delta").load(path).schema)
    fields = [field for field in there if field.name not in identity.own_columns]
    change = alteration(fields, query, converts=converts)
    is_another = identity.is_another_than(state)
    if not change and not is_another:
        return _target(session, path, identity)
    before_change()
    if is_another:
        table.prepare(identity.own_columns, identity.first_values)
    table.alter(change)
    becomes = identity.properties if is_another else {}
    return dataclasses.replace(_target(session, path, identity), becomes=becomes)


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


def _state(path: str) -> TableState:
    state = read_table_state(path)
    if state is None:
        raise WarehouseError(f"{path} is gone: something removed it while it was being written; run again")
    return state


def _target(session: SparkSession, path: str, identity: Identity) -> Target:
    state = _state(path)
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
    layout, properties = "", {**PROPERTIES, **identity.properties}
    if identity.partitioned_by:
        layout = f" partitioned by ({quoted(identity.partitioned_by)})"
    elif identity.clustered_by:
        layout = f" cluster by ({', '.join(map(quoted, identity.clustered_by))})"
        properties[CLUSTERED_BY] = orjson.dumps(identity.clustered_by).decode()
    session.sql(
        f"create table {path_table(path)} ({', '.join(columns)}) using delta{layout}"
        f" tblproperties ({literals(properties)})"
    ).collect()


def _check(state: TableState, identity: Identity) -> None:
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
def commit_metadata(session: SparkSession, note: CommitNote) -> Iterator[None]:
    """The note for the commits made inside; it would stick to every later one, so it is taken back."""
    session.conf.set(USER_METADATA, note.dump())
    try:
        yield
    finally:
        session.conf.unset(USER_METADATA)
