"""The columns of a query that its text shows, and the columns that ondatra and Delta add to a table."""

from typing import NamedTuple

from sqlglot import exp

RESERVED_PREFIX = "__ondatra_"
ROWID_COLUMN = "__ondatra_rowid"  # a Delta identity column: a row keeps its number until it is deleted
CONTENT_HASH_COLUMN = "_content_hash"  # the hash of a tracked group's content
PARTITION_COLUMN = "__ondatra_partition"  # a digest of a partition's key; it names the partition's folder
REASON_COLUMN = "__ondatra_reason"  # why a row is invalid


# the columns that Delta's change feed adds to each row
CHANGE_TYPE_COLUMN, COMMIT_VERSION_COLUMN = "_change_type", "_commit_version"
FEED_COLUMNS = frozenset({CHANGE_TYPE_COLUMN, COMMIT_VERSION_COLUMN, "_commit_timestamp"})
RESERVED_NAMES = FEED_COLUMNS | {CONTENT_HASH_COLUMN}


def is_hidden_column(name: str) -> bool:
    """Return whether a column is hidden from the readers of models and from pushed rows."""
    return name == CONTENT_HASH_COLUMN or name.startswith(RESERVED_PREFIX)


class OutputColumnName(NamedTuple):
    name: str
    line: int  # the line within the query


class OutputColumnNames(NamedTuple):
    columns: tuple[OutputColumnName, ...]
    is_complete: bool  # False: the SELECT has a star, or an expression that Spark names

    def find_column(self, name: str) -> str | None:
        """Return the column with this name in the spelling of the query; None if there is none."""
        return next((column.name for column in self.columns if column.name.casefold() == name.casefold()), None)


def read_output_columns(tree: exp.Expr) -> OutputColumnNames:
    """Return the columns of a query's first SELECT, because these also name the columns of a UNION."""
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
    """Return the identifier's line.

    sqlglot gives no line to the column in `t.null` and `t.true`, so take the table's.
    """
    lines = (node.meta["line"] for node in (identifier, *projection.walk()) if "line" in node.meta)
    return next(lines, 1)


def find_certain_names(projection: exp.Expr) -> list[exp.Identifier]:
    """Return the names that an expression in the SELECT list certainly has in Spark.

    These are the name of a column, of a column's field, or the name after AS.
    """
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
    """Return whether the node is a field of a column, such as a.b.c.d.e, and not of an expression.

    Spark names the field of an expression differently.
    """
    while isinstance(node, exp.Dot):
        node = node.this
    return isinstance(node, exp.Column)
