"""The result of a model's current query on the input versions of the table's newest commit.

If the old version of one input can't be read (a changed file, or a replaced table), the result is unknown.
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
    """The previous results of a query, from the old versions of its inputs.

    Each result is a query that isn't computed yet.
    """

    warehouse: Warehouse
    model: Model
    current_versions: Mapping[str, str]
    previous_versions: Mapping[str, str]  # empty if the versions weren't stored
    align_rows: Callable[[DataFrame], DataFrame]  # gives rows the columns of the table

    def changes(self) -> ResultChanges | None:
        """Return the query's rows for the rows that its only input has gained, and for those that it has lost.

        Return None if the query doesn't handle each row independently, or if the input's changes can't be read.
        """
        if not self.model.is_row_by_row or not self._is_readable():
            return None
        (source,) = self.model.inputs
        if not isinstance(source, ModelInput):
            return None
        table = self.warehouse.table_path(source.model)
        previous, current = self.previous_versions[source.name], self.current_versions[source.name]
        (table_id, after_version), (new_id, last_version) = parse_table_version(previous), parse_table_version(current)
        if table_id != new_id:
            return None  # the input is a dry run's clone, and the clone's feed doesn't have the earlier changes
        if len(split_feed_range(table, after=after_version, upto=last_version)) != 1:
            return None
        added_rows = self._query_changes(source, previous, current, is_gain=True)
        only_adds = only_adds_rows(table, after=after_version, upto=last_version)
        return ResultChanges(
            added_rows, None if only_adds else self._query_changes(source, previous, current, is_gain=False)
        )

    def rows(self) -> DataFrame | None:
        """Return the query's whole result on the old versions of its inputs.

        Return None if a version can't be read, or if the query isn't deterministic.
        """
        if not self.model.is_deterministic or not self._is_readable():
            return None
        try:
            views = pin_previous_inputs(self.warehouse, self.model, self.previous_versions, self.current_versions)
        except PySparkException:
            return None  # for example, the source keeps old versions for a week only
        return self._query(views)

    def _is_readable(self) -> bool:
        # a query without inputs only changes by its definition: its previous result exists only in the table
        return bool(self.model.inputs) and all(
            self._is_available(source, self.previous_versions.get(source.name), self.current_versions.get(source.name))
            for source in self.model.inputs
        )

    def _is_available(self, source: Input, old_version: str | None, new_version: str | None) -> bool:
        """Return whether the old version of an input can still be read."""
        if old_version is None or old_version in (UNVERSIONED, MODEL_NOT_BUILT) or new_version is None:
            return False
        if isinstance(source, FileInput):
            return old_version == new_version
        return _table_id(old_version) == _table_id(new_version) != "" or self._is_version_of_original(
            source, old_version
        )

    def _is_version_of_original(self, source: Input, old_version: str) -> bool:
        """Return whether `old_version` is a version of the table whose clone a dry run reads now."""
        if not isinstance(source, ModelInput):
            return False
        state = read_table_state(self.warehouse.table_path(source.model))
        return bool(state and state.clone_origin and state.clone_origin.table_id == _table_id(old_version))

    def _query_changes(self, source: ModelInput, old_version: str, new_version: str, *, is_gain: bool) -> DataFrame:
        return self._query(
            {
                source.name: pin_input_changes(
                    self.warehouse, self.model, source, old_version, new_version, is_gain=is_gain
                )
            }
        )

    def _query(self, views: Mapping[str, str]) -> DataFrame:
        last_value = last_value_literal(self.warehouse, self.model, views, from_start=False)
        return self.align_rows(build_query(self.warehouse.session, self.model, views, last_value=last_value))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PreviousResultsFromTable:
    """The previous results of an incremental query, from the table.

    They are the table's rows from the lowest value that the query returns now.
    """

    target: TargetTable
    current_rows: DataFrame
    incremental_column: str
    # used first, because after a change of the definition the table's rows can't be compared with the current ones
    results_from_inputs: PreviousResultsFromInputs | None = None

    def changes(self) -> ResultChanges | None:
        return None

    def rows(self) -> DataFrame | None:
        result = self.results_from_inputs.rows() if self.results_from_inputs else None
        if result is not None:
            return result
        value = column_of(self.incremental_column)
        lowest_text = self.current_rows.agg(F.min(value).cast("string")).collect()[0][0]
        if lowest_text is None:
            return self.target.rows.where(value.isNull())
        # the value is converted as text, because Python's dates and times have other zones and calendars
        type_ = self.current_rows.select(value).schema[0].dataType
        lowest_value = F.lit(lowest_text).cast(type_)
        return self.target.rows.where((value >= lowest_value) | value.isNull())


def previous_input_versions(model: Model, target: TargetTable, new_versions: Mapping[str, str]) -> Mapping[str, str]:
    """Return the inputs' versions at the table's newest commit; an empty mapping if the commit has no note.

    If a changed definition has added an input, its current version is used, and is stored with the table. Without this,
    a run that finds nothing new would make no commit, and the next run would start from a later version.
    """
    note = target.state.commit_metadata
    if note is None:
        return {}
    versions = dict(note.inputs)
    new_inputs = [source.name for source in model.inputs if source.name not in versions]
    if new_inputs and model.kind.uses_input_baseline:
        baseline = orjson.loads(target.state.properties.get(INPUT_BASELINE_PROPERTY, "{}"))
        baseline_versions = baseline["inputs"] if baseline.get("definition") == model.definition else {}
        versions |= {name: baseline_versions.get(name, new_versions[name]) for name in new_inputs}
        if not baseline_versions:
            new_baseline = {"definition": model.definition, "inputs": {name: versions[name] for name in new_inputs}}
            table = TableAlterer(target.session, target.path)
            table.set_properties({INPUT_BASELINE_PROPERTY: orjson.dumps(new_baseline).decode()})
    return versions


def _table_id(version: str) -> str:
    """Return the id of the table that a version belongs to."""
    return version.rpartition("@")[0]
