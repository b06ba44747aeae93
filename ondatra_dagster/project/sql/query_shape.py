"""What a query's form says of its result, before anybody runs it."""

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
    above = [node.expression for node in tree.find_all(exp.GT)] + [
        node.this for node in tree.find_all(exp.LT)
    ]
    return any(is_last_value(side) for side in above)
