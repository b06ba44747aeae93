"""Column lineage: of which columns of its inputs each column of a model is made, up to the raw files.

Found in the texts of the queries, and only when somebody asks: loading a project costs nothing for it. What a
query's text can't tell is unknown, and said to be.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp

from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.model import Input, Model, ModelInput
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.sql.column_flow import RelationOf, read_flow
from ondatra_dagster.project.sql.query import parse_query
from ondatra_dagster.project.sql.relations import NOTHING, UNKNOWN, Made, Origin, Relation, of_input, opaque
from ondatra_dagster.project.sql.tokens import QueryError
from ondatra_dagster.project.sql.unresolved_columns import UnresolvedColumn, unresolved_columns
from ondatra_dagster.project.suggestions import correction

KnownColumns = Callable[[Input], Sequence[str] | None]  # those that an input's table has now


class ColumnLineage(NamedTuple):
    """A column of a model, and the columns of its inputs that it is made of."""

    name: str
    origins: tuple[Origin, ...]
    is_known: bool  # False: of something else too, or of nothing that could be found


class Branch(NamedTuple):
    """A column, and all that it is made of, up to the raw files."""

    origin: Origin
    is_known: bool
    is_repeated: bool  # what is above it stands in another branch
    above: tuple["Branch", ...]


def nobody_knows(_: Input) -> None:
    """For who has no tables to look at."""


class Lineage:
    """The lineage of a project's columns; each query is read once, when it is first needed."""

    def __init__(self, project: Project, known: KnownColumns = nobody_knows) -> None:
        self._project = project
        self._known = known
        self._relations: dict[str, Relation] = {}

    def columns(self, model: Model) -> tuple[ColumnLineage, ...]:
        """Every column of the model that is known, in its table's order."""
        known = self._known(ModelInput(model=model.id))
        names = _names(model, self._relation(model)) if known is None else known
        return tuple(self._lineage(model, name) for name in names if name is not None)

    def column(self, model: Model, name: str) -> ColumnLineage:
        """One column, however it is spelled; raises SelectionError when the model surely has none such."""
        columns = {column.name.casefold(): column for column in self.columns(model)}
        if name.casefold() in columns:
            return columns[name.casefold()]
        if self._relation(model).rest is None or self._known(ModelInput(model=model.id)) is not None:
            known = [column.name for column in columns.values()]
            raise SelectionError(
                f"{model.name} has no column {name!r}; {correction(name, known, plural='columns')}"
            )
        return self._lineage(model, name)

    def branch(self, model: Model, name: str) -> Branch:
        """The column and everything above it."""
        column = self.column(model, name)
        return self._branch(Origin(ModelInput(model=model.id), column.name), set())

    def sources(self, model: Model, name: str) -> tuple[tuple[Origin, ...], bool]:
        """The columns that no model makes which the column comes from, and whether those are all."""
        branches = list(_within(self.branch(model, name)))
        ends = {branch.origin for branch in branches if not isinstance(branch.origin.input, ModelInput)}
        return _sorted(ends), all(branch.is_known for branch in branches)

    def unresolved(self, model: Model) -> list[UnresolvedColumn]:
        """Return the columns of the model's query that surely name nothing."""
        try:
            query = parse_query(model.sql)
        except QueryError:  # it was read once before, but not as a query
            return []
        relation_of = self._relation_of(model)
        if model.id not in self._relations and self._known(ModelInput(model=model.id)) is None:
            self._relations[model.id] = read_flow(query.tree, relation_of)  # as it is parsed already
        return unresolved_columns(query, relation_of)

    def _branch(self, origin: Origin, seen: set[Origin]) -> Branch:
        if not isinstance(origin.input, ModelInput):
            return Branch(origin, is_known=True, is_repeated=False, above=())
        column = self._lineage(self._project.models[origin.input.model], origin.column)
        is_repeated = origin in seen and bool(column.origins)
        seen.add(origin)
        above = () if is_repeated else tuple(self._branch(each, seen) for each in column.origins)
        return Branch(origin, column.is_known, is_repeated, above)

    def _lineage(self, model: Model, name: str) -> ColumnLineage:
        made = self._made(model, name)
        return ColumnLineage(name, _sorted(made.of), made.is_known)

    def _made(self, model: Model, name: str) -> Made:
        if name.casefold() in model.kind.own_columns:
            return NOTHING
        found = self._relation(model).find(name)
        if found is None or found == UNKNOWN:
            return self._by_place(model, name) or UNKNOWN
        return found

    def _by_place(self, model: Model, name: str) -> Made | None:
        """What a column is made of that Spark has named, when the table tells where it stands."""
        given = self._relation(model)
        known = self._known(ModelInput(model=model.id))
        if given.rest is not None or known is None or len(known) != len(_names(model, given)):
            return None
        pairs = zip(known, given.columns, strict=False)  # the kind's own columns come last
        return next((column.made for each, column in pairs if each.casefold() == name.casefold()), None)

    def _relation(self, model: Model) -> Relation:
        if model.id not in self._relations:
            above = self._project.upstream(model.id) | {model.id}
            for id_, each in self._project.models.items():  # in their order: what is read has been followed
                if id_ in above and id_ not in self._relations:
                    self._relations[id_] = self._read(each)
        return self._relations[model.id]

    def _read(self, model: Model) -> Relation:
        try:
            tree = parse_query(model.sql).tree
        except QueryError:  # it was read once before, but not as a query
            return opaque()
        return read_flow(tree, self._relation_of(model))

    def _relation_of(self, model: Model) -> RelationOf:
        inputs = {each.start: each.input for each in model.references if not each.is_qualifier}

        def relation_of(table: exp.Table) -> Relation:
            read = inputs.get(table.parts[0].meta.get("start", -1))
            return opaque() if read is None else self._input(read)

        return relation_of

    def _input(self, read: Input) -> Relation:
        """An input with the columns that its table has, or else that its query gives."""
        known = self._known(read)
        if known is None and isinstance(read, ModelInput):
            model = self._project.models[read.model]
            given = self._relation(model)
            names = _names(model, given)
            if given.rest is None and None not in names:
                known = [name for name in names if name is not None]
        return of_input(read, known)


def _names(model: Model, given: Relation) -> list[str | None]:
    """The columns of the model's table, as far as its query names them."""
    return [*(column.name for column in given.columns), *model.kind.own_columns]


def _within(branch: Branch) -> Iterator[Branch]:
    return itertools.chain([branch], *(map(_within, branch.above)))


def _sorted(origins: frozenset[Origin] | set[Origin]) -> tuple[Origin, ...]:
    return tuple(sorted(origins, key=lambda origin: (origin.input.name, origin.column)))
