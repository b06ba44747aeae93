"""A model of kind events: column definitions instead of a query, `page STRING NOT NULL, seconds INT`."""

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from ondatra_dagster.project.model import EventColumn
from ondatra_dagster.project.sql.event_types import event_type
from ondatra_dagster.project.sql.tokens import DIALECT, PARSER_FAULTS, QueryError

HOW = "write them as name TYPE [NOT NULL], between commas"


def read_event_columns(text: str) -> tuple[EventColumn, ...]:
    """The columns that the text defines; raises QueryError for what isn't a definition."""
    # on the text's own lines, so that an error's line is right
    try:
        tree = DIALECT.parse(f"CREATE TABLE events ({text}\n)")[0]
    except (ParseError, TokenError, *PARSER_FAULTS) as error:
        line = error.errors[0]["line"] if isinstance(error, ParseError) else 1
        raise QueryError(line or 1, "the column definitions can't be read", HOW) from error
    schema = tree.this if isinstance(tree, exp.Create) else None
    if not isinstance(schema, exp.Schema) or not schema.expressions:
        raise QueryError(1, "there are no column definitions", HOW)
    return tuple(_column(definition) for definition in schema.expressions)


def as_query(columns: tuple[EventColumn, ...]) -> str:
    """A query that gives the columns and no row: so the table is made as any other model's.

    Each column is on the line that defines it, so that what is wrong with it is told there.
    """
    return f"SELECT {', '.join(_empty(columns))} WHERE false"


def _empty(columns: tuple[EventColumn, ...]) -> Iterator[str]:
    before = 1
    for column in columns:
        breaks = "\n" * (column.line - before)
        yield f"{breaks}CAST(NULL AS {column.type}) AS `{column.name.replace('`', '``')}`"
        before = column.line


def _column(definition: exp.Expr) -> EventColumn:
    if not isinstance(definition, exp.ColumnDef) or definition.args.get("kind") is None:
        line = next((node.meta["line"] for node in definition.walk() if "line" in node.meta), 1)
        raise QueryError(line, f"{definition.name!r} is no column definition", HOW)
    line = definition.this.meta.get("line", 1)
    is_required = False
    for constraint in definition.args.get("constraints") or ():
        kind = constraint.kind
        if not isinstance(kind, exp.NotNullColumnConstraint | exp.CommentColumnConstraint):
            what = f"column {definition.name!r} can't have {constraint.sql(dialect='databricks')}"
            raise QueryError(line, what, "only NOT NULL may follow the type")
        if isinstance(kind, exp.NotNullColumnConstraint):
            is_required = not kind.args.get("allow_null")
    written = definition.args["kind"].sql(dialect="databricks")
    of = event_type(written, definition.name, line)
    return EventColumn(name=definition.name, type=written, of=of, is_required=is_required, line=line)
