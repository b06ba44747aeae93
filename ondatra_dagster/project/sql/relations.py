"""What a table or subquery gives: its columns by name, and what each is made of.

Names are looked up here as Spark looks them up. What a query makes of them is read in column_flow.py.
Where a name may mean two things, what it is made of is unknown: never a guess.
"""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ondatra_dagster.project.model import Input


class Origin(NamedTuple):
    """A column of an input."""

    input: Input
    column: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a value is made of."""

    of: frozenset[Origin] = frozenset()
    is_known: bool = True  # False: of something else too, or of nothing like this
    is_json: bool = False  # the text of a JSON builder: within another it isn't quoted

    def __or__(self, other: "Made") -> "Made":
        return Made(
            of=self.of | other.of,
            is_known=self.is_known and other.is_known,
            is_json=self.is_json and other.is_json,
        )


NOTHING = Made()  # a literal, the clock
UNKNOWN = Made(is_known=False)


def together(parts: Collection[Made]) -> Made:
    """What a value is made of that is made of all of these."""
    return Made(
        of=frozenset().union(*(part.of for part in parts)), is_known=all(part.is_known for part in parts)
    )


class Given(NamedTuple):
    """A column that something gives; Spark finds a name for one that has none."""

    name: str | None
    made: Made

    def is_called(self, name: str) -> bool:
        return self.name is not None and self.name.casefold() == name.casefold()


Rest = Callable[[str], Made]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Something that columns can be taken from."""

    columns: tuple[Given, ...] = ()
    rest: Rest | None = None  # what a column is made of that isn't among these; None: there is no other

    def find(self, name: str) -> Made | None:
        """What the column of that name is made of; None when there is none."""
        found = [column.made for column in self.columns if column.is_called(name)]
        if found:
            return found[0] if len(found) == 1 else UNKNOWN
        if self.rest:
            return self.rest(name)
        return UNKNOWN if any(column.name is None for column in self.columns) else None

    def named(self, names: Sequence[str]) -> "Relation":
        """The same under other names: AS t(a, b)."""
        if not names:
            return self
        if self.rest is not None or len(names) != len(self.columns):
            rest = self.rest
            is_same = rest is not None and not self.columns  # a function's: each column is made alike
            made = rest(names[0]) if rest and is_same and rest(names[0]) == rest("") else UNKNOWN
            return Relation(columns=tuple(Given(name, made) for name in names))
        pairs = zip(names, self.columns, strict=True)
        return Relation(columns=tuple(Given(name, column.made) for name, column in pairs))

    def without(self, names: Collection[str]) -> "Relation":
        """The same but for the columns of these names, casefolded."""
        columns = (
            column for column in self.columns if column.name is None or column.name.casefold() not in names
        )
        return Relation(columns=tuple(columns), rest=self.rest)

    def united(self, other: "Relation") -> "Relation":
        """A UNION: each column is made of those in its place."""
        if self.rest or other.rest or len(self.columns) != len(other.columns):
            return Relation(
                columns=tuple(Given(column.name, UNKNOWN) for column in self.columns), rest=unknown
            )
        pairs = zip(self.columns, other.columns, strict=True)
        return Relation(columns=tuple(Given(one.name, one.made | two.made) for one, two in pairs))

    def united_by_name(self, other: "Relation") -> "Relation":
        """A UNION BY NAME: each column is made of those of its name."""
        if self.rest or other.rest:
            return self.united(other)
        columns = []
        for column in self.columns:
            made = UNKNOWN if column.name is None else other.find(column.name)
            columns.append(Given(column.name, column.made | made if made else column.made))
        columns += [each for each in other.columns if each.name is None or self.find(each.name) is None]
        return Relation(columns=tuple(columns))

    def unpivoted(self, names: Sequence[str], *, name: str, value: str) -> "Relation":
        """An UNPIVOT of these columns: their names in one column, their values in another."""
        others = self.without({each.casefold() for each in names})
        made = together([self.find(each) or UNKNOWN for each in names])
        return Relation(columns=(*others.columns, Given(name, NOTHING), Given(value, made)), rest=others.rest)

    def common(self, other: "Relation") -> list[str] | None:
        """The names that both have; None when that can't be told."""
        names = [column.name for column in (*self.columns, *other.columns)]
        if self.rest or other.rest or None in names:
            return None
        return [column.name for column in self.columns if column.name is not None and other.find(column.name)]


