"""What a query's form says of its result, before anybody runs it."""

from collections.abc import Iterator

from sqlglot import exp

from ondatra_dagster.project.sql.column_flow import MARK
from ondatra_dagster.project.sql.templates import is_last_value

# all that makes a row's result depend on other rows, or on where it stands
BEYOND_A_ROW = (
    exp.AggFunc,
    exp.Any,  # any(x), which is an aggregate
    exp.All,
    exp.AnonymousAggFunc,
    exp.Window,
    exp.Subquery,
    exp.Query,
    exp.Join,
    exp.Lateral,
    exp.Pivot,
    exp.TableSample,
    exp.Distinct,
)
OF_A_ROW = frozenset({"json_object", "json_array"})  # functions that sqlglot is kept from knowing
AROUND_A_VALUE = (exp.Paren, exp.Cast, exp.TryCast, exp.Coalesce)
CLAUSES = (
    *("group", "having", "qualify", "distinct", "limit", "offset", "sample", "windows", "with_"),
    *("cluster", "distribute", "laterals", "joins", "pivots", "match", "operation_modifiers"),
)


def is_row_by_row(tree: exp.Expr) -> bool:
    """Whether each row of one table gives rows by itself, so that its changes alone tell what changes."""
    if not isinstance(tree, exp.Select) or any(tree.args.get(clause) for clause in CLAUSES):
        return False
    source = tree.args.get("from_")
    if source is None or not isinstance(source.this, exp.Table) or source.this.args.get("joins"):
        return False
    return not any(_looks_beyond(node) for node in tree.walk() if node is not tree)


def _looks_beyond(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):  # a function that isn't known may be an aggregate
        return node.name.casefold().removeprefix(MARK) not in OF_A_ROW
    return isinstance(node, BEYOND_A_ROW)


def is_ordered(tree: exp.Expr) -> bool:
    """Whether the whole result has an order of its own."""
    return bool(tree.args.get("order"))


def leaves_equals_out(tree: exp.Expr) -> bool:
    """Whether the query asks for what is above {{ last_value }}, and so not for rows that are equal to it."""
    return any(is_last_value(_bare(side)) for side in _lower_bounds(tree))


def _lower_bounds(tree: exp.Expr) -> Iterator[exp.Expr]:
    """What something has to be greater than: x of `a > x`, `x < a` and `NOT a <= x`."""
    for node in tree.find_all(exp.GT, exp.LTE):
        if isinstance(node, exp.LTE) == _is_denied(node):
            yield node.expression
    for node in tree.find_all(exp.LT, exp.GTE):
        if isinstance(node, exp.GTE) == _is_denied(node):
            yield node.this


def _is_denied(node: exp.Expr) -> bool:
    around = node.parent
    while isinstance(around, exp.Paren):
        around = around.parent
    return isinstance(around, exp.Not)


def _bare(node: exp.Expr) -> exp.Expr:
    """A value without parentheses, casts and COALESCE around it."""
    while isinstance(node, AROUND_A_VALUE):
        node = node.this
    return node
