"""The columns of a table or subquery by name, and the input columns that each of them is computed from.

Names are resolved as in Spark. column_tracing.py uses this module to trace a query. If a name is ambiguous, its origin
is reported as unknown, never guessed.
"""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ondatra_dagster.project.model import Input


class ColumnOrigin(NamedTuple):
    """A column of an input, as the origin of another column."""

    input: Input
    column: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ValueSources:
    """The sources of a value: the columns that it is computed from."""

    origins: frozenset[ColumnOrigin] = frozenset()
    is_known: bool = True  # False: some sources may be missing, or none was found
    is_json: bool = False  # True: the value is the text of a JSON builder, so another builder doesn't quote it

    def __or__(self, other: "ValueSources") -> "ValueSources":
        return ValueSources(
            origins=self.origins | other.origins,
            is_known=self.is_known and other.is_known,
            is_json=self.is_json and other.is_json,
        )


NO_SOURCES = ValueSources()  # of a value that comes from no column, such as a literal or the current time
UNKNOWN_SOURCES = ValueSources(is_known=False)


def merge_sources(parts: Collection[ValueSources]) -> ValueSources:
    """Return the sources of a value that is computed from all these parts."""
    origins = frozenset[ColumnOrigin]().union(*(part.origins for part in parts))
    return ValueSources(origins=origins, is_known=all(part.is_known for part in parts))


class OutputColumn(NamedTuple):
    """A column in the output of a query or table. If it has no name here, Spark chooses its name."""

    name: str | None
    sources: ValueSources

    def has_name(self, name: str) -> bool:
        return self.name is not None and self.name.casefold() == name.casefold()


UnknownColumnSources = Callable[[str], ValueSources]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table, subquery or function that has columns."""

    columns: tuple[OutputColumn, ...] = ()
    # finds the sources of a column that isn't in `columns`; None: there are no other columns
    unknown_columns: UnknownColumnSources | None = None

    def find_column(self, name: str) -> ValueSources | None:
        """Return the sources of the column with this name; None if there is no such column."""
        matches = [column.sources for column in self.columns if column.has_name(name)]
        if matches:
            return matches[0] if len(matches) == 1 else UNKNOWN_SOURCES
        if self.unknown_columns:
            return self.unknown_columns(name)
        return UNKNOWN_SOURCES if any(column.name is None for column in self.columns) else None

    def with_names(self, names: Sequence[str]) -> "Relation":
        """Return the relation with these column names, as after AS t(a, b)."""
        if not names:
            return self
        if self.unknown_columns is not None or len(names) != len(self.columns):
            lookup = self.unknown_columns
            # every column of a function has the same sources
            has_same_sources = lookup is not None and not self.columns
            sources = (
                lookup(names[0]) if lookup and has_same_sources and lookup(names[0]) == lookup("") else UNKNOWN_SOURCES
            )
            return Relation(columns=tuple(OutputColumn(name, sources) for name in names))
        pairs = zip(names, self.columns, strict=True)
        return Relation(columns=tuple(OutputColumn(name, column.sources) for name, column in pairs))

    def without_columns(self, names: Collection[str]) -> "Relation":
        """Return the relation without the columns with these names, which must be casefolded."""
        columns = (column for column in self.columns if column.name is None or column.name.casefold() not in names)
        return Relation(columns=tuple(columns), unknown_columns=self.unknown_columns)

    def union(self, other: "Relation") -> "Relation":
        """Return the relation of a UNION: each column has the sources of the columns at its position on both sides."""
        if self.unknown_columns or other.unknown_columns or len(self.columns) != len(other.columns):
            return Relation(
                columns=tuple(OutputColumn(column.name, UNKNOWN_SOURCES) for column in self.columns),
                unknown_columns=unknown_sources,
            )
        pairs = zip(self.columns, other.columns, strict=True)
        return Relation(columns=tuple(OutputColumn(left.name, left.sources | right.sources) for left, right in pairs))

    def union_by_name(self, other: "Relation") -> "Relation":
        """Return the relation of a UNION BY NAME: a column has the sources of both columns with its name."""
        if self.unknown_columns or other.unknown_columns:
            return self.union(other)
        columns = []
        for column in self.columns:
            other_sources = UNKNOWN_SOURCES if column.name is None else other.find_column(column.name)
            columns.append(
                OutputColumn(column.name, column.sources | other_sources if other_sources else column.sources)
            )
        columns += [
            other_column
            for other_column in other.columns
            if other_column.name is None or self.find_column(other_column.name) is None
        ]
        return Relation(columns=tuple(columns))

    def unpivot(self, names: Sequence[str], *, name: str, value: str) -> "Relation":
        """Return the relation of an UNPIVOT.

        The names of the unpivoted columns become the values of one column, and their values those of another.
        """
        other_relation = self.without_columns({column_name.casefold() for column_name in names})
        value_sources = merge_sources([self.find_column(column_name) or UNKNOWN_SOURCES for column_name in names])
        return Relation(
            columns=(*other_relation.columns, OutputColumn(name, NO_SOURCES), OutputColumn(value, value_sources)),
            unknown_columns=other_relation.unknown_columns,
        )

    def common_columns(self, other: "Relation") -> list[str] | None:
        """Return the names of the columns that both relations have; None if that can't be known."""
        names = [column.name for column in (*self.columns, *other.columns)]
        if self.unknown_columns or other.unknown_columns or None in names:
            return None
        return [column.name for column in self.columns if column.name is not None and other.find_column(column.name)]


