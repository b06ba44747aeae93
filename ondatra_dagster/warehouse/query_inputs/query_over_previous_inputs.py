"""The result of a model's current query on its inputs as they were at the table's newest commit.

An input that can't be read as it was (a file, another table in its place) makes the whole unknown.
"""

import dataclasses
from collections.abc import Callable, Mapping

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.deltalog.log_reader import (
    INPUT_BASELINE_PROPERTY,
    only_adds_rows,
    read_table_state,
    split_feed_range,
)
from ondatra_dagster.planning.input_versions import MODEL_NOT_BUILT, UNVERSIONED, parse_table_version
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput
from ondatra_dagster.warehouse.create_and_write_target_table import TargetTable
from ondatra_dagster.warehouse.kinds.write_interface import ResultChanges
from ondatra_dagster.warehouse.query_inputs.last_value import last_value_literal
from ondatra_dagster.warehouse.query_inputs.pinned_views import build_query, pin_input_changes, pin_previous_inputs
from ondatra_dagster.warehouse.row_equality_and_hashes import column_of
from ondatra_dagster.warehouse.schema_evolution import TableAlterer
from ondatra_dagster.warehouse.spark.session import Warehouse


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PreviousResultsFromInputs:
    """The inputs then and now; each answer is a query that isn't computed yet."""

    warehouse: Warehouse
    model: Model
    current_versions: Mapping[str, str]
    previous_versions: Mapping[str, str]  # none where nobody noted them
    align_rows: Callable[[DataFrame], DataFrame]  # into the table's columns

    def changes(self) -> ResultChanges | None:
        """What the query gives of its one input's changes, where it looks at one row at a time."""
        if not self.model.is_row_by_row or not self._is_readable():
            return None
        (source,) = self.model.inputs
        if not isinstance(source, ModelInput):
            return None
        table = self.warehouse.table_path(source.model)
        then, now = self.previous_versions[source.name], self.current_versions[source.name]
        (table_id, after), (new_id, upto) = parse_table_version(then), parse_table_version(now)
        if table_id != new_id:
            return None  # a dry run's clone, which has no feed of what was before it
        if len(split_feed_range(table, after=after, upto=upto)) != 1:
            return None
        came = self._query_changes(source, then, now, came=True)
        only_adds = only_adds_rows(table, after=after, upto=upto)
        return ResultChanges(came, None if only_adds else self._query_changes(source, then, now, came=False))

    def rows(self) -> DataFrame | None:
        """All that the query gives of its inputs as they were."""
        if not self.model.is_deterministic or not self._is_readable():
            return None
        try:
            views = pin_previous_inputs(self.warehouse, self.model, self.previous_versions, self.current_versions)
        except PySparkException:
            return None  # a source keeps its past for a week, say
        return self._query(views)

    def _is_readable(self) -> bool:
        # a query that reads nothing changes by its definition alone: only its table tells what it gave
        return bool(self.model.inputs) and all(
            self._is_available(source, self.previous_versions.get(source.name), self.current_versions.get(source.name))
            for source in self.model.inputs
        )

    def _is_available(self, source: Input, then: str | None, now: str | None) -> bool:
        """Whether an input can still be read as it was."""
        if then is None or then in (UNVERSIONED, MODEL_NOT_BUILT) or now is None:
            return False
        if isinstance(source, FileInput):
            return then == now
        return _table_id(then) == _table_id(now) != "" or self._is_version_of_original(source, then)

    def _is_version_of_original(self, source: Input, then: str) -> bool:
        """Whether that is a version of the table whose clone a dry run reads now."""
        if not isinstance(source, ModelInput):
            return False
        state = read_table_state(self.warehouse.table_path(source.model))
        return bool(state and state.clone_origin and state.clone_origin.table_id == _table_id(then))

    def _query_changes(self, source: ModelInput, then: str, now: str, *, came: bool) -> DataFrame:
        return self._query({source.name: pin_input_changes(self.warehouse, self.model, source, then, now, came=came)})

    def _query(self, views: Mapping[str, str]) -> DataFrame:
        last = last_value_literal(self.warehouse, self.model, views, from_start=False)
        return self.align_rows(build_query(self.warehouse.session, self.model, views, last_value=last))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PreviousResultsFromTable:
    """The table's own rows, from the lowest value on that an incremental query gives now."""

    target: TargetTable
    current_rows: DataFrame
    incremental_column: str
    # asked first: what another definition gave can't be compared with now
    results_from_inputs: PreviousResultsFromInputs | None = None

    def changes(self) -> ResultChanges | None:
        return None

    def rows(self) -> DataFrame | None:
        redefined = self.results_from_inputs.rows() if self.results_from_inputs else None
        if redefined is not None:
            return redefined
        value = column_of(self.incremental_column)
        lowest = self.current_rows.agg(F.min(value).cast("string")).collect()[0][0]
        if lowest is None:
            return self.target.rows.where(value.isNull())
        # by way of text: Python's own dates and times know other zones and calendars
        of = self.current_rows.select(value).schema[0].dataType
        bound = F.lit(lowest).cast(of)
        return self.target.rows.where((value >= bound) | value.isNull())


def previous_input_versions(model: Model, target: TargetTable, now: Mapping[str, str]) -> Mapping[str, str]:
    """The inputs' versions at the table's newest commit; none when nobody noted them.

    An input that a changed definition has brought counts from now. That is kept with the table: a run that
    finds nothing new makes no commit, and the next one would count from its own now.
    """
    note = target.state.commit_metadata
    if note is None:
        return {}
    then = dict(note.inputs)
    brought = [source.name for source in model.inputs if source.name not in then]
    if brought and model.kind.uses_input_baseline:
        kept = orjson.loads(target.state.properties.get(INPUT_BASELINE_PROPERTY, "{}"))
        since = kept["inputs"] if kept.get("definition") == model.definition else {}
        then |= {name: since.get(name, now[name]) for name in brought}
        if not since:
            told = {"definition": model.definition, "inputs": {name: then[name] for name in brought}}
            table = TableAlterer(target.session, target.path)
            table.set_properties({INPUT_BASELINE_PROPERTY: orjson.dumps(told).decode()})
    return then


def _table_id(version: str) -> str:
    """The id of the table that a version is of."""
    return version.rpartition("@")[0]
