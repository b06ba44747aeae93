"""The schema of a model of kind events: column definitions such as `page STRING NOT NULL`, and no query."""

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from ondatra_dagster.project.model import EventColumn, EventType
from ondatra_dagster.project.sql.tokenizer import PARSER_DIALECT, PARSER_ERRORS, QueryError

DEFINITION_REMEDY = "write them as name TYPE [NOT NULL], between commas"


def read_event_columns(text: str) -> tuple[EventColumn, ...]:
    """Return the columns that the text defines; raise QueryError if the text contains anything but definitions."""
    # keep the line breaks of the text, so that the line in an error is right
    try:
        tree = PARSER_DIALECT.parse(f"CREATE TABLE events ({text}\n)")[0]
    except (ParseError, TokenError, *PARSER_ERRORS) as error:
        line = error.errors[0]["line"] if isinstance(error, ParseError) else 1
        raise QueryError(line or 1, "the column definitions can't be read", DEFINITION_REMEDY) from error
    schema = tree.this if isinstance(tree, exp.Create) else None
    if not isinstance(schema, exp.Schema) or not schema.expressions:
        raise QueryError(1, "there are no column definitions", DEFINITION_REMEDY)
    return tuple(_read_column(definition) for definition in schema.expressions)


def empty_query(columns: tuple[EventColumn, ...]) -> str:
    """Return a query that has the columns and returns no rows, so that the table is created like any other model's.

    Each column is on the line of its definition, so that problems are reported with the right line.
    """
    return f"SELECT {', '.join(_null_columns(columns))} WHERE false"


def _null_columns(columns: tuple[EventColumn, ...]) -> Iterator[str]:
    last_line = 1
    for column in columns:
        line_feeds = "\n" * (column.line - last_line)
        yield f"{line_feeds}CAST(NULL AS {column.type}) AS `{column.name.replace('`', '``')}`"
        last_line = column.line


def _read_column(definition: exp.Expr) -> EventColumn:
    if not isinstance(definition, exp.ColumnDef) or definition.args.get("kind") is None:
        line = next((node.meta["line"] for node in definition.walk() if "line" in node.meta), 1)
        raise QueryError(line, f"{definition.name!r} is not a column definition", DEFINITION_REMEDY)
    line = definition.this.meta.get("line", 1)
    is_required = False
    for constraint in definition.args.get("constraints") or ():
        kind = constraint.kind
        if not isinstance(kind, exp.NotNullColumnConstraint | exp.CommentColumnConstraint):
            description = f"column {definition.name!r} can't have {constraint.sql(dialect='databricks')}"
            raise QueryError(line, description, "only NOT NULL may follow the type")
        if isinstance(kind, exp.NotNullColumnConstraint):
            is_required = not kind.args.get("allow_null")
    type_text = definition.args["kind"].sql(dialect="databricks")
    event_type = _convert_type(exp.DataType.build(type_text, dialect=PARSER_DIALECT), definition.name, line)
    return EventColumn(name=definition.name, type=type_text, event_type=event_type, is_required=is_required, line=line)


SqlType = exp.DataType.Type
PLAIN_TYPES = {
    SqlType.BOOLEAN: "boolean",
    SqlType.TINYINT: "tinyint",
    SqlType.SMALLINT: "smallint",
    SqlType.INT: "int",
    SqlType.BIGINT: "bigint",
    SqlType.FLOAT: "float",
    SqlType.DOUBLE: "double",
    SqlType.DECIMAL: "decimal",
    **dict.fromkeys((SqlType.TEXT, SqlType.CHAR, SqlType.VARCHAR, SqlType.NCHAR, SqlType.NVARCHAR), "string"),
    SqlType.DATE: "date",
    **dict.fromkeys((SqlType.TIMESTAMP, SqlType.TIMESTAMPTZ, SqlType.TIMESTAMPLTZ), "timestamp"),
    SqlType.TIMESTAMPNTZ: "timestamp_ntz",
    **dict.fromkeys((SqlType.BINARY, SqlType.VARBINARY), "binary"),
}
NESTED_TYPES = {SqlType.ARRAY: "array", SqlType.MAP: "map", SqlType.STRUCT: "struct"}
MAP_KEY_TYPES = frozenset(  # types that a JSON object's key, which is always a text, can be converted to
    {"string", "tinyint", "smallint", "int", "bigint", "decimal", "date", "timestamp", "timestamp_ntz"}
)
DEFAULT_DECIMAL = (10, 0)  # the precision and scale of DECIMAL without digits, as in Spark
MAX_DECIMAL_DIGITS = 38
TYPE_REMEDY = "the collector accepts strings, numbers, true and false, dates, times, binary, ARRAY, MAP and STRUCT"


