"""The type of an event's field as a value, from how its definition spells it: what JSON can hold, no more."""

from collections.abc import Iterator

from sqlglot import exp

from ondatra_dagster.project.model import EventType
from ondatra_dagster.project.sql.tokens import DIALECT, QueryError

T = exp.DataType.Type
PLAIN = {
    T.BOOLEAN: "boolean",
    T.TINYINT: "tinyint",
    T.SMALLINT: "smallint",
    T.INT: "int",
    T.BIGINT: "bigint",
    T.FLOAT: "float",
    T.DOUBLE: "double",
    T.DECIMAL: "decimal",
    T.TEXT: "string",
    T.CHAR: "string",
    T.VARCHAR: "string",
    T.NCHAR: "string",
    T.NVARCHAR: "string",
    T.DATE: "date",
    T.TIMESTAMP: "timestamp",
    T.TIMESTAMPTZ: "timestamp",
    T.TIMESTAMPLTZ: "timestamp",
    T.TIMESTAMPNTZ: "timestamp_ntz",
    T.BINARY: "binary",
    T.VARBINARY: "binary",
}
NESTED = {T.ARRAY: "array", T.MAP: "map", T.STRUCT: "struct"}
KEYS = frozenset(  # what the text of a JSON key can stand for
    {"string", "tinyint", "smallint", "int", "bigint", "decimal", "date", "timestamp", "timestamp_ntz"}
)
DECIMAL = (10, 0)  # where no digits are given, as Spark has it
WIDEST = 38
HOW = "the collector takes texts, numbers, true and false, dates, times, binary, ARRAY, MAP and STRUCT"


def event_type(written: str, name: str, line: int) -> EventType:
    """The type that a column's definition spells; raises QueryError for one that an event can't have."""
    return _type(exp.DataType.build(written, dialect=DIALECT), name, line)


def _type(of: exp.DataType, name: str, line: int) -> EventType:
    if of.this in NESTED:
        return _nested(of, name, line)
    plain = PLAIN.get(of.this)
    if plain is None:
        raise QueryError(line, f"column {name!r} can't be {of.sql(dialect='databricks')}", HOW)
    if plain != "decimal":
        return EventType(name=plain)
    precision, scale = _digits(of)
    if not 0 <= scale <= precision <= WIDEST:
        what = f"column {name!r} can't be {of.sql(dialect='databricks')}"
        raise QueryError(line, what, f"a DECIMAL has up to {WIDEST} digits, as many of them behind the point")
    return EventType(name=plain, precision=precision, scale=scale)


def _digits(of: exp.DataType) -> tuple[int, int]:
    given = [int(part.name) for part in of.expressions]
    return (*given, *DECIMAL[len(given) :])[:2] if given else DECIMAL  # type: ignore[return-value]


def _nested(of: exp.DataType, name: str, line: int) -> EventType:
    word = NESTED[of.this]
    if not of.expressions:
        what = f"column {name!r} is {of.sql(dialect='databricks')}, which says too little"
        raise QueryError(line, what, "write ARRAY<TYPE>, MAP<TYPE, TYPE>, STRUCT<name: TYPE, …>")
    if word == "struct":
        fields = tuple(_fields(of, name, line))
        return EventType(
            name=word,
            fields=tuple(field for field, _ in fields),
            parts=tuple(part for _, part in fields),
        )
    parts = tuple(_type(part, name, line) for part in of.expressions)
    if len(parts) != (2 if word == "map" else 1):
        what = f"column {name!r} is {of.sql(dialect='databricks')}, which says too little"
        raise QueryError(line, what, "write ARRAY<TYPE>, MAP<TYPE, TYPE>")
    if word == "map" and parts[0].name not in KEYS:
        what = f"column {name!r} is a map whose keys are {parts[0]}"
        raise QueryError(line, what, "keys are texts in JSON: write MAP<STRING, …>")
    return EventType(name=word, parts=parts)


def _fields(of: exp.DataType, name: str, line: int) -> Iterator[tuple[str, EventType]]:
    """The fields of a struct with their types."""
    for field in of.expressions:
        kind = field.args.get("kind") if isinstance(field, exp.ColumnDef) else None
        if not isinstance(kind, exp.DataType):
            what = f"column {name!r} is {of.sql(dialect='databricks')}, which says too little"
            raise QueryError(line, what, "write STRUCT<name: TYPE, …>")
        if field.args.get("constraints"):
            what = f"column {name!r} has a field {field.name!r} with more than a type"
            raise QueryError(line, what, "only the column itself may be NOT NULL")
        yield field.name, _type(kind, name, line)
