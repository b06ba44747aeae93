"""Whether a query gives the same rows from the same inputs: one that may not always runs."""

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from ondatra_dagster.project.sql.tokens import parenthesis, says

UNSTEADY_WORDS = frozenset(
    {"current_date", "current_timestamp", "current_time", "localtime", "current_user", "session_user"}
)
UNSTEADY_CALLS = UNSTEADY_WORDS | {
    *("rand", "randn", "random", "randstr", "uniform", "shuffle", "uuid"),
    *("now", "curdate", "localtimestamp", "current_timezone"),
    *("user", "current_catalog", "current_database", "current_schema", "version"),
    *("monotonically_increasing_id", "spark_partition_id", "input_file_name"),
    *("input_file_block_start", "input_file_block_length"),
    *("java_method", "reflect", "try_reflect"),  # which may call anything
}
UNSTEADY_TEXTS = frozenset({"now", "today", "yesterday", "tomorrow"})  # timestamp 'now'
DATE_WORDS = frozenset({"date", "timestamp", "timestamp_ltz", "timestamp_ntz"})


def is_deterministic(tokens: Sequence[Token]) -> bool:
    """Whether nothing in the query asks for the clock, for chance, or for who runs it."""
    return not any(_is_unsteady(tokens, place) for place in range(len(tokens)))


def _is_unsteady(tokens: Sequence[Token], place: int) -> bool:
    token = tokens[place]
    word = token.text.casefold()
    if token.token_type is TokenType.IDENTIFIER:  # a name in backquotes: a column's, or a function's
        return word in UNSTEADY_CALLS and says(tokens, place + 1, "(")
    if token.token_type is TokenType.STRING:
        named = place > 0 and tokens[place - 1].text.casefold() in DATE_WORDS
        return named and word.strip() in UNSTEADY_TEXTS
    if token.token_type is TokenType.TABLE_SAMPLE:
        return not _repeats(tokens, place + 1)
    if word == "unix_timestamp":  # of an argument it is steady
        return says(tokens, place + 1, "(") and says(tokens, place + 2, ")")
    return word in UNSTEADY_WORDS or (word in UNSTEADY_CALLS and says(tokens, place + 1, "("))


def _repeats(tokens: Sequence[Token], place: int) -> bool:
    """Whether the sample that is described there is the same each time: (10 PERCENT) REPEATABLE (1)."""
    end = parenthesis(tokens, place)[1] if says(tokens, place, "(") else place
    return says(tokens, end + 1, "repeatable")
