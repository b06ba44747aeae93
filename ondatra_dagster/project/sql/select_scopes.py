"""The scope of every SELECT in a query: what its columns can mean.

A SELECT whose scope isn't surely known has none here.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from sqlglot import exp

from ondatra_dagster.project.sql.column_flow import Flow, RelationOf
from ondatra_dagster.project.sql.relations import Relation, Scope

SEES_WHAT_IS_GIVEN = ("having", "qualify", "order", "sort", "cluster", "distribute")


class SelectScope(NamedTuple):
    """A SELECT of a query, and what its columns can mean."""

    select: exp.Select
    scope: Scope
    given: Relation  # what it gives: ORDER BY and HAVING see that, too


def read_scopes(tree: exp.Expr, relation_of: RelationOf) -> Iterator[SelectScope]:
    """Yield every SELECT of a query, also those in its conditions."""
    flow = Flow(relation_of, keeps_scopes=True)
    flow.query(tree, {}, None)
    for select in tree.find_all(exp.Select):  # those around it come first
        around = select.parent_select
        if around is not None and id(select) not in flow.scopes and id(around) in flow.scopes:
            _read_condition(flow, select, around)
        if id(select) in flow.given:
            yield SelectScope(select, _whole_scope(flow, select), flow.given[id(select)])


def _read_condition(flow: Flow, select: exp.Select, around: exp.Select) -> None:
    """Read the query in a condition of a SELECT that this one is a part of, unless more is in sight there."""
    above = [select, *_up_to(select, around)]
    if above[-1].arg_key not in SEES_WHAT_IS_GIVEN:
        scope, ctes = flow.scopes[id(around)]
        outermost = [node for node in above if isinstance(node, exp.Query)][-1]
        flow.query(outermost, ctes, scope)


def _up_to(node: exp.Expr, around: exp.Expr) -> Iterator[exp.Expr]:
    """Yield what is around a node, up to what is directly in `around`."""
    above = node.parent
    while above is not None and above is not around:
        yield above
        above = above.parent


def _whole_scope(flow: Flow, select: exp.Select) -> Scope:
    """Return a SELECT's scope, with the right sides of SEMI and ANTI joins: their ON can name them."""
    scope, ctes = flow.scopes[id(select)]
    whole = dataclasses.replace(scope, sources=list(scope.sources))
    for join in select.find_all(exp.Join):
        if join.kind in ("SEMI", "ANTI") and join.parent_select is select:
            flow.add(join.this, whole, ctes)
    return whole
