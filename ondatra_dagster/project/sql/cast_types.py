"""Where the casts of a query say a type, also within others: x::TYPE, CAST. What types mean: dialect."""

from collections.abc import Container, Iterator, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from ondatra_dagster.project.sql.tokens import parenthesis, says

CASTS = frozenset({"cast", "try_cast"})
NESTED = frozenset({"array", "map", "struct"})
BEHIND_A_TYPE = frozenset({">", ",", "[", "not", "comment"})  # within ARRAY<…>; else it is a field's name
DECIMALS = frozenset({"decimal", "dec", "numeric"})


def bare_decimals(tokens: Sequence[Token]) -> Iterator[tuple[str, int]]:
    """Decimals of which nobody says how many digits they have, as they are written, with their lines."""
    for head in type_heads(tokens):
        for place in named_types(tokens, head, DECIMALS):
            yield tokens[place].text, tokens[place].line


def type_heads(tokens: Sequence[Token]) -> Iterator[int]:
    """The places where a cast says a type."""
    for place, token in enumerate(tokens):
        if token.token_type is TokenType.DCOLON:
            yield place + 1
        elif (
            token.token_type is TokenType.VAR
            and token.text.casefold() in CASTS
            and says(tokens, place + 1, "(")
        ):
            inside, close = parenthesis(tokens, place + 1)
            yield close - _words_behind_as(inside)


def _words_behind_as(inside: Sequence[Token]) -> int:
    """How many tokens stand behind the last AS in a CAST."""
    for count, token in enumerate(reversed(inside)):
        if token.token_type is TokenType.ALIAS:
            return count
    return 0


def named_types(tokens: Sequence[Token], head: int, names: Container[str]) -> Iterator[int]:
    """The places of the type's words that are one of these names, with no digits behind it."""
    if _is_nested(tokens, head):
        inside = range(head + 2, type_end(tokens, head))
        yield from (
            place
            for place in inside
            if _is_one(tokens, place, names) and any(says(tokens, place + 1, word) for word in BEHIND_A_TYPE)
        )
    elif _is_one(tokens, head, names) and not says(tokens, head + 1, "("):
        yield head


def _is_nested(tokens: Sequence[Token], head: int) -> bool:
    """Whether ARRAY<…> begins there, and no comparison."""
    return says(tokens, head + 1, "<") and tokens[head].text.casefold() in NESTED


def _is_one(tokens: Sequence[Token], place: int, names: Container[str]) -> bool:
    if place >= len(tokens) or tokens[place].token_type is TokenType.IDENTIFIER:
        return False
    return tokens[place].text.casefold() in names


def type_end(tokens: Sequence[Token], head: int) -> int:
    """The place behind the type, without its []."""
    if says(tokens, head + 1, "("):
        return parenthesis(tokens, head + 1)[1] + 1
    if not _is_nested(tokens, head):
        return head + 1
    depth = 0
    for place in range(head + 1, len(tokens)):
        depth += {"<": 1, ">": -1}.get(tokens[place].text, 0)
        if depth == 0:
            return place + 1
    return len(tokens)
