"""The rows of any table that a user can name: from its files where that is safe, by Spark where it isn't."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from ondatra_dagster.changes import Json
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.live_files import BeyondUsError, live_table
from ondatra_dagster.planning.named_tables import NamedTable
from ondatra_dagster.project.settings.addresses import local_path
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.warehouse.payloads import json_columns, object_texts
from ondatra_dagster.warehouse.table_rows import rows_of


class StoredRows(NamedTuple):
    columns: list[str]
    pages: Iterator[pa.Table]
    total: int | None  # how many rows the table has; None: nobody has counted

    def values(self) -> Iterator[tuple[Json, ...]]:
        """Each row as values that JSON has."""
        for page in self.pages:
            yield from zip(*json_columns(page), strict=True)

    def objects(self) -> Iterator[str]:
        """Each row as the text of a JSON object."""
        for page in self.pages:
            yield from object_texts(self.columns, json_columns(page))


def stored_rows(settings: Settings, table: NamedTable, *, limit: int | None = None) -> StoredRows:
    """The table's rows without the hidden columns, `limit` at most; raises WarehouseError."""
    try:
        return _from_files(table, limit)
    except BeyondUsError:
        rows = _from_spark(settings, table, limit)
        return StoredRows(rows.column_names, iter([rows]), None)


def _from_files(table: NamedTable, limit: int | None) -> StoredRows:
    if table.address is None:
        raise BeyondUsError("a catalog's table")
    live = live_table(table.address)
    if live is None:
        path = local_path(table.address)
        if table.source and (path is None or path.is_dir()):
            raise BeyondUsError("no Delta table")
        raise WarehouseError(f"{table.name}: {table.remedy}")
    pages = rows_of(live, table.address, limit=limit)
    try:
        first = next(pages)  # what a reader doesn't know mostly shows here, and Spark can still be asked
    except FileNotFoundError as error:
        raise _gone(table, error) from error
    return StoredRows(first.column_names, _chained(first, pages, table), live.rows)


def _chained(first: pa.Table, more: Iterator[pa.Table], table: NamedTable) -> Iterator[pa.Table]:
    yield first
    try:
        yield from more
    except BeyondUsError as error:
        raise WarehouseError(f"{table.name} can't be read to its end: {error}") from error
    except FileNotFoundError as error:
        raise _gone(table, error) from error


def _gone(table: NamedTable, error: FileNotFoundError) -> WarehouseError:
    return WarehouseError(f"{table.name} changed while it was read ({error}); try again")


def _from_spark(settings: Settings, table: NamedTable, limit: int | None) -> pa.Table:
    from ondatra_dagster.warehouse.spark_rows import spark_rows  # here: pyspark takes a second to load

    return spark_rows(settings, table, limit=limit)