def _convert_type(data_type: exp.DataType, name: str, line: int) -> EventType:
    if data_type.this in NESTED_TYPES:
        return _convert_nested(data_type, name, line)
    type_name = PLAIN_TYPES.get(data_type.this)
    if type_name is None:
        raise QueryError(line, f"column {name!r} can't be {data_type.sql(dialect='databricks')}", TYPE_REMEDY)
    if type_name != "decimal":
        return EventType(name=type_name)
    precision, scale = _decimal_digits(data_type)
    if not 0 <= scale <= precision <= MAX_DECIMAL_DIGITS:
        description = f"column {name!r} can't be {data_type.sql(dialect='databricks')}"
        raise QueryError(
            line, description, f"a DECIMAL has up to {MAX_DECIMAL_DIGITS} digits, and at most as many decimal places"
        )
    return EventType(name=type_name, precision=precision, scale=scale)


def _decimal_digits(data_type: exp.DataType) -> tuple[int, int]:
    digits = [int(part.name) for part in data_type.expressions]
    return (*digits, *DEFAULT_DECIMAL[len(digits) :])[:2] if digits else DEFAULT_DECIMAL  # type: ignore[return-value]


def _convert_nested(data_type: exp.DataType, name: str, line: int) -> EventType:
    word = NESTED_TYPES[data_type.this]
    if not data_type.expressions:
        description = f"column {name!r} is {data_type.sql(dialect='databricks')}, which is incomplete"
        raise QueryError(line, description, "write ARRAY<TYPE>, MAP<TYPE, TYPE>, STRUCT<name: TYPE, …>")
    if word == "struct":
        fields = tuple(_struct_fields(data_type, name, line))
        return EventType(
            name=word, fields=tuple(field for field, _ in fields), type_arguments=tuple(part for _, part in fields)
        )
    parts = tuple(_convert_type(part, name, line) for part in data_type.expressions)
    if len(parts) != (2 if word == "map" else 1):
        description = f"column {name!r} is {data_type.sql(dialect='databricks')}, which is incomplete"
        raise QueryError(line, description, "write ARRAY<TYPE>, MAP<TYPE, TYPE>")
    if word == "map" and parts[0].name not in MAP_KEY_TYPES:
        description = f"column {name!r} is a map whose keys are {parts[0]}"
        raise QueryError(line, description, "keys are strings in JSON: write MAP<STRING, …>")
    return EventType(name=word, type_arguments=parts)


def _struct_fields(data_type: exp.DataType, name: str, line: int) -> Iterator[tuple[str, EventType]]:
    """Yield the fields of a struct with their types."""
    for field in data_type.expressions:
        kind = field.args.get("kind") if isinstance(field, exp.ColumnDef) else None
        if not isinstance(kind, exp.DataType):
            description = f"column {name!r} is {data_type.sql(dialect='databricks')}, which is incomplete"
            raise QueryError(line, description, "write STRUCT<name: TYPE, …>")
        if field.args.get("constraints"):
            description = f"column {name!r} has a field {field.name!r} with more than a type"
            raise QueryError(line, description, "only the column itself may be NOT NULL")
        yield field.name, _convert_type(kind, name, line)
