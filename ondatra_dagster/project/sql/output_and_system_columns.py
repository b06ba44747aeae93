"""The columns of a query, as far as its text shows them, and the columns that ondatra and Delta add to a table."""

from typing import NamedTuple

from sqlglot import exp

RESERVED_PREFIX = "__ondatra_"
ROWID_COLUMN = "__ondatra_rowid"  # a Delta identity column: a row keeps its number until it is deleted
CONTENT_HASH_COLUMN = "_content_hash"  # of a tracked group
PARTITION_COLUMN = "__ondatra_partition"  # a digest of a partition's key, which names its folder
REASON_COLUMN = "__ondatra_reason"  # why a row is invalid


# the columns that Delta's change feed adds to a row
CHANGE_TYPE_COLUMN, COMMIT_VERSION_COLUMN = "_change_type", "_commit_version"
FEED_COLUMNS = frozenset({CHANGE_TYPE_COLUMN, COMMIT_VERSION_COLUMN, "_commit_timestamp"})
RESERVED_NAMES = FEED_COLUMNS | {CONTENT_HASH_COLUMN}


def is_hidden_column(name: str) -> bool:
    """Return whether a column is hidden from the models' readers and from pushed rows."""
    return name == CONTENT_HASH_COLUMN or name.startswith(RESERVED_PREFIX)


class OutputColumnName(NamedTuple):
    name: str
    line: int  # within the query


class OutputColumnNames(NamedTuple):
    columns: tuple[OutputColumnName, ...]
    is_complete: bool  # no star, and no expression that Spark names

    def find_column(self, name: str) -> str | None:
        """Return the column's name in the spelling of the query."""
        return next((column.name for column in self.columns if column.name.casefold() == name.casefold()), None)


def read_output_columns(tree: exp.Expr) -> OutputColumnNames:
    """Return the columns of a query's first SELECT. A whole UNION has their names."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    if not isinstance(tree, exp.Select) or tree.args.get("kind"):
        return OutputColumnNames((), is_complete=False)
    names_by_projection = [(projection, find_certain_names(projection)) for projection in tree.expressions]
    is_complete = bool(names_by_projection) and all(names for _, names in names_by_projection)
    columns = (
        OutputColumnName(name.name, _find_line(name, expression))
        for expression, names in names_by_projection
        for name in names
    )
    return OutputColumnNames(tuple(columns), is_complete)


def is_reserved_name(name: str) -> bool:
    folded_name = name.casefold()
    return folded_name in RESERVED_NAMES or folded_name.startswith(RESERVED_PREFIX)


def _find_line(identifier: exp.Identifier, projection: exp.Expr) -> int:
    """Return the identifier's line. `t.null` and `t.true` have no line themselves, but their table has one."""
    lines = (node.meta["line"] for node in (identifier, *projection.walk()) if "line" in node.meta)
    return next(lines, 1)


def find_certain_names(projection: exp.Expr) -> list[exp.Identifier]:
    """Return the names that a projection certainly has in Spark: of a column, of its field, or after AS."""
    if isinstance(projection, exp.Aliases):
        nodes = projection.aliases
    elif isinstance(projection, exp.Alias):
        nodes = [projection.args["alias"]]
    elif isinstance(projection, exp.Column):
        nodes = [projection.this]
    elif _is_field(projection):
        nodes = [projection.expression]
    else:
        nodes = []
    return [identifier for identifier in nodes if isinstance(identifier, exp.Identifier)]


def _is_field(node: exp.Expr) -> bool:
    """Return whether it is a.b.c.d.e: the field of a column. Spark names the field of an expression otherwise."""
    while isinstance(node, exp.Dot):
        node = node.this
    return isinstance(node, exp.Column)