def unknown(_: str) -> Made:
    """The rest of something that nobody knows the columns of."""
    return UNKNOWN


def opaque(made: Made = UNKNOWN) -> Relation:
    """Something whose columns have any name, and are all made alike."""
    return Relation(rest=lambda _: made)


def of_input(read: Input, columns: Sequence[str] | None) -> Relation:
    """An input: just these columns, or any when nobody knows which it has."""

    def origin(name: str) -> Made:
        return Made(of=frozenset({Origin(read, name)}))

    if columns is None:
        return Relation(rest=origin)
    return Relation(columns=tuple(Given(name, origin(name)) for name in columns))


class Source(NamedTuple):
    """Something in a FROM."""

    name: str
    full_name: tuple[str, ...]  # (schema, table) when columns may be qualified with both
    relation: Relation


@dataclasses.dataclass(slots=True, kw_only=True)
class Scope:
    """What the columns of one SELECT can mean; it grows while its FROM is read."""

    outer: "Scope | None" = None
    sources: list[Source] = dataclasses.field(default_factory=list)
    merged: dict[str, Given] = dataclasses.field(default_factory=dict)  # by USING, casefolded
    is_merged_anyhow: bool = False  # by NATURAL, and nobody knows which columns both sides have
    aliases: dict[str, Made] = dataclasses.field(default_factory=dict)  # of the SELECT list, so far

    def resolve(self, parts: Sequence[str]) -> Made:
        """What the column is made of that is written with these parts."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.resolve_here(parts)
            if found is not None:
                return found
            scope = scope.outer
        return UNKNOWN

    def finds(self, parts: Sequence[str]) -> bool:
        """Return whether the column may be one of this SELECT, or of those around it."""
        scope: Scope | None = self
        while scope is not None:
            if scope.resolve_here(parts) is not None:
                return True
            scope = scope.outer
        return False

    def resolve_here(self, parts: Sequence[str]) -> Made | None:
        """The same by this SELECT alone; None when it has no such column."""
        folded = tuple(part.casefold() for part in parts)
        for size in (2, 1):
            if len(parts) > size:
                found = self._of_source(folded[:size], parts[size])
                if found is not None:
                    return _field(found, is_field=len(parts) > size + 1)
        found = self.find(parts[0])
        if found is None:
            found = self.aliases.get(folded[0])
        return None if found is None else _field(found, is_field=len(parts) > 1)

    def _of_source(self, qualifier: tuple[str, ...], name: str) -> Made | None:
        named = self.named(qualifier)
        if len(named) > 1:
            return UNKNOWN
        return named[0].relation.find(name) if named else None

    def named(self, qualifier: tuple[str, ...]) -> list[Source]:
        """The sources that a column can be qualified with that name of."""
        if len(qualifier) == 1:
            return [source for source in self.sources if source.name.casefold() == qualifier[0]]
        return [source for source in self.sources if source.full_name == qualifier]

    def find(self, name: str) -> Made | None:
        """What a column without a qualifier is made of, going by the sources alone."""
        if name.casefold() in self.merged:
            return self.merged[name.casefold()].made
        if self.is_merged_anyhow:
            return UNKNOWN
        closed = [
            column.made
            for source in self.sources
            for column in source.relation.columns
            if column.is_called(name)
        ]
        others = [source.relation for source in self.sources if _may_have_more(source.relation)]
        if closed:
            return closed[0] if len(closed) == 1 else UNKNOWN
        if others:
            return (others[0].find(name) if len(others) == 1 else None) or UNKNOWN
        return None

    def star(self) -> Relation:
        """What * stands for."""
        if self.is_merged_anyhow:
            return opaque()
        columns = list(self.merged.values())
        for source in self.sources:
            columns += [
                column
                for column in source.relation.columns
                if column.name is None or column.name.casefold() not in self.merged
            ]
        is_open = any(source.relation.rest for source in self.sources)
        return Relation(columns=tuple(columns), rest=self._any_column if is_open else None)

    def _any_column(self, name: str) -> Made:
        return self.find(name) or UNKNOWN


def _may_have_more(relation: Relation) -> bool:
    """Whether it may have columns of names that aren't listed."""
    return relation.rest is not None or any(column.name is None for column in relation.columns)


def _field(found: Made, *, is_field: bool) -> Made:
    return dataclasses.replace(found, is_json=False) if is_field else found
