"""The column names in a query that certainly refer to no column, found without Spark if all inputs are known.

A name is skipped if it may have a meaning that this module doesn't know. So no query that Spark accepts is refused.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from sqlglot import exp

from ondatra_dagster.project.sql.column_name_resolution import ColumnScope, Relation
from ondatra_dagster.project.sql.column_tracing import ColumnTracer, InputRelationLookup
from ondatra_dagster.project.sql.output_and_system_columns import is_reserved_name
from ondatra_dagster.project.sql.query_parser import ParsedQuery

PIPE_OPERATOR = "|>"  # sqlglot rewrites pipes as other queries
CHECKED_CLAUSES = ("expressions", "where", "group", "windows", "laterals")


# nodes in which names have another meaning, and nodes that the parser may have misread
UNCERTAIN_NODES = (exp.Query, exp.Lambda, exp.Kwarg, exp.PropertyEQ, exp.Star, exp.Pivot, exp.QueryTransform)


# words that are functions or keywords of Spark, unless a column has this name
SPARK_WORDS = frozenset(
    {"user", "session_user", "localtimestamp", "localtime", "grouping__id", "all", "default", "_metadata"}
    | {"year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second"}
    | {"microsecond", "millisecond", "both", "leading", "trailing", "timestamp_ltz", "timestamp_ntz"}
    | {"window", "session_window", "unknown"}  # GROUP BY window(…) creates a column named window
)
SPARK_WORD_PREFIXES = ("current_", "__")  # Spark itself creates names that begin with __


class UnresolvedColumn(NamedTuple):
    """A column name that no visible table or subquery has."""

    name: str  # the name in the spelling of the query
    line: int  # the line within the query
    unknown: str  # the part of the name that isn't known
    known_names: tuple[str, ...]  # the columns that the user may have meant


def find_unresolved_columns(query: ParsedQuery, find_relation: InputRelationLookup) -> list[UnresolvedColumn]:
    """Return every column name that certainly can't be resolved, sorted by line. A name is returned once per line."""
    if PIPE_OPERATOR in query.words:
        return []
    unresolved_columns = {
        column
        for scoped_select in read_select_scopes(query.tree, find_relation)
        if not _is_in_nested_with(scoped_select.select)
        for column in _unresolved_in_select(scoped_select)
    }
    return sorted(unresolved_columns, key=lambda column: (column.line, column.name))


class ScopedSelect(NamedTuple):
    """A SELECT of a query, and the meanings of column names in this SELECT."""

    select: exp.Select
    scope: ColumnScope
    output: Relation  # the output columns, which ORDER BY and HAVING see too


def _unresolved_in_select(scoped_select: ScopedSelect) -> Iterator[UnresolvedColumn]:
    for column in _checked_columns(scoped_select):
        parts = [part.name for part in column.parts]
        line = column.parts[0].meta.get("line")
        is_known = (
            scoped_select.scope.find_in_scopes(parts) or _is_spark_word(column) or any(map(is_reserved_name, parts))
        )
        if line is not None and not is_known:
            yield _describe_column(parts, line, scoped_select.scope)


def _checked_columns(scoped_select: ScopedSelect) -> Iterator[exp.Column]:
    """Yield the columns that can be checked: their names refer to nothing outside the scope of the SELECT."""
    for clause in CHECKED_CLAUSES:
        yield from _columns_of_clause(scoped_select.select, clause)
    for join in scoped_select.select.args.get("joins") or ():
        if join.args.get("on"):
            yield from _columns_within(join.args["on"])
    if scoped_select.output.unknown_columns is not None or any(
        column.name is None for column in scoped_select.output.columns
    ):
        return  # ORDER BY and HAVING may mean an output column whose name isn't known
    output_names = {str(column.name).casefold() for column in scoped_select.output.columns}
    for clause in CLAUSES_AFTER_SELECT:
        columns = _columns_of_clause(scoped_select.select, clause)
        yield from (column for column in columns if column.parts[0].name.casefold() not in output_names)


