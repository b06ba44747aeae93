"""What a model's query, as it is now, gives of its inputs as they were at its table's newest commit.

An input that can't be read as it was (a file, another table in its place) makes the whole unknown.
"""

import dataclasses
from collections.abc import Callable, Mapping

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.planning.delta_log import (
    COUNTS_FROM,
    feed_segments,
    only_adds_rows,
    read_table_state,
)
from ondatra_dagster.planning.versions import MISSING, UNVERSIONED
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput
from ondatra_dagster.warehouse.altered_table import AlteredTable
from ondatra_dagster.warehouse.comparison import column_of
from ondatra_dagster.warehouse.delta_tables import Target
from ondatra_dagster.warehouse.inputs import pin_changes, pin_past, query_over
from ondatra_dagster.warehouse.kinds.effect import Changes
from ondatra_dagster.warehouse.last_value import last_value
from ondatra_dagster.warehouse.spark_session import Warehouse


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EarlierInputs:
    """The inputs then and now; each answer is a query that isn't computed yet."""

    warehouse: Warehouse
    model: Model
    now: Mapping[str, str]
    then: Mapping[str, str] | None  # None: nobody noted them
    align: Callable[[DataFrame], DataFrame]  # into the table's columns

    def changes(self) -> Changes | None:
        """What the query gives of its one input's changes, where it looks at one row at a time."""
        if not self.model.is_row_by_row or not self._is_readable() or self.then is None:
            return None
        (source,) = self.model.inputs
        if not isinstance(source, ModelInput):
            return None
        table = self.warehouse.table_path(source.model)
        if _table_of(self.then[source.name]) != _table_of(self.now[source.name]):
            return None  # a dry run's clone, which has no feed of what was before it
        after, upto = (int(versions[source.name].rpartition("@")[2]) for versions in (self.then, self.now))
        if len(feed_segments(table, after=after, upto=upto)) != 1:
            return None
        came = self._of_changes(source, came=True)
        if only_adds_rows(table, after=after, upto=upto):
            return Changes(came, None)
        return Changes(came, self._of_changes(source, came=False))

    def rows(self) -> DataFrame | None:
        """All that the query gives of its inputs as they were."""
        if not self.model.is_deterministic or not self._is_readable() or self.then is None:
            return None
        try:
            views = pin_past(self.warehouse.session, self.warehouse.settings, self.model, self.then, self.now)
        except PySparkException:
            return None  # a source keeps its past for a week, say
        return self._query(views)

    def _is_readable(self) -> bool:
        # a query that reads nothing changes by its definition alone: only its table tells what it gave
        return (
            bool(self.model.inputs)
            and self.then is not None
            and all(
                self._was_kept(source, self.then.get(source.name), self.now.get(source.name))
                for source in self.model.inputs
            )
        )

    def _was_kept(self, source: Input, then: str | None, now: str | None) -> bool:
        """Whether an input can still be read as it was."""
        if then is None or then in (UNVERSIONED, MISSING) or now is None:
            return False
        if isinstance(source, FileInput):
            return then == now
        return _table_of(then) == _table_of(now) != "" or self._is_of_original(source, then)

    def _is_of_original(self, source: Input, then: str) -> bool:
        """Whether that is a version of the table whose clone a dry run reads now."""
        if not isinstance(source, ModelInput):
            return False
        state = read_table_state(self.warehouse.table_path(source.model))
        return bool(state and state.original and state.original.table_id == _table_of(then))

    def _of_changes(self, source: ModelInput, *, came: bool) -> DataFrame:
        then, now = (versions[source.name] for versions in (self.then or {}, self.now))
        session, settings = self.warehouse.session, self.warehouse.settings
        return self._query({source.name: pin_changes(session, settings, self.model, then, now, came=came)})

    def _query(self, views: Mapping[str, str]) -> DataFrame:
        last = last_value(self.warehouse, self.model, views, from_start=False)
        return self.align(query_over(self.warehouse.session, self.model, views, last_value=last))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EarlierResults:
    """The table's own rows, from the lowest value on that an incremental query gives now."""

    target: Target
    now: DataFrame
    column: str
    inputs: EarlierInputs | None = (
        None  # asked first: what another definition gave can't be compared with now
    )

    def changes(self) -> Changes | None:
        return None

    def rows(self) -> DataFrame | None:
        redefined = self.inputs.rows() if self.inputs else None
        return self._since_lowest() if redefined is None else redefined

    def _since_lowest(self) -> DataFrame:
        value = column_of(self.column)
        lowest = self.now.agg(F.min(value).cast("string")).collect()[0][0]
        if lowest is None:
            return self.target.rows.where(value.isNull())
        # by way of text: Python's own dates and times know other zones and calendars
        of = self.now.select(value).schema[0].dataType
        bound = F.lit(lowest).cast(of)
        return self.target.rows.where((value >= bound) | value.isNull())


def inputs_then(
    session: SparkSession, model: Model, target: Target, now: Mapping[str, str]
) -> Mapping[str, str] | None:
    """The inputs' versions at the table's newest commit; None when nobody noted them.

    An input that a changed definition has brought counts from now. That is kept with the table: a run that
    finds nothing new makes no commit, and the next one would count from its own now.
    """
    note = target.state.note
    if note is None:
        return None
    then = dict(note.inputs)
    brought = [source.name for source in model.inputs if source.name not in then]
    if brought and model.kind.counts_from_then:
        kept = orjson.loads(target.state.properties.get(COUNTS_FROM, "{}"))
        since = kept["inputs"] if kept.get("definition") == model.definition else {}
        then |= {name: since.get(name, now[name]) for name in brought}
        if not since:
            told = {"definition": model.definition, "inputs": {name: then[name] for name in brought}}
            AlteredTable(session, target.path).keep(COUNTS_FROM, orjson.dumps(told).decode())
    return then


def _table_of(version: str) -> str:
    """The id of the table that a version is of."""
    return version.rpartition("@")[0]
