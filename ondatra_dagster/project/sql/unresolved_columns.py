"""The columns of a query that surely name nothing: found without Spark, where all that it reads is known.

A column is passed over wherever it may mean something that isn't known here: what Spark takes isn't refused.
"""

from collections.abc import Iterator
from typing import NamedTuple

from sqlglot import exp

from ondatra_dagster.project.sql.column_flow import RelationOf
from ondatra_dagster.project.sql.columns import is_reserved
from ondatra_dagster.project.sql.query import Query
from ondatra_dagster.project.sql.relations import Scope
from ondatra_dagster.project.sql.select_scopes import SEES_WHAT_IS_GIVEN, SelectScope, read_scopes

PIPE = "|>"  # sqlglot makes other queries of pipes
CLAUSES = ("expressions", "where", "group", "windows", "laterals")
# what has names of its own, or may have been taken for something else
UNCERTAIN = (exp.Query, exp.Lambda, exp.Kwarg, exp.PropertyEQ, exp.Star, exp.Pivot, exp.QueryTransform)
# words that are functions or keywords of Spark where no column is called so
WORDS = frozenset(
    {"user", "session_user", "localtimestamp", "localtime", "grouping__id", "all", "default", "_metadata"}
    | {"year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second"}
    | {"microsecond", "millisecond", "both", "leading", "trailing", "timestamp_ltz", "timestamp_ntz"}
    | {"window", "session_window", "unknown"}  # GROUP BY window(…) gives a column that is called so
)
PREFIXES = ("current_", "__")  # the latter names what Spark itself has named


class UnresolvedColumn(NamedTuple):
    """A column that nothing in sight of it has."""

    name: str  # as it is written
    line: int  # within the query
    unknown: str  # the part that isn't known
    known: tuple[str, ...]  # the columns that could have been meant


def unresolved_columns(query: Query, relation_of: RelationOf) -> list[UnresolvedColumn]:
    """Return every column that surely can't be resolved, in the order of the text, each once a line."""
    if PIPE in query.words:
        return []
    found = {
        column
        for each in read_scopes(query.tree, relation_of)
        if not _may_see_more(each.select)
        for column in _unresolved(each)
    }
    return sorted(found, key=lambda column: (column.line, column.name))


def _unresolved(each: SelectScope) -> Iterator[UnresolvedColumn]:
    for column in _columns(each):
        parts = [part.name for part in column.parts]
        line = column.parts[0].meta.get("line")
        if line is None or each.scope.finds(parts) or _is_word(column) or any(map(is_reserved, parts)):
            continue
        yield _described(parts, line, each.scope)


def _columns(each: SelectScope) -> Iterator[exp.Column]:
    """Yield the columns of a SELECT that are looked up in its scope alone."""
    for clause in CLAUSES:
        yield from _of_clause(each.select, clause)
    for join in each.select.args.get("joins") or ():
        if join.args.get("on"):
            yield from _within(join.args["on"])
    if each.given.rest is not None or any(column.name is None for column in each.given.columns):
        return  # it gives columns whose names aren't known
    given = {str(column.name).casefold() for column in each.given.columns}
    for clause in SEES_WHAT_IS_GIVEN:
        found = _of_clause(each.select, clause)
        yield from (column for column in found if column.parts[0].name.casefold() not in given)


def _of_clause(select: exp.Select, clause: str) -> Iterator[exp.Column]:
    written = select.args.get(clause) or []
    for node in written if isinstance(written, list) else [written]:
        yield from _within(node)


def _within(node: exp.Expr) -> Iterator[exp.Column]:
    for part in node.walk(prune=_is_uncertain):
        if isinstance(part, exp.Column) and not part.is_star and not _is_uncertain(part):
            yield part


def _is_uncertain(node: exp.Expr) -> bool:
    if isinstance(node, exp.JSONExtract):  # f(g => x -> y): sqlglot takes the arrow for something else
        return not isinstance(node.expression, exp.JSONPath)
    return isinstance(node, UNCERTAIN)


def _may_see_more(select: exp.Select) -> bool:
    """Return whether a WITH within another query is around it: what that can see isn't followed."""
    node: exp.Expr = select
    while clause := node.find_ancestor(exp.With):
        node = clause
        if clause.parent is None or clause.parent.find_ancestor(exp.Query):
            return True
    return False


def _is_word(column: exp.Column) -> bool:
    first = column.parts[0]
    folded = first.name.casefold()
    return folded in WORDS or folded.startswith(PREFIXES)


def _described(parts: list[str], line: int, scope: Scope) -> UnresolvedColumn:
    named = scope.named((parts[0].casefold(),)) if len(parts) > 1 else []
    sources = named or scope.sources
    known = [column.name for source in sources for column in source.relation.columns]
    return UnresolvedColumn(
        name=".".join(parts),
        line=line,
        unknown=parts[1] if named else parts[0],
        known=tuple(dict.fromkeys(name for name in known if name is not None)),
    )
