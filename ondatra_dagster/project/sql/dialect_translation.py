"""The translation of DuckDB's and SQLite's words to Spark's: the JSON builders, and the names of types.

Only the words of these calls and casts are replaced. All text between them, including the line breaks, stays the same.
Spark knows `x::TYPE` itself, but it doesn't know all type names of these dialects.
"""

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ondatra_dagster.project.model import TextEdit
from ondatra_dagster.project.sql.column_tracing import (
    JSON_FUNCTION_MARK,
    JSON_FUNCTIONS,
    is_json_function,
    json_value_check,
)
from ondatra_dagster.project.sql.json_function_translation import JsonCall, translate_json_call
from ondatra_dagster.project.sql.tokenizer import QueryError, find_parenthesis, is_word_at, replace_token

SPARK_TYPES = {
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


class DialectTranslation(NamedTuple):
    """The edits that translate a query to Spark's SQL, and problems for words that have no translation."""

    edits: tuple[TextEdit, ...]  # in the order of the query's text, without overlaps
    problems: tuple[QueryError, ...]


def tokens_for_parser(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens for sqlglot, with the JSON builders as plain functions: sqlglot has special grammar for them.

    Types that sqlglot doesn't know become text types. This is safe because sqlglot's tree is only read, and never
    turned back into SQL.
    """
    types = {place for head in find_type_starts(tokens) for place in find_named_types(tokens, head, SPARK_TYPES)}
    return [
        replace_token(token, TokenType.VAR, JSON_FUNCTION_MARK + token.text)
        if _is_json_function_call(tokens, place)
        else replace_token(token, TokenType.TEXT, token.text)
        if place in types and token.token_type is TokenType.VAR
        else token
        for place, token in enumerate(tokens)
    ]


def translate_dialect(tokens: Sequence[Token], tree: exp.Expr, sql: str) -> DialectTranslation:
    """Return the edits for all places of a query where Spark needs other words."""
    edits = list(_type_edits(tokens))
    problems: list[QueryError] = []
    for call in _find_json_calls(tokens, tree, sql):
        try:
            edits += translate_json_call(call)
        except QueryError as error:
            problems.append(error)
    return DialectTranslation(tuple(sorted(edits)), tuple(problems))


def apply_edits(sql: str, edits: Sequence[TextEdit]) -> str:
    """Return the query's text with the edits applied."""
    pieces: list[str] = []
    position = 0
    for edit in edits:
        pieces += [sql[position : edit.start], edit.text]
        position = edit.end
    return "".join((*pieces, sql[position:]))


def _is_json_function_call(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a JSON builder is called at `place` by its plain name, without a qualifier."""
    return (
        tokens[place].token_type is TokenType.VAR
        and tokens[place].text.casefold() in JSON_FUNCTIONS
        and place + 1 < len(tokens)
        and tokens[place + 1].token_type is TokenType.L_PAREN
        and not (place and tokens[place - 1].token_type is TokenType.DOT)
    )


def _find_json_calls(tokens: Sequence[Token], tree: exp.Expr, sql: str) -> Iterator[JsonCall]:
    places = [place for place in range(len(tokens)) if _is_json_function_call(tokens, place)]
    if not places:
        return
    nodes = {node.meta.get("start"): node for node in tree.find_all(exp.Anonymous) if is_json_function(node)}
    is_json = json_value_check(tree)
    for place in places:
        node = nodes.get(tokens[place].start)
        if node is not None:
            yield JsonCall(node=node, tokens=tokens, name_index=place, sql=sql, is_json=is_json)


def _type_edits(tokens: Sequence[Token]) -> Iterator[TextEdit]:
    """Yield the edits that replace types by Spark's, in x::TYPE and CAST(x AS TYPE).

    They replace the types' names, and TYPE[] by ARRAY<TYPE>.
    """
    for head in find_type_starts(tokens):
        for place in find_named_types(tokens, head, SPARK_TYPES):
            token = tokens[place]
            yield TextEdit(token.start, token.end + 1, SPARK_TYPES[token.text.casefold()])
        yield from _array_edits(tokens, head)


def _array_edits(tokens: Sequence[Token], head: int) -> Iterator[TextEdit]:
    end = find_type_end(tokens, head)
    while is_word_at(tokens, end, "[") and is_word_at(tokens, end + 1, "]"):
        yield TextEdit(tokens[head].start, tokens[head].start, "ARRAY<")
        yield TextEdit(tokens[end].start, tokens[end].end + 1, ">")
        yield TextEdit(tokens[end + 1].start, tokens[end + 1].end + 1, "")
        end += 2


CAST_FUNCTIONS = frozenset({"cast", "try_cast"})
NESTED_TYPES = frozenset({"array", "map", "struct"})
# tokens that can follow a type's name, but not a field's name
TYPE_FOLLOWERS = frozenset({">", ",", "[", "not", "comment"})
DECIMAL_NAMES = frozenset({"decimal", "dec", "numeric"})


def find_bare_decimals(tokens: Sequence[Token]) -> Iterator[tuple[str, int]]:
    """Yield the decimal types without digits, as the query spells them, with their lines."""
    for head in find_type_starts(tokens):
        for place in find_named_types(tokens, head, DECIMAL_NAMES):
            yield tokens[place].text, tokens[place].line


def find_type_starts(tokens: Sequence[Token]) -> Iterator[int]:
    """Yield the positions of the tokens with which the type in a cast begins."""
    for place, token in enumerate(tokens):
        if token.token_type is TokenType.DCOLON:
            yield place + 1
        elif (
            token.token_type is TokenType.VAR
            and token.text.casefold() in CAST_FUNCTIONS
            and is_word_at(tokens, place + 1, "(")
        ):
            inner_tokens, close = find_parenthesis(tokens, place + 1)
            yield close - _count_tokens_after_as(inner_tokens)


def _count_tokens_after_as(inside: Sequence[Token]) -> int:
    """Return the number of tokens after the last AS between the parentheses of a CAST."""
    for count, token in enumerate(reversed(inside)):
        if token.token_type is TokenType.ALIAS:
            return count
    return 0


def find_named_types(tokens: Sequence[Token], head: int, names: Container[str]) -> Iterator[int]:
    """Yield the positions in a type where one of the `names` is used without digits in parentheses."""
    if _is_nested(tokens, head):
        places = range(head + 2, find_type_end(tokens, head))
        yield from (
            place
            for place in places
            if _is_type_name(tokens, place, names)
            and any(is_word_at(tokens, place + 1, word) for word in TYPE_FOLLOWERS)
        )
    elif _is_type_name(tokens, head, names) and not is_word_at(tokens, head + 1, "("):
        yield head


def _is_nested(tokens: Sequence[Token], head: int) -> bool:
    """Return whether a nested type such as ARRAY<…> begins at `head`, and not a comparison with <."""
    return is_word_at(tokens, head + 1, "<") and tokens[head].text.casefold() in NESTED_TYPES


def _is_type_name(tokens: Sequence[Token], place: int, names: Container[str]) -> bool:
    if place >= len(tokens) or tokens[place].token_type is TokenType.IDENTIFIER:
        return False
    return tokens[place].text.casefold() in names


def find_type_end(tokens: Sequence[Token], head: int) -> int:
    """Return the position after the type that begins at `head`, before a [] that may follow."""
    if is_word_at(tokens, head + 1, "("):
        return find_parenthesis(tokens, head + 1)[1] + 1
    if not _is_nested(tokens, head):
        return head + 1
    depth = 0
    for place in range(head + 1, len(tokens)):
        depth += {"<": 1, ">": -1}.get(tokens[place].text, 0)
        if depth == 0:
            return place + 1
    return len(tokens)
