"""The clauses around a table's name that must be known before the name is replaced.

These are WITH (…), TABLESAMPLE (…) and TABLE a.b. sqlglot doesn't know WITH (…), TABLE a.b and MAX RECURSION LEVEL. So
this module reads them from the tokens and rewrites the tokens for sqlglot. Every clause is stored by the offset of the
name that it belongs to.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

from ondatra_dagster.project.sql.tokenizer import QueryError, find_parenthesis, is_word_at, replace_token

TOKENS_BEFORE_QUERY = frozenset(
    {TokenType.L_PAREN, TokenType.R_PAREN, TokenType.ALL, TokenType.DISTINCT}
    | {TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT}
)


class FileOptionsClause(NamedTuple):
    """A clause such as WITH ('header' = 'true') after a file's name."""

    end: int
    values: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableClauses:
    options: Mapping[int, FileOptionsClause]  # by the end of the file's name
    sample_ends: Mapping[int, int]  # the end of TABLESAMPLE (…), by the end of the text before this clause
    table_queries: frozenset[int]  # the starts of the names in TABLE a.b, which can't have an alias


def read_clauses(tokens: Sequence[Token]) -> TableClauses:
    """Return the clauses of a statement that this module knows."""
    return TableClauses(
        options=dict(_find_file_options(tokens)),
        sample_ends=dict(_find_sample_ends(tokens)),
        table_queries=frozenset(
            tokens[place + 1].start for place in range(len(tokens) - 1) if _is_table_query_start(tokens, place)
        ),
    )


def remove_unparsable_clauses(tokens: Sequence[Token], clauses: TableClauses) -> Iterator[Token]:
    """Yield the tokens without file options and recursion limits, and with FROM a.b instead of TABLE a.b."""
    options_end = -1
    last_end = -1
    limits = {place + word for place in _find_recursion_limits(tokens) for word in range(4)}
    for place, (token, next_token) in enumerate(zip(tokens, (*tokens[1:], None), strict=True)):
        if place in limits:
            continue
        if last_end in clauses.options:
            options_end = clauses.options[last_end].end
        last_end = token.end + 1
        if token.end < options_end:
            continue
        is_table_query = next_token is not None and next_token.start in clauses.table_queries
        yield replace_token(token, TokenType.FROM, token.text) if is_table_query else token


def _find_recursion_limits(tokens: Sequence[Token]) -> Iterator[int]:
    """Yield the positions where a clause such as MAX RECURSION LEVEL 5 begins."""
    if any(token.token_type is TokenType.RECURSIVE for token in tokens):
        for place in range(len(tokens) - 3):
            words = (token.text.casefold() for token in tokens[place : place + 3])
            if tuple(words) == ("max", "recursion", "level"):
                yield place


def _is_table_query_start(tokens: Sequence[Token], place: int) -> bool:
    if tokens[place].token_type is not TokenType.TABLE:
        return False
    if place == 0:
        return True
    type_before = tokens[place - 1].token_type
    is_argument = type_before is TokenType.L_PAREN and place > 1 and tokens[place - 2].token_type is TokenType.VAR
    # TABLE a.b as an argument, as in f(TABLE a.b), isn't a query
    return type_before in TOKENS_BEFORE_QUERY and not is_argument


def _find_file_options(tokens: Sequence[Token]) -> Iterator[tuple[int, FileOptionsClause]]:
    """Yield every WITH (…) after a qualified name, with the position where the name ends."""
    for place in range(3, len(tokens) - 1):
        if (
            tokens[place].token_type is TokenType.WITH
            and tokens[place + 1].token_type is TokenType.L_PAREN
            and tokens[place - 2].token_type is TokenType.DOT
        ):
            option_tokens, close = find_parenthesis(tokens, place + 1)
            yield (
                tokens[place - 1].end + 1,
                FileOptionsClause(tokens[close].end + 1, tuple(_option_pairs(option_tokens))),
            )


def _option_pairs(tokens: Sequence[Token]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of options such as 'header' = 'true' or sep ';'.

    The equals sign may be missing, and a name may have dots.
    """
    pair: list[Token] = []
    for token in (*tokens, None):
        if token is not None and token.token_type is not TokenType.COMMA:
            pair.append(token)
            continue
        texts = [part.text for part in pair if part.token_type is not TokenType.EQ]
        if len(texts) < 2:
            line = (pair or tokens)[0].line if tokens else 1
            raise QueryError(line, "these options can't be read", "write WITH ('name' = 'value', …)")
        yield "".join(texts[:-1]), texts[-1]
        pair = []


def _find_sample_ends(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield where the text before every TABLESAMPLE (…) [REPEATABLE (…)] ends, and where this clause ends."""
    for place in range(1, len(tokens) - 1):
        if tokens[place].token_type is TokenType.TABLE_SAMPLE:
            _, close = find_parenthesis(tokens, place + 1)
            if is_word_at(tokens, close + 1, "repeatable"):
                _, close = find_parenthesis(tokens, close + 2)
            yield tokens[place - 1].end + 1, tokens[close].end + 1
