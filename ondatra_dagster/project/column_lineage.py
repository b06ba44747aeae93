"""The lineage of columns: the input columns that each column of a model is computed from, up to the raw files.

The lineage is read from the texts of the queries, and only when a caller requests it: loading a project computes none.
If a text doesn't show where a column comes from, the column's origin is reported as unknown.
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

TableColumnsLookup = Callable[[Input], Sequence[str] | None]  # the current columns of an input's table


class ColumnLineage(NamedTuple):
    """A column of a model, and the columns of its inputs that it is computed from."""

    name: str
    origins: tuple[ColumnOrigin, ...]
    is_known: bool  # False: some origins may be missing, or none was found


class LineageBranch(NamedTuple):
    """A column and, recursively, all columns that it is computed from, up to the raw files."""

    origin: ColumnOrigin
    is_known: bool
    is_repeated: bool  # True: another branch already shows the upstream columns of this column
    upstream_branches: tuple["LineageBranch", ...]


def no_table_columns(_: Input) -> None:
    """Return None for every input: the column lookup of a caller without tables."""


class LineageResolver:
    """The lineage of a project's columns. Each query is read once, when it is first needed."""

    def __init__(self, project: Project, table_columns: TableColumnsLookup = no_table_columns) -> None:
        self._project = project
        self._table_columns = table_columns
        self._relations: dict[str, Relation] = {}

    def columns(self, model: Model) -> tuple[ColumnLineage, ...]:
        """Return the lineage of every known column of the model, in the order of the columns in its table."""
        table_columns = self._table_columns(ModelInput(model=model.id))
        names = _model_column_names(model, self._relation(model)) if table_columns is None else table_columns
        return tuple(self._column_lineage(model, name) for name in names if name is not None)

    def column(self, model: Model, name: str) -> ColumnLineage:
        """Return the lineage of one column; the case of its name is ignored.

        Raise SelectionError if the model certainly has no such column.
        """
        columns = {column.name.casefold(): column for column in self.columns(model)}
        if name.casefold() in columns:
            return columns[name.casefold()]
        if self._relation(model).unknown_columns is None or self._table_columns(ModelInput(model=model.id)) is not None:
            known_names = [column.name for column in columns.values()]
            raise SelectionError(
                f"{model.name} has no column {name!r}; {suggest_correction(name, known_names, plural='columns')}"
            )
        return self._column_lineage(model, name)

    def branch(self, model: Model, name: str) -> LineageBranch:
        """Return the column and all its upstream columns."""
        column = self.column(model, name)
        return self._build_branch(ColumnOrigin(ModelInput(model=model.id), column.name), set())

    def sources(self, model: Model, name: str) -> tuple[tuple[ColumnOrigin, ...], bool]:
        """Return the source and file columns that the column comes from, and whether the list is complete."""
        branches = list(_walk_branches(self.branch(model, name)))
        raw_columns = {branch.origin for branch in branches if not isinstance(branch.origin.input, ModelInput)}
        return _sort_origins(raw_columns), all(branch.is_known for branch in branches)

    def find_unresolved_columns(self, model: Model) -> list[UnresolvedColumn]:
        """Return the column names in the model's query that certainly refer to no column."""
        query = _parse_query(model)
        if query is None:
            return []
        relation_of = self._relation_of(model)
        if model.id not in self._relations and self._table_columns(ModelInput(model=model.id)) is None:
            self._relations[model.id] = trace_columns(query.tree, relation_of)  # reuse the parsed query
        return find_unresolved_columns(query, relation_of)

    def _build_branch(self, origin: ColumnOrigin, visited_origins: set[ColumnOrigin]) -> LineageBranch:
        if not isinstance(origin.input, ModelInput):
            return LineageBranch(origin, is_known=True, is_repeated=False, upstream_branches=())
        column = self._column_lineage(self._project.models[origin.input.model], origin.column)
        is_repeated = origin in visited_origins and bool(column.origins)
        visited_origins.add(origin)
        upstream_branches = (
            ()
            if is_repeated
            else tuple(self._build_branch(upstream_origin, visited_origins) for upstream_origin in column.origins)
        )
        return LineageBranch(origin, column.is_known, is_repeated, upstream_branches)

    def _column_lineage(self, model: Model, name: str) -> ColumnLineage:
        value_sources = self._column_value_sources(model, name)
        return ColumnLineage(name, _sort_origins(value_sources.origins), value_sources.is_known)

    def _column_value_sources(self, model: Model, name: str) -> ValueSources:
        if name.casefold() in model.kind.own_columns:
            return NO_SOURCES
        value_sources = self._relation(model).find_column(name)
        if value_sources is None or value_sources == UNKNOWN_SOURCES:
            return self._sources_by_position(model, name) or UNKNOWN_SOURCES
        return value_sources

    def _sources_by_position(self, model: Model, name: str) -> ValueSources | None:
        """Return the sources of a column whose name Spark chose, found by the column's position in the table.

        Return None if the positions in the query and in the table can't be matched, or if no column has this name.
        """
        relation = self._relation(model)
        table_columns = self._table_columns(ModelInput(model=model.id))
        if (
            relation.unknown_columns is not None
            or table_columns is None
            or len(table_columns) != len(_model_column_names(model, relation))
        ):
            return None
        # zip ends before the columns that the kind adds: in the table they come last
        pairs = zip(table_columns, relation.columns, strict=False)
        return next(
            (column.sources for table_column, column in pairs if table_column.casefold() == name.casefold()), None
        )

    def _relation(self, model: Model) -> Relation:
        if model.id not in self._relations:
            needed_ids = self._project.upstream(model.id) | {model.id}
            # the models are in their order: upstream models come first
            for id_, project_model in self._project.models.items():
                if id_ in needed_ids and id_ not in self._relations:
                    self._relations[id_] = self._read_relation(project_model)
        return self._relations[model.id]

    def _read_relation(self, model: Model) -> Relation:
        query = _parse_query(model)
        return trace_columns(query.tree, self._relation_of(model)) if query else opaque_relation()

    def _relation_of(self, model: Model) -> InputRelationLookup:
        inputs = {reference.start: reference.input for reference in model.references if not reference.is_qualifier}

        def find_relation(table: exp.Table) -> Relation:
            input_ = inputs.get(table.parts[0].meta.get("start", -1))
            return opaque_relation() if input_ is None else self._input_relation(input_)

        return find_relation

    def _input_relation(self, input_: Input) -> Relation:
        """Return an input as a relation, with the columns of its table, or else with those of its query."""
        column_names = self._table_columns(input_)
        if column_names is None and isinstance(input_, ModelInput):
            model = self._project.models[input_.model]
            relation = self._relation(model)
            names = _model_column_names(model, relation)
            if relation.unknown_columns is None and None not in names:
                column_names = [name for name in names if name is not None]
        return input_relation(input_, column_names)


def _parse_query(model: Model) -> ParsedQuery | None:
    try:
        return parse_query(model.sql)
    except QueryError:  # the query was accepted before, but sqlglot can't parse it
        return None


def _model_column_names(model: Model, relation: Relation) -> list[str | None]:
    """Return the names of the columns of the model's table. A name is None if Spark chooses it."""
    return [*(column.name for column in relation.columns), *model.kind.own_columns]


def _walk_branches(branch: LineageBranch) -> Iterator[LineageBranch]:
    return itertools.chain([branch], *(map(_walk_branches, branch.upstream_branches)))


def _sort_origins(origins: frozenset[ColumnOrigin] | set[ColumnOrigin]) -> tuple[ColumnOrigin, ...]:
    return tuple(sorted(origins, key=lambda origin: (origin.input.name, origin.column)))
