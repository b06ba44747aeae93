"""The lineage of columns: the input columns that each column of a model is made of, up to the raw files.

It is read from the queries' texts when a caller asks, so loading a project costs nothing for it. Columns that
a text leaves open are reported as unknown.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp

from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.model import Input, Model, ModelInput
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.spelling_suggestions import suggest_correction
from ondatra_dagster.project.sql.column_name_resolution import (
    NO_SOURCES,
    UNKNOWN_SOURCES,
    ColumnOrigin,
    Relation,
    ValueSources,
    input_relation,
    opaque_relation,
)
from ondatra_dagster.project.sql.column_tracing import InputRelationLookup, trace_columns
from ondatra_dagster.project.sql.find_unresolved_columns import UnresolvedColumn, find_unresolved_columns
from ondatra_dagster.project.sql.query_parser import ParsedQuery, parse_query
from ondatra_dagster.project.sql.tokenizer import QueryError

TableColumnsLookup = Callable[[Input], Sequence[str] | None]  # those that an input's table has now


class ColumnLineage(NamedTuple):
    """A column of a model, and the columns of its inputs that it is made of."""

    name: str
    origins: tuple[ColumnOrigin, ...]
    is_known: bool  # False: of something else too, or of nothing that could be found


class LineageBranch(NamedTuple):
    """A column, and all that it is made of, up to the raw files."""

    origin: ColumnOrigin
    is_known: bool
    is_repeated: bool  # what is above it stands in another branch
    upstream_branches: tuple["LineageBranch", ...]


def no_table_columns(_: Input) -> None:
    """For who has no tables to look at."""


class LineageResolver:
    """The lineage of a project's columns; each query is read once, when it is first needed."""

    def __init__(self, project: Project, known: TableColumnsLookup = no_table_columns) -> None:
        self._project = project
        self._table_columns = known
        self._relations: dict[str, Relation] = {}

    def columns(self, model: Model) -> tuple[ColumnLineage, ...]:
        """Every column of the model that is known, in its table's order."""
        known = self._table_columns(ModelInput(model=model.id))
        names = _model_column_names(model, self._relation(model)) if known is None else known
        return tuple(self._column_lineage(model, name) for name in names if name is not None)

    def column(self, model: Model, name: str) -> ColumnLineage:
        """One column, however it is spelled; raises SelectionError when the model surely has none such."""
        columns = {column.name.casefold(): column for column in self.columns(model)}
        if name.casefold() in columns:
            return columns[name.casefold()]
        if self._relation(model).unknown_columns is None or self._table_columns(ModelInput(model=model.id)) is not None:
            known = [column.name for column in columns.values()]
            raise SelectionError(
                f"{model.name} has no column {name!r}; {suggest_correction(name, known, plural='columns')}"
            )
        return self._column_lineage(model, name)

    def branch(self, model: Model, name: str) -> LineageBranch:
        """The column and everything above it."""
        column = self.column(model, name)
        return self._build_branch(ColumnOrigin(ModelInput(model=model.id), column.name), set())

    def sources(self, model: Model, name: str) -> tuple[tuple[ColumnOrigin, ...], bool]:
        """The columns that no model makes which the column comes from, and whether those are all."""
        branches = list(_walk_branches(self.branch(model, name)))
        ends = {branch.origin for branch in branches if not isinstance(branch.origin.input, ModelInput)}
        return _sort_origins(ends), all(branch.is_known for branch in branches)

    def find_unresolved_columns(self, model: Model) -> list[UnresolvedColumn]:
        """Return the columns of the model's query that surely name nothing."""
        query = _parse_query(model)
        if query is None:
            return []
        relation_of = self._relation_of(model)
        if model.id not in self._relations and self._table_columns(ModelInput(model=model.id)) is None:
            self._relations[model.id] = trace_columns(query.tree, relation_of)  # as it is parsed already
        return find_unresolved_columns(query, relation_of)

    def _build_branch(self, origin: ColumnOrigin, seen: set[ColumnOrigin]) -> LineageBranch:
        if not isinstance(origin.input, ModelInput):
            return LineageBranch(origin, is_known=True, is_repeated=False, upstream_branches=())
        column = self._column_lineage(self._project.models[origin.input.model], origin.column)
        is_repeated = origin in seen and bool(column.origins)
        seen.add(origin)
        above = () if is_repeated else tuple(self._build_branch(each, seen) for each in column.origins)
        return LineageBranch(origin, column.is_known, is_repeated, above)

    def _column_lineage(self, model: Model, name: str) -> ColumnLineage:
        made = self._column_value_sources(model, name)
        return ColumnLineage(name, _sort_origins(made.origins), made.is_known)

    def _column_value_sources(self, model: Model, name: str) -> ValueSources:
        if name.casefold() in model.kind.own_columns:
            return NO_SOURCES
        found = self._relation(model).find_column(name)
        if found is None or found == UNKNOWN_SOURCES:
            return self._sources_by_position(model, name) or UNKNOWN_SOURCES
        return found

    def _sources_by_position(self, model: Model, name: str) -> ValueSources | None:
        """What a column is made of that Spark has named, when the table tells where it stands."""
        given = self._relation(model)
        known = self._table_columns(ModelInput(model=model.id))
        if given.unknown_columns is not None or known is None or len(known) != len(_model_column_names(model, given)):
            return None
        pairs = zip(known, given.columns, strict=False)  # the kind's own columns come last
        return next((column.sources for each, column in pairs if each.casefold() == name.casefold()), None)

    def _relation(self, model: Model) -> Relation:
        if model.id not in self._relations:
            above = self._project.upstream(model.id) | {model.id}
            for id_, each in self._project.models.items():  # in their order: what is read has been followed
                if id_ in above and id_ not in self._relations:
                    self._relations[id_] = self._read_relation(each)
        return self._relations[model.id]

    def _read_relation(self, model: Model) -> Relation:
        query = _parse_query(model)
        return trace_columns(query.tree, self._relation_of(model)) if query else opaque_relation()

    def _relation_of(self, model: Model) -> InputRelationLookup:
        inputs = {each.start: each.input for each in model.references if not each.is_qualifier}

        def relation_of(table: exp.Table) -> Relation:
            read = inputs.get(table.parts[0].meta.get("start", -1))
            return opaque_relation() if read is None else self._input_relation(read)

        return relation_of

    def _input_relation(self, read: Input) -> Relation:
        """An input with the columns that its table has, or else that its query gives."""
        known = self._table_columns(read)
        if known is None and isinstance(read, ModelInput):
            model = self._project.models[read.model]
            given = self._relation(model)
            names = _model_column_names(model, given)
            if given.unknown_columns is None and None not in names:
                known = [name for name in names if name is not None]
        return input_relation(read, known)


def _parse_query(model: Model) -> ParsedQuery | None:
    try:
        return parse_query(model.sql)
    except QueryError:  # it was read once before, but not as a query
        return None


def _model_column_names(model: Model, given: Relation) -> list[str | None]:
    """The columns of the model's table, as far as its query names them."""
    return [*(column.name for column in given.columns), *model.kind.own_columns]


def _walk_branches(branch: LineageBranch) -> Iterator[LineageBranch]:
    return itertools.chain([branch], *(map(_walk_branches, branch.upstream_branches)))


def _sort_origins(origins: frozenset[ColumnOrigin] | set[ColumnOrigin]) -> tuple[ColumnOrigin, ...]:
    return tuple(sorted(origins, key=lambda origin: (origin.input.name, origin.column)))