def unknown_sources(_: str) -> ValueSources:
    """Return unknown sources for a column of any name."""
    return UNKNOWN_SOURCES


def opaque_relation(sources: ValueSources = UNKNOWN_SOURCES) -> Relation:
    """Return a relation that has a column of every name, each with these sources."""
    return Relation(unknown_columns=lambda _: sources)


def input_relation(input_: Input, columns: Sequence[str] | None) -> Relation:
    """Return an input as a relation: with the given columns, or with columns of any name if they are unknown."""

    def build_sources(name: str) -> ValueSources:
        return ValueSources(origins=frozenset({ColumnOrigin(input_, name)}))

    if columns is None:
        return Relation(unknown_columns=build_sources)
    return Relation(columns=tuple(OutputColumn(name, build_sources(name)) for name in columns))


class FromSource(NamedTuple):
    """A source in a FROM: a table, subquery or function."""

    name: str
    full_name: tuple[str, ...]  # (schema, table) if columns may be qualified with schema and table
    relation: Relation


@dataclasses.dataclass(slots=True, kw_only=True)
class ColumnScope:
    """The meanings of column names in one SELECT. The scope grows while the items of FROM are read."""

    outer: "ColumnScope | None" = None
    sources: list[FromSource] = dataclasses.field(default_factory=list)
    # the columns that USING and NATURAL merge, by casefolded name
    merged_columns: dict[str, OutputColumn] = dataclasses.field(default_factory=dict)
    has_unknown_natural_join: bool = False  # True: the columns that a NATURAL join merges are unknown
    aliases: dict[str, ValueSources] = dataclasses.field(default_factory=dict)  # the aliases in the SELECT list, so far

    def resolve_column(self, parts: Sequence[str]) -> ValueSources:
        """Return the sources of the column whose qualified name has these parts."""
        return self.find_in_scopes(parts) or UNKNOWN_SOURCES

    def find_in_scopes(self, parts: Sequence[str]) -> ValueSources | None:
        """Return the column's sources in this SELECT or one around it; None if certainly none of them has it."""
        column_sources = self.resolve_locally(parts)
        return self.outer.find_in_scopes(parts) if column_sources is None and self.outer else column_sources

    def resolve_locally(self, parts: Sequence[str]) -> ValueSources | None:
        """Return the column's sources in this SELECT alone; None if this SELECT has no such column."""
        folded_parts = tuple(part.casefold() for part in parts)
        for size in (2, 1):
            if len(parts) > size:
                column_sources = self._find_in_source(folded_parts[:size], parts[size])
                if column_sources is not None:
                    return _field_sources(column_sources, is_field=len(parts) > size + 1)
        column_sources = self.find_column(parts[0])
        if column_sources is None:
            column_sources = self.aliases.get(folded_parts[0])
        return None if column_sources is None else _field_sources(column_sources, is_field=len(parts) > 1)

    def _find_in_source(self, qualifier: tuple[str, ...], name: str) -> ValueSources | None:
        matching_sources = self.sources_named(qualifier)
        if len(matching_sources) > 1:
            return UNKNOWN_SOURCES
        return matching_sources[0].relation.find_column(name) if matching_sources else None

    def sources_named(self, qualifier: tuple[str, ...]) -> list[FromSource]:
        """Return the items of FROM whose name or full name is the qualifier of a column."""
        if len(qualifier) == 1:
            return [source for source in self.sources if source.name.casefold() == qualifier[0]]
        return [source for source in self.sources if source.full_name == qualifier]

    def find_column(self, name: str) -> ValueSources | None:
        """Return the sources of a column without a qualifier. SELECT aliases don't count."""
        if name.casefold() in self.merged_columns:
            return self.merged_columns[name.casefold()].sources
        if self.has_unknown_natural_join:
            return UNKNOWN_SOURCES
        listed_columns = [
            column.sources for source in self.sources for column in source.relation.columns if column.has_name(name)
        ]
        unlisted_relations = [source.relation for source in self.sources if _has_unlisted_columns(source.relation)]
        if listed_columns:
            return listed_columns[0] if len(listed_columns) == 1 else UNKNOWN_SOURCES
        if unlisted_relations:
            return (
                unlisted_relations[0].find_column(name) if len(unlisted_relations) == 1 else None
            ) or UNKNOWN_SOURCES
        return None

    def expand_star(self) -> Relation:
        """Return the columns that * means, as a relation."""
        if self.has_unknown_natural_join:
            return opaque_relation()
        columns = list(self.merged_columns.values())
        for source in self.sources:
            columns += [
                column
                for column in source.relation.columns
                if column.name is None or column.name.casefold() not in self.merged_columns
            ]
        has_unknown_columns = any(source.relation.unknown_columns for source in self.sources)
        return Relation(columns=tuple(columns), unknown_columns=self._find_or_unknown if has_unknown_columns else None)

    def _find_or_unknown(self, name: str) -> ValueSources:
        return self.find_column(name) or UNKNOWN_SOURCES


def _has_unlisted_columns(relation: Relation) -> bool:
    """Return whether the relation may have columns whose names aren't known."""
    return relation.unknown_columns is not None or any(column.name is None for column in relation.columns)


def _field_sources(sources: ValueSources, *, is_field: bool) -> ValueSources:
    return dataclasses.replace(sources, is_json=False) if is_field else sources