def _columns_of_clause(select: exp.Select, clause: str) -> Iterator[exp.Column]:
    nodes = select.args.get(clause) or []
    for node in nodes if isinstance(nodes, list) else [nodes]:
        yield from _columns_within(node)


def _columns_within(node: exp.Expr) -> Iterator[exp.Column]:
    for part in node.walk(prune=_is_uncertain):
        if isinstance(part, exp.Column) and not part.is_star and not _is_uncertain(part):
            yield part


def _is_uncertain(node: exp.Expr) -> bool:
    if isinstance(node, exp.JSONExtract):  # sqlglot misreads the lambda arrow in f(g => x -> y)
        return not isinstance(node.expression, exp.JSONPath)
    return isinstance(node, UNCERTAIN_NODES)


def _is_in_nested_with(select: exp.Select) -> bool:
    """Return whether the SELECT is in a WITH of a subquery. This module doesn't know which names are visible there."""
    node: exp.Expr = select
    while clause := node.find_ancestor(exp.With):
        node = clause
        if clause.parent is None or clause.parent.find_ancestor(exp.Query):
            return True
    return False


def _is_spark_word(column: exp.Column) -> bool:
    first_part = column.parts[0]
    name = first_part.name.casefold()
    return name in SPARK_WORDS or name.startswith(SPARK_WORD_PREFIXES)


def _describe_column(parts: list[str], line: int, scope: ColumnScope) -> UnresolvedColumn:
    named_sources = scope.sources_named((parts[0].casefold(),)) if len(parts) > 1 else []
    sources = named_sources or scope.sources
    column_names = [column.name for source in sources for column in source.relation.columns]
    return UnresolvedColumn(
        name=".".join(parts),
        line=line,
        unknown=parts[1] if named_sources else parts[0],
        known_names=tuple(dict.fromkeys(name for name in column_names if name is not None)),
    )


CLAUSES_AFTER_SELECT = ("having", "qualify", "order", "sort", "cluster", "distribute")


def read_select_scopes(tree: exp.Expr, find_relation: InputRelationLookup) -> Iterator[ScopedSelect]:
    """Yield every SELECT of a query with its scope, including the SELECTs in conditions."""
    tracer = ColumnTracer(find_relation)
    tracer.trace_query(tree, {}, None)
    for select in tree.find_all(exp.Select):  # find_all yields outer SELECTs first
        outer_select = select.parent_select
        if outer_select is not None and id(select) not in tracer.scopes and id(outer_select) in tracer.scopes:
            _read_condition(tracer, select, outer_select)
        if id(select) in tracer.outputs:
            yield ScopedSelect(select, _complete_scope(tracer, select), tracer.outputs[id(select)])


def _read_condition(flow: ColumnTracer, select: exp.Select, around: exp.Select) -> None:
    """Trace the subquery in a condition that contains this SELECT.

    Do nothing in a clause such as HAVING, which sees further names.
    """
    nodes = [select, *_ancestors_below(select, around)]
    if nodes[-1].arg_key not in CLAUSES_AFTER_SELECT:
        scope, ctes = flow.scopes[id(around)]
        outermost_query = [node for node in nodes if isinstance(node, exp.Query)][-1]
        flow.trace_query(outermost_query, ctes, scope)


def _ancestors_below(node: exp.Expr, around: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the ancestors of a node, up to the child of `around`."""
    ancestor = node.parent
    while ancestor is not None and ancestor is not around:
        yield ancestor
        ancestor = ancestor.parent


def _complete_scope(flow: ColumnTracer, select: exp.Select) -> ColumnScope:
    """Return a SELECT's scope, completed by the right sides of SEMI and ANTI joins: the joins' ON can name them."""
    scope, ctes = flow.scopes[id(select)]
    complete_scope = dataclasses.replace(scope, sources=list(scope.sources))
    for join in select.find_all(exp.Join):
        if join.kind in ("SEMI", "ANTI") and join.parent_select is select:
            flow.add_source(join.this, complete_scope, ctes)
    return complete_scope
