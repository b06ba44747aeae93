"""A table brought in line with a changed definition, by ALTER: its rows, rowids and feed stay.

Which changes there are is decided in column_types, and who may ask for them in delta_tables.
"""

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from ondatra_dagster.planning.delta_log import read_table_state
from ondatra_dagster.project.sql.references import quoted
from ondatra_dagster.warehouse.column_types import Alteration, ddl

STALE_HASHES = (
    "ondatra.stale_hashes"  # a property: hashes that rows hold are of other columns than they have now
)
CAST_PREFIX = "__ondatra_cast_"  # a column in the making: the old one's values, cast


class AlteredTable:
    """The statements; each is a commit of its own, and finish() mends what a killed run leaves."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        self._path = path
        self._table = f"delta.{quoted(path)}"

    def finish(self) -> bool:
        """Bring to an end what a killed run has begun; whether there was anything."""
        names = {name.casefold(): name for name in self._names()}
        begun = [name for name in names.values() if name.startswith(CAST_PREFIX)]
        for name in begun:
            final = name.removeprefix(CAST_PREFIX)
            if final.casefold() in names:  # the old column is still there, and all of its values
                self._alter(f"drop columns ({quoted(name)})")
            else:
                self._alter(f"rename column {quoted(name)} to {quoted(final)}")
        return bool(begun)

    def prepare(self, own_columns: Mapping[str, str], first_values: Mapping[str, str]) -> None:
        """Get ready to be of another kind or key; a run that is killed here leaves it what it was.

        What its rows hold for the old kind is no use for the new one.
        """
        self._set({STALE_HASHES: "true"})
        there = {name.casefold() for name in self._names()}
        missing = {name: of for name, of in own_columns.items() if name.casefold() not in there}
        if missing:
            added = ", ".join(f"{quoted(name)} {of}" for name, of in missing.items())
            self._alter(f"add columns ({added})")
        if first_values:
            version = self._newest_version() + 1
            values = ", ".join(f"{quoted(n)} = {v.format(version=version)}" for n, v in first_values.items())
            unset = " and ".join(f"{quoted(name)} is null" for name in first_values)
            self._session.sql(f"update {self._table} set {values} where {unset}").collect()

    def become(self, properties: Mapping[str, str]) -> None:
        """Be of another kind or key, now that the rows are."""
        self._set(properties)

    def trust_hashes(self) -> None:
        """Go by the hashes that its rows hold again, now that all of them are of its columns."""
        self._alter(f"unset tblproperties if exists ({text_literal(STALE_HASHES)})")

    def keep(self, name: str, value: str) -> None:
        """Keep a note with the table."""
        self._set({name: value})

    def _newest_version(self) -> int:
        state = read_table_state(self._path)
        return state.commits_before + state.log_version if state else 0

    def alter(self, change: Alteration) -> None:
        """Bring the columns in line; rows that are there stay as they are."""
        if change.alters_rows:
            self._set({STALE_HASHES: "true", "delta.enableTypeWidening": "true"})
        if change.added:
            added = ", ".join(f"{quoted(field.name)} {ddl(field.dataType)}" for field in change.added)
            self._alter(f"add columns ({added})")
        for field in change.widened:
            self._alter(f"alter column {quoted(field.name)} type {ddl(field.dataType)}")
        if change.dropped:
            self._alter(f"drop columns ({', '.join(map(quoted, change.dropped))})")
        for field in change.retyped:
            self._cast(field)

    def _cast(self, field: StructField) -> None:
        """Give a column another type, with its values as far as they can be cast."""
        old, new, of = quoted(field.name), quoted(CAST_PREFIX + field.name), ddl(field.dataType)
        self._alter(f"add columns ({new} {of})")
        if self._is_castable(old, of):
            self._session.sql(f"update {self._table} set {new} = try_cast({old} as {of})").collect()
        self._alter(f"drop columns ({old})")
        self._alter(f"rename column {new} to {old}")

    def _is_castable(self, column: str, of: str) -> bool:
        try:
            self._session.sql(f"select try_cast({column} as {of}) from {self._table}")
        except AnalysisException:
            return False
        return True

    def _names(self) -> list[str]:
        return self._session.sql(f"select * from {self._table} limit 0").columns

    def _set(self, properties: Mapping[str, str]) -> None:
        self._alter(f"set tblproperties ({literals(properties)})")

    def _alter(self, what: str) -> None:
        self._session.sql(f"alter table {self._table} {what}").collect()


def literals(properties: Mapping[str, str]) -> str:
    """Properties as a statement names them."""
    return ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in properties.items())


def text_literal(value: str) -> str:
    """A text as a statement says it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
