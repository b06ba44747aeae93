"""A table brought in line with a changed definition, by ALTER: its rows, rowids and feed stay.

schema_evolution decides which changes are needed; target_table calls this module.
"""

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.project.sql.input_references import quote_name
from ondatra_dagster.warehouse.schema_evolution import ColumnChanges, ddl_type

STALE_HASHES = "ondatra.stale_hashes"  # a property: hashes that rows hold are of other columns than they have now
CAST_PREFIX = "__ondatra_cast_"  # a column in the making: the old one's values, cast


class TableAlterer:
    """The statements; each is a commit of its own, and finish() mends what a killed run leaves."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        self._path = path
        self._table = f"delta.{quote_name(path)}"

    def finish_interrupted_casts(self) -> bool:
        """Bring to an end what a killed run has begun; whether there was anything."""
        names = {name.casefold(): name for name in self._column_names()}
        begun = [name for name in names.values() if name.startswith(CAST_PREFIX)]
        for name in begun:
            final = name.removeprefix(CAST_PREFIX)
            if final.casefold() in names:  # the old column is still there, and all of its values
                self._run_alter(f"drop columns ({quote_name(name)})")
            else:
                self._run_alter(f"rename column {quote_name(name)} to {quote_name(final)}")
        return bool(begun)

    def prepare_conversion(self, own_columns: Mapping[str, str], first_values: Mapping[str, str]) -> None:
        """Get ready to be of another kind or key; a run that is killed here leaves it what it was.

        What its rows hold for the old kind is no use for the new one.
        """
        self.set_properties({STALE_HASHES: "true"})
        there = {name.casefold() for name in self._column_names()}
        missing = {name: of for name, of in own_columns.items() if name.casefold() not in there}
        if missing:
            added = ", ".join(f"{quote_name(name)} {of}" for name, of in missing.items())
            self._run_alter(f"add columns ({added})")
        if first_values:
            version = self._newest_version() + 1
            values = ", ".join(f"{quote_name(n)} = {v.format(version=version)}" for n, v in first_values.items())
            unset = " and ".join(f"{quote_name(name)} is null" for name in first_values)
            self._session.sql(f"update {self._table} set {values} where {unset}").collect()

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set the table's properties; its other properties stay."""
        self._run_alter(f"set tblproperties ({property_literals(properties)})")

    def mark_hashes_valid(self) -> None:
        """Go by the hashes that its rows hold again, now that all of them are of its columns."""
        self._run_alter(f"unset tblproperties if exists ({text_literal(STALE_HASHES)})")

    def _newest_version(self) -> int:
        state = read_table_state(self._path)
        return state.version_offset + state.log_version if state else 0

    def alter_columns(self, change: ColumnChanges) -> None:
        """Bring the columns in line; rows that are there stay as they are."""
        if change.changes_hashes:
            self.set_properties({STALE_HASHES: "true", "delta.enableTypeWidening": "true"})
        if change.added_columns:
            added = ", ".join(f"{quote_name(field.name)} {ddl_type(field.dataType)}" for field in change.added_columns)
            self._run_alter(f"add columns ({added})")
        for field in change.widened_columns:
            self._run_alter(f"alter column {quote_name(field.name)} type {ddl_type(field.dataType)}")
        if change.dropped_columns:
            self._run_alter(f"drop columns ({', '.join(map(quote_name, change.dropped_columns))})")
        for field in change.retyped_columns:
            self._cast_column(field)

    def _cast_column(self, field: StructField) -> None:
        """Give a column another type, with its values as far as they can be cast."""
        old, new, of = quote_name(field.name), quote_name(CAST_PREFIX + field.name), ddl_type(field.dataType)
        self._run_alter(f"add columns ({new} {of})")
        if self._is_castable(old, of):
            self._session.sql(f"update {self._table} set {new} = try_cast({old} as {of})").collect()
        self._run_alter(f"drop columns ({old})")
        self._run_alter(f"rename column {new} to {old}")

    def _is_castable(self, column: str, of: str) -> bool:
        try:
            self._session.sql(f"select try_cast({column} as {of}) from {self._table}")
        except AnalysisException:
            return False
        return True

    def _column_names(self) -> list[str]:
        return self._session.sql(f"select * from {self._table} limit 0").columns

    def _run_alter(self, what: str) -> None:
        self._session.sql(f"alter table {self._table} {what}").collect()


def property_literals(properties: Mapping[str, str]) -> str:
    """Properties as a statement names them."""
    return ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in properties.items())


def text_literal(value: str) -> str:
    """A text as a statement says it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
