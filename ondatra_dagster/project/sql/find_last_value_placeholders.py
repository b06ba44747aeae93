"""The placeholder {{ last_value }} in a query. The parser gets a literal in its place; Spark gets the last value.

No other word may be between double braces, because a query is SQL and not a template.
"""

import re
from collections.abc import Iterator, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ondatra_dagster.project.sql.tokenizer import QueryError

BRACES_PATTERN = re.compile(r"\{\{[^{}\n]*\}\}")
QUOTED_PATTERNS = (
    *(r"\b[rR]'[^']*'", r'\b[rR]"[^"]*"'),  # raw strings, in which a backslash is a normal character
    *(r"'(?:[^'\\]|\\.)*'", r'"(?:[^"\\]|\\.)*"', "`[^`]*`"),
    *(r"--[^\n]*", r"/\*.*?\*/"),
)
QUOTED_OR_BRACES = re.compile("|".join((*QUOTED_PATTERNS, f"(?P<braces>{BRACES_PATTERN.pattern})")), re.DOTALL)
LAST_VALUE_PATTERN = re.compile(r"\{\{\s*last_value\s*\}\}")


def replace_with_literals(text: str) -> str:
    """Return the text with a literal of the same length in place of everything in double braces.

    Quoted text and comments aren't changed: a text to be sent may contain {{ name }}.
    """
    return QUOTED_OR_BRACES.sub(lambda match: f"'{match['braces'][1:-1]}'" if match["braces"] else match[0], text)


def is_last_value(node: exp.Expr) -> bool:
    """Return whether a node of the tree is the literal that was put in place of {{ last_value }}."""
    return isinstance(node, exp.Literal) and bool(LAST_VALUE_PATTERN.fullmatch(f"{{{node.this}}}"))


def find_last_values(tokens: Sequence[Token], sql: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of every {{ last_value }}, end exclusive; raise QueryError for other words in braces."""
    for token in tokens:
        start, end = token.start, token.end + 1
        if token.token_type is TokenType.STRING and LAST_VALUE_PATTERN.search(token.text):
            raise QueryError(token.line, "{{ last_value }} is in quotes", "remove them: it is a literal")
        if token.token_type is not TokenType.STRING or not BRACES_PATTERN.fullmatch(sql, start, end):
            continue
        if not LAST_VALUE_PATTERN.fullmatch(sql, start, end):
            description = f"{sql[start:end]} means nothing in a query"
            raise QueryError(token.line, description, "write {{ last_value }}, or remove it")
        yield start, end
