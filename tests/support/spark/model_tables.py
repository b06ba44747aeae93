"""Models that a test defines and writes with the warehouse alone, without a project or Dagster."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import DataFrame

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import TableState, read_table_state
from ondatra_dagster.planning.find_table_and_columns import invalid_table_path
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.row_changes import InvalidRow, RowChange
from ondatra_dagster.warehouse.change_feed import ChangeFeed
from ondatra_dagster.warehouse.model_run import evaluate_query, write_model
from ondatra_dagster.warehouse.model_write_request import ModelWrite
from ondatra_dagster.warehouse.result_of_write_and_checks import ModelWriteResult
from ondatra_dagster.warehouse.spark.session import Warehouse

QUERY_KINDS = [kind.name for kind in KINDS.values() if kind.has_query]


def build_model(
    kind: str, sql: str, *, key: Sequence[str] = ("id",), name: str = "mart.things", **fields: Any
) -> Model:
    file = f"models/{name.replace('.', '/')}.sql"
    return Model(
        name=name,
        path=Path(file),
        file=file,
        kind=KINDS[kind],
        sql=sql,
        sql_line=3,
        definition=sql,
        key_columns=tuple(key) if KINDS[kind].needs_key else (),
        **fields,
    )


def values_query(*rows: str, columns: str = "id, name") -> str:
    """Return a query that gives these rows."""
    return f"select * from values {', '.join(f'({row})' for row in rows)} as t({columns})"


@dataclasses.dataclass(frozen=True)
class ModelTables:
    """A writer of models, and a reader of their tables and feeds."""

    warehouse: Warehouse

    def write(self, model: Model, *, is_full: bool = False, **inputs: str) -> ModelWriteResult:
        return self.write_frame(
            model, evaluate_query(self.warehouse, model, inputs, is_full=is_full), is_full=is_full, **inputs
        )

    def write_frame(
        self,
        model: Model,
        frame: DataFrame,
        *,
        is_full: bool = False,
        planned_version: str | None = None,
        **inputs: str,
    ) -> ModelWriteResult:
        """Write a frame that was evaluated before."""
        note = CommitMetadata(definition=model.definition, inputs=inputs, run_id="20261118T120102Z-kqzwtm")
        write = ModelWrite(model=model, frame=frame, note=note, is_full=is_full, planned_version=planned_version)
        return write_model(self.warehouse, write)

    def write_query(self, kind: str, sql: str, *, is_full: bool = False, **fields: Any) -> ModelWriteResult:
        return self.write(build_model(kind, sql, **fields), is_full=is_full)

    def path(self, model: Model) -> str:
        return self.warehouse.table_path(model.id)

    def state(self, model: Model) -> TableState:
        state = read_table_state(self.path(model))
        assert state is not None
        return state

    def rows(self, model: Model) -> DataFrame:
        return self.warehouse.session.read.format("delta").load(self.path(model))

    def feed(self, model: Model, **options: Any) -> ChangeFeed:
        return ChangeFeed(
            warehouse=self.warehouse,
            table=self.path(model),
            key_columns=model.key_columns,
            groups_by_key=model.kind.delivers_by_key,
            **options,
        )

    def changes(self, model: Model, after: int | None, upto: int | None = None, **options: Any) -> list[RowChange]:
        upto = self.state(model).version if upto is None else upto
        return [
            change
            for segment in self.feed(model, **options).segments(after, upto)
            for page in segment.pages
            for change in page.changes
        ]

    def feed_values(self, model: Model, after: int | None, upto: int | None = None) -> list[tuple[Any, ...]]:
        """Return the feed's changes without rowids and versions: (change type, *values)."""
        return [(str(change.change_type), *orjson.loads(change.payload)) for change in self.changes(model, after, upto)]

    def invalid(self, model: Model, after: int) -> list[InvalidRow]:
        state = read_table_state(invalid_table_path(self.path(model)))
        return list(self.feed(model).invalid_rows(after, state.version)) if state else []
