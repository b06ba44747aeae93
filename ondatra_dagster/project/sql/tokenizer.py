"""The tokens of exactly one statement, without the hints for Spark's optimizer, and the comments between its words."""

import itertools
import logging
from collections.abc import Iterator, Sequence

from sqlglot.dialects.databricks import Databricks
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

PARSER_DIALECT = Databricks()  # sqlglot's Databricks dialect, a superset of Spark's SQL
# hide sqlglot's warnings: ondatra reports them as problems in its own words
logging.getLogger("sqlglot").addHandler(logging.NullHandler())

# the errors that sqlglot's parser raises for unexpected words, in addition to its own error classes
PARSER_ERRORS = (ArithmeticError, AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
TOKENS_NEEDING_MORE = frozenset({TokenType.COMMA, TokenType.SELECT})
# tokens that can't follow those in TOKENS_NEEDING_MORE
TOKENS_ENDING_LIST = frozenset({TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM})


class QueryError(ValueError):
    """The error for a query that can't be used: the line, the reason, and what to do."""

    def __init__(self, line: int, description: str, remedy: str) -> None:
        self.line = line  # the line within the query, from 1
        self.description = description
        self.remedy = remedy
        super().__init__(f"{description}; {remedy}")


def tokenize_statement(text: str) -> list[Token]:
    """Return the tokens of the only statement in `text`.

    Raise QueryError if there is none or more than one, or if a quote isn't closed.
    """
    try:
        tokens = PARSER_DIALECT.tokenize(text)
    except TokenError as error:
        remedy = "close the quote or comment that is still open"
        raise QueryError(_find_unreadable_line(text), "the query can't be read to its end", remedy) from error
    # sqlglot would read /*+ broadcast(b) */ as a table, and a hint changes no row
    tokens = [token for token in tokens if token.token_type is not TokenType.HINT]
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise QueryError(1, "there is no query", "write a SELECT below the header")
    _refuse_second_statement(tokens)
    _refuse_incomplete_lists(tokens)
    return tokens


def _find_unreadable_line(text: str) -> int:
    """Return the first line that can't be tokenized, because sqlglot's error names no line."""
    lines = text.splitlines(keepends=True)
    for line_count in range(len(lines) - 1, 0, -1):
        try:
            PARSER_DIALECT.tokenize("".join(lines[:line_count]))
        except TokenError:
            continue
        return line_count + 1
    return 1


def _refuse_second_statement(tokens: Sequence[Token]) -> None:
    for token, next_token in itertools.pairwise(tokens):
        if token.token_type is TokenType.SEMICOLON and next_token.token_type is not TokenType.SEMICOLON:
            raise QueryError(next_token.line, "a second statement begins here", "keep one SELECT in a file")


def _refuse_incomplete_lists(tokens: Sequence[Token]) -> None:
    """Raise QueryError if nothing follows a comma or SELECT. Spark accepts none of these, but sqlglot accepts some."""
    for token, next_token in itertools.pairwise((*tokens, None)):
        if (
            token
            and token.token_type in TOKENS_NEEDING_MORE
            and (not next_token or next_token.token_type in TOKENS_ENDING_LIST)
        ):
            raise QueryError(token.line, f"nothing follows {token.text!r}", "write what is missing there")


def find_comments(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Yield the gaps between words, and after the last word, that contain line comments, with their lines."""
    starts = [token.start for token in tokens[1:]] + [len(text)]
    for token, start in zip(tokens, starts, strict=True):
        gap_text = text[token.end + 1 : start]
        if "--" in gap_text:
            line = text.count("\n", 0, token.end + 1) + 1
            _refuse_long_comment(gap_text, line)
            yield line, gap_text


def _refuse_long_comment(gap: str, line: int) -> None:
    """Raise QueryError for a line comment that ends in a backslash: only Spark continues it on the next line."""
    for number, comment in enumerate(gap.split("\n")[:-1], start=line):
        if "--" in comment and comment.endswith("\\"):
            description = "a comment ends in \\, and Spark continues it on the next line"
            raise QueryError(number, description, "end it with another character")


def find_parenthesis(tokens: Sequence[Token], place: int) -> tuple[Sequence[Token], int]:
    """Return the tokens in the parenthesis that opens at `place`, and the position where it closes."""
    depth = 0
    for index in range(place, len(tokens)):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(tokens[index].token_type, 0)
        if depth == 0:
            return tokens[place + 1 : index], index
    raise QueryError(tokens[min(place, len(tokens) - 1)].line, "a parenthesis is never closed", "close it")


def is_word_at(tokens: Sequence[Token], place: int, word: str) -> bool:
    """Return whether the token at `place` is the word."""
    return 0 <= place < len(tokens) and tokens[place].text.casefold() == word


def replace_token(token: Token, type_: TokenType, text: str) -> Token:
    return Token(type_, text, token.line, token.col, token.start, token.end, token.comments)
