"""The columns of a table or subquery, by name, and the columns that each is computed from.

Names are resolved as in Spark. column_tracing.py traces a query with them.
The origin of an ambiguous name is unknown; it is never guessed.
"""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ondatra_dagster.project.model import Input


class ColumnOrigin(NamedTuple):
    """A column of an input."""

    input: Input
    column: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ValueSources:
    """The sources that a value is computed from."""

    origins: frozenset[ColumnOrigin] = frozenset()
    is_known: bool = True  # False: it has other sources too, or none was found
    is_json: bool = False  # the text of a JSON builder: another builder doesn't quote it

    def __or__(self, other: "ValueSources") -> "ValueSources":
        return ValueSources(
            origins=self.origins | other.origins,
            is_known=self.is_known and other.is_known,
            is_json=self.is_json and other.is_json,
        )


NO_SOURCES = ValueSources()  # of a literal, of the clock
UNKNOWN_SOURCES = ValueSources(is_known=False)


def merge_sources(parts: Collection[ValueSources]) -> ValueSources:
    """Return the sources of a value that is computed from all of these."""
    origins = frozenset[ColumnOrigin]().union(*(part.origins for part in parts))
    return ValueSources(origins=origins, is_known=all(part.is_known for part in parts))


class OutputColumn(NamedTuple):
    """A column that a query or table gives. Spark chooses the name of a column without one."""

    name: str | None
    sources: ValueSources

    def has_name(self, name: str) -> bool:
        return self.name is not None and self.name.casefold() == name.casefold()


UnknownColumnSources = Callable[[str], ValueSources]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table, subquery or function that has columns."""

    columns: tuple[OutputColumn, ...] = ()
    # the sources of a column that isn't in `columns`; None: there are no others
    unknown_columns: UnknownColumnSources | None = None

    def find_column(self, name: str) -> ValueSources | None:
        """Return the sources of the column of that name; None if there is none."""
        matches = [column.sources for column in self.columns if column.has_name(name)]
        if matches:
            return matches[0] if len(matches) == 1 else UNKNOWN_SOURCES
        if self.unknown_columns:
            return self.unknown_columns(name)
        return UNKNOWN_SOURCES if any(column.name is None for column in self.columns) else None

    def with_names(self, names: Sequence[str]) -> "Relation":
        """Return the relation with other column names, as AS t(a, b) gives them."""
        if not names:
            return self
        if self.unknown_columns is not None or len(names) != len(self.columns):
            lookup = self.unknown_columns
            # a function: all of its columns have the same sources
            has_same_sources = lookup is not None and not self.columns
            sources = (
                lookup(names[0]) if lookup and has_same_sources and lookup(names[0]) == lookup("") else UNKNOWN_SOURCES
            )
            return Relation(columns=tuple(OutputColumn(name, sources) for name in names))
        pairs = zip(names, self.columns, strict=True)
        return Relation(columns=tuple(OutputColumn(name, column.sources) for name, column in pairs))

    def without_columns(self, names: Collection[str]) -> "Relation":
        """Return the relation without the columns of these names, which are casefolded."""
        columns = (column for column in self.columns if column.name is None or column.name.casefold() not in names)
        return Relation(columns=tuple(columns), unknown_columns=self.unknown_columns)

    def union(self, other: "Relation") -> "Relation":
        """Return the relation of a UNION: a column has the sources of both columns in its place."""
        if self.unknown_columns or other.unknown_columns or len(self.columns) != len(other.columns):
            return Relation(
                columns=tuple(OutputColumn(column.name, UNKNOWN_SOURCES) for column in self.columns),
                unknown_columns=unknown_sources,
            )
        pairs = zip(self.columns, other.columns, strict=True)
        return Relation(columns=tuple(OutputColumn(left.name, left.sources | right.sources) for left, right in pairs))

    def union_by_name(self, other: "Relation") -> "Relation":
        """Return the relation of a UNION BY NAME: a column has the sources of both columns of its name."""
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
        """Return the relation of an UNPIVOT: the names of these columns in one column, their values in another."""
        other_relation = self.without_columns({column_name.casefold() for column_name in names})
        value_sources = merge_sources([self.find_column(column_name) or UNKNOWN_SOURCES for column_name in names])
        return Relation(
            columns=(*other_relation.columns, OutputColumn(name, NO_SOURCES), OutputColumn(value, value_sources)),
            unknown_columns=other_relation.unknown_columns,
        )

    def common_columns(self, other: "Relation") -> list[str] | None:
        """Return the names of the columns that both have; None if that is unknown."""
        names = [column.name for column in (*self.columns, *other.columns)]
        if self.unknown_columns or other.unknown_columns or None in names:
            return None
        return [column.name for column in self.columns if column.name is not None and other.find_column(column.name)]


def unknown_sources(_: str) -> ValueSources:
    """Return unknown sources, whatever the column's name is."""
    return UNKNOWN_SOURCES


def opaque_relation(sources: ValueSources = UNKNOWN_SOURCES) -> Relation:
    """Return a relation that has columns of any name, all with the same sources."""
    return Relation(unknown_columns=lambda _: sources)


def input_relation(input_: Input, columns: Sequence[str] | None) -> Relation:
    """Return the relation of an input: with these columns, or with any if they are unknown."""

    def build_sources(name: str) -> ValueSources:
        return ValueSources(origins=frozenset({ColumnOrigin(input_, name)}))

    if columns is None:
        return Relation(unknown_columns=build_sources)
    return Relation(columns=tuple(OutputColumn(name, build_sources(name)) for name in columns))


class FromSource(NamedTuple):
    """A source in a FROM: a table, subquery or function."""

    name: str
    full_name: tuple[str, ...]  # (schema, table) if columns may be qualified with both
    relation: Relation


@dataclasses.dataclass(slots=True, kw_only=True)
class ColumnScope:
    """The meanings that column names have in one SELECT. It grows while the FROM is read."""

    outer: "ColumnScope | None" = None
    sources: list[FromSource] = dataclasses.field(default_factory=list)
    merged_columns: dict[str, OutputColumn] = dataclasses.field(default_factory=dict)  # of USING, by casefolded name
    has_unknown_natural_join: bool = False  # a NATURAL join has unknown common columns
    aliases: dict[str, ValueSources] = dataclasses.field(default_factory=dict)  # of the SELECT list, so far

    def resolve_column(self, parts: Sequence[str]) -> ValueSources:
        """Return the sources of the column with these name parts."""
        return self.find_in_scopes(parts) or UNKNOWN_SOURCES

    def find_in_scopes(self, parts: Sequence[str]) -> ValueSources | None:
        """Return the column's sources in this SELECT or those around it; None if it certainly is in none."""
        column_sources = self.resolve_locally(parts)
        return self.outer.find_in_scopes(parts) if column_sources is None and self.outer else column_sources

    def resolve_locally(self, parts: Sequence[str]) -> ValueSources | None:
        """Return the column's sources in this SELECT alone; None if it has no such column."""
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
        """Return the sources of that name, which may qualify a column."""
        if len(qualifier) == 1:
            return [source for source in self.sources if source.name.casefold() == qualifier[0]]
        return [source for source in self.sources if source.full_name == qualifier]

    def find_column(self, name: str) -> ValueSources | None:
        """Return the sources of a column without a qualifier. SELECT aliases are not considered."""
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
        """Return the relation that * means."""
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
    """Return whether it may have columns whose names aren't listed."""
    return relation.unknown_columns is not None or any(column.name is None for column in relation.columns)


def _field_sources(sources: ValueSources, *, is_field: bool) -> ValueSources:
    return dataclasses.replace(sources, is_json=False) if is_field else sources
