"""What a model's query, as it is now, gives of its inputs as they were at its table's newest commit.

An input that can't be read as it was (a file, another table in its place) makes the whole unknown.
"""

import dataclasses
from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it

from ondatra_dagster.planning.delta_log import feed_segments, only_adds_rows
from ondatra_dagster.planning.versions import MISSING, UNVERSIONED
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput
from ondatra_dagster.warehouse.comparison import column_of
from ondatra_dagster.warehouse.delta_tables import Target
from ondatra_dagster.warehouse.inputs import pin_changes, pin_inputs, query_over
from ondatra_dagster.warehouse.kinds.effect import Changes
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
        after, upto = (int(versions[source.name].rpartition("@")[2]) for versions in (self.then, self.now))
        if len(feed_segments(table, after=after, upto=upto)) != 1:
            return None
        came = self._of_changes(source, after, upto, came=True)
        if only_adds_rows(table, after=after, upto=upto):
            return Changes(came, None)
        return Changes(came, self._of_changes(source, after, upto, came=False))

    def rows(self) -> DataFrame | None:
        """All that the query gives of its inputs as they were."""
        if not self.model.is_deterministic or not self._is_readable() or self.then is None:
            return None
        # an input that a changed definition has brought was never there before: it counts from now
        versions = {**self.now, **self.then}
        return self._query(pin_inputs(self.warehouse.session, self.warehouse.settings, self.model, versions))

    def _is_readable(self) -> bool:
        # a query that reads nothing changes by its definition alone: only its table tells what it gave
        return (
            bool(self.model.inputs)
            and self.then is not None
            and all(
                _was_kept(source, self.then.get(source.name), self.now.get(source.name))
                for source in self.model.inputs
            )
        )

    def _of_changes(self, source: ModelInput, after: int, upto: int, *, came: bool) -> DataFrame:
        table = self.warehouse.table_path(source.model)
        view = pin_changes(self.warehouse.session, table, self.model, after=after, upto=upto, came=came)
        return self._query({source.name: view})

    def _query(self, views: Mapping[str, str]) -> DataFrame:
        return self.align(query_over(self.warehouse.session, self.model, views))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EarlierResults:
    """The table's own rows, from the lowest value on that an incremental query gives now."""

    target: Target
    now: DataFrame
    column: str

    def changes(self) -> Changes | None:
        return None

    def rows(self) -> DataFrame | None:
        value = column_of(self.column)
        lowest = self.now.agg(F.min(value)).collect()[0][0]
        if lowest is None:
            return self.target.rows.where(value.isNull())
        return self.target.rows.where((value >= F.lit(lowest)) | value.isNull())


def _was_kept(source: Input, then: str | None, now: str | None) -> bool:
    """Whether an input can still be read as it was."""
    if then is None:
        return True
    if then in (UNVERSIONED, MISSING) or now is None:
        return False
    if isinstance(source, FileInput):
        return then == now
    return then.rpartition("@")[0] == now.rpartition("@")[0] != ""
