"""What an input is called within a query once its view has taken its place, and which columns say that name.

Spark knows a table as `customers` and as `mart.customers`, but a view by its alias alone. So the alias is
`customers`, and `mart.customers.id` becomes a column of it. Where a SELECT, or one within it, has something
else of that name, the alias is the full name, and `customers.id` becomes a column of that.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from sqlglot import exp

Parts: TypeAlias = Sequence[exp.Identifier]
NAMED = exp.Table | exp.Subquery | exp.UDTF  # what may stand in FROM and give its name to columns


class Qualifier(NamedTuple):
    """The part of a column's name that must say the alias."""

    start: int
    end: int
    table: int  # id() of the table in the tree


class _Source(NamedTuple):
    """Something in a FROM."""

    node: exp.Expr
    scopes: tuple[int, ...]  # the SELECT that it belongs to, and all around that


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Aliases:
    by_table: Mapping[int, str]  # by id() of the table in the tree
    full_names: Mapping[tuple[int, str], int]  # (SELECT, mart.customers) → table
    short_names: Mapping[tuple[int, str], int | None]  # (SELECT, customers) → table; None is left as it is

    def qualifiers(self, nodes: Iterable[exp.Expr]) -> Iterator[Qualifier]:
        """Every place where a column is qualified with a name that isn't the alias of its table."""
        for node in nodes if self.by_table else ():
            if isinstance(node, exp.Column) and len(node.parts) > 1:
                found = self._qualifier(
                    node, [part for part in node.parts if isinstance(part, exp.Identifier)]
                )
                if found:
                    yield found

    def _qualifier(self, column: exp.Column, parts: Parts) -> Qualifier | None:
        """Spark looks for mart.customers first, then for customers; in the innermost SELECT first."""
        for scope in _scopes(column):
            full = self.full_names.get((scope, _joined(parts[:2])))
            if full is not None and len(column.parts) > 2:
                return Qualifier(parts[0].meta["start"], parts[1].meta["end"] + 1, full)
            name = (scope, parts[0].name.casefold())
            if name in self.short_names:
                short = self.short_names[name]
                return (
                    None
                    if short is None
                    else Qualifier(parts[0].meta["start"], parts[0].meta["end"] + 1, short)
                )
        return None


def choose_aliases(nodes: Iterable[exp.Expr], tables: Mapping[int, Parts]) -> Aliases:
    """An alias for each of `tables`: the parts of its name, by id() of the table in the tree."""
    by_name: dict[str, list[_Source]] = {}
    for node in nodes:
        if isinstance(node, NAMED):
            source = _Source(node, tuple(_scopes(node)) or (0,))
            by_name.setdefault(node.alias_or_name.casefold(), []).append(source)
    by_table: dict[int, str] = {}
    full_names: dict[tuple[int, str], int] = {}
    short_names: dict[tuple[int, str], int | None] = {}
    for name, alike in by_name.items():
        crowded = _crowded(alike)
        for source in alike:
            table, scope = id(source.node), source.scopes[0]
            parts = tables.get(table)
            if parts is None:
                short_names[scope, name] = None
                continue
            is_clear = scope not in crowded
            by_table[table] = parts[-1].name if is_clear else ".".join(part.name for part in parts)
            full_names.setdefault((scope, _joined(parts)), table)
            if is_clear or not _is_only_matched(source.node):
                short_names[scope, name] = None if is_clear or (scope, name) in short_names else table
    return Aliases(by_table=by_table, full_names=full_names, short_names=short_names)


def _crowded(alike: Sequence[_Source]) -> set[int]:
    """The SELECTs whose columns, or those of a SELECT within, may see more than one source of this name."""
    own = [source.scopes[0] for source in alike]
    crowded = {scope for scope, times in collections.Counter(own).items() if times > 1}
    for source in alike:
        around = set(source.scopes[1:]).intersection(own)
        crowded |= around | {source.scopes[0]} if around else set()
    return crowded


def _is_only_matched(source: exp.Expr) -> bool:
    """Whether it is the right side of a SEMI or ANTI join: no column outside of that join is its."""
    join = source.parent
    return isinstance(join, exp.Join) and join.kind in ("SEMI", "ANTI")


def _scopes(node: exp.Expr) -> Iterator[int]:
    """The SELECT that a node belongs to, and all around it, the innermost first."""
    select = node.parent_select
    while select is not None:
        yield id(select)
        select = select.parent_select


def _joined(parts: Parts) -> str:
    return ".".join(part.name for part in parts).casefold()
