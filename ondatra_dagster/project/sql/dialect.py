"""What people bring from DuckDB and SQLite, said in Spark's words: the JSON builders, and names of types.

Only the words of these calls and casts are replaced: what stands between them stays byte for byte, and so do
the lines. `x::TYPE` Spark has itself; it is the names of types that it may not know.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ondatra_dagster.project.model import Edit
from ondatra_dagster.project.sql.cast_types import named_types, type_end, type_heads
from ondatra_dagster.project.sql.column_flow import BUILDERS, MARK, JsonValues, is_builder
from ondatra_dagster.project.sql.json_builders import Call, builder_edits
from ondatra_dagster.project.sql.tokens import QueryError, says

TYPES = {
    **dict.fromkeys(("varchar", "char", "bpchar", "nvarchar", "text", "uuid", "json"), "STRING"),
    **dict.fromkeys(("blob", "bytea", "bytes", "varbinary"), "BINARY"),
    **dict.fromkeys(("bool", "logical"), "BOOLEAN"),
    **dict.fromkeys(("int1",), "TINYINT"),
    **dict.fromkeys(("int2", "int16", "utinyint"), "SMALLINT"),
    **dict.fromkeys(("int4", "int32", "signed", "usmallint"), "INT"),
    **dict.fromkeys(("int8", "int64", "uinteger"), "BIGINT"),
    **dict.fromkeys(("hugeint", "int128"), "DECIMAL(38, 0)"),
    **dict.fromkeys(("ubigint",), "DECIMAL(20, 0)"),
    **dict.fromkeys(("float4",), "FLOAT"),
    **dict.fromkeys(("float8",), "DOUBLE"),
    **dict.fromkeys(("datetime", "timestamptz"), "TIMESTAMP"),
}


class Dialect(NamedTuple):
    """What has to be said otherwise in a query, and what can't be."""

    edits: tuple[Edit, ...]  # in the order of the text; none overlaps another
    problems: tuple[QueryError, ...]


def plain_calls(tokens: Sequence[Token]) -> list[Token]:
    """The tokens for sqlglot, which has a grammar of its own for json_object: as plain functions.

    Types that it doesn't know are texts to it: what it makes of a query is only looked at.
    """
    types = {place for head in type_heads(tokens) for place in named_types(tokens, head, TYPES)}
    return [
        _as(token, TokenType.VAR, MARK + token.text)
        if _begins_call(tokens, place)
        else _as(token, TokenType.TEXT, token.text)
        if place in types and token.token_type is TokenType.VAR
        else token
        for place, token in enumerate(tokens)
    ]


def _as(token: Token, type_: TokenType, text: str) -> Token:
    return Token(type_, text, token.line, token.col, token.start, token.end, token.comments)


def read_dialect(tokens: Sequence[Token], tree: exp.Expr, sql: str) -> Dialect:
    """Every place of a query that Spark needs other words for."""
    edits = list(_type_edits(tokens))
    problems: list[QueryError] = []
    for call in _calls(tokens, tree, sql):
        try:
            edits += builder_edits(call)
        except QueryError as error:
            problems.append(error)
    return Dialect(tuple(sorted(edits)), tuple(problems))


def edited(sql: str, edits: Sequence[Edit]) -> str:
    """The text with the edits in place."""
    pieces: list[str] = []
    position = 0
    for edit in edits:
        pieces += [sql[position : edit.start], edit.text]
        position = edit.end
    return "".join((*pieces, sql[position:]))


def _begins_call(tokens: Sequence[Token], place: int) -> bool:
    """Whether a builder is called there, by its plain name."""
    return (
        tokens[place].token_type is TokenType.VAR
        and tokens[place].text.casefold() in BUILDERS
        and place + 1 < len(tokens)
        and tokens[place + 1].token_type is TokenType.L_PAREN
        and not (place and tokens[place - 1].token_type is TokenType.DOT)
    )


def _calls(tokens: Sequence[Token], tree: exp.Expr, sql: str) -> Iterator[Call]:
    places = [place for place in range(len(tokens)) if _begins_call(tokens, place)]
    if not places:
        return
    nodes = {node.meta.get("start"): node for node in tree.find_all(exp.Anonymous) if is_builder(node)}
    is_json = JsonValues(tree)
    for place in places:
        node = nodes.get(tokens[place].start)
        if node is not None:
            yield Call(node=node, tokens=tokens, place=place, sql=sql, is_json=is_json)


def _type_edits(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Spark's names for the types that x::TYPE and CAST(x AS TYPE) name, and TYPE[] as an array of it."""
    for head in type_heads(tokens):
        for place in named_types(tokens, head, TYPES):
            token = tokens[place]
            yield Edit(token.start, token.end + 1, TYPES[token.text.casefold()])
        yield from _array_edits(tokens, head)


def _array_edits(tokens: Sequence[Token], head: int) -> Iterator[Edit]:
    end = type_end(tokens, head)
    while says(tokens, end, "[") and says(tokens, end + 1, "]"):
        yield Edit(tokens[head].start, tokens[head].start, "ARRAY<")
        yield Edit(tokens[end].start, tokens[end].end + 1, ">")
        yield Edit(tokens[end + 1].start, tokens[end + 1].end + 1, "")
        end += 2
