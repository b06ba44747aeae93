"""The template {{ last_value }} in a query: the parser sees a literal in its place, Spark gets the value.

No other word may be between double braces: a query is SQL, not a template.
"""

import re
from collections.abc import Iterator, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ondatra_dagster.project.sql.tokenizer import QueryError

BRACES_PATTERN = re.compile(r"\{\{[^{}\n]*\}\}")
QUOTED_PATTERNS = (
    *(r"\b[rR]'[^']*'", r'\b[rR]"[^"]*"'),  # where a backslash is one
    *(r"'(?:[^'\\]|\\.)*'", r'"(?:[^"\\]|\\.)*"', "`[^`]*`"),
    *(r"--[^\n]*", r"/\*.*?\*/"),
)
QUOTED_OR_BRACES = re.compile("|".join((*QUOTED_PATTERNS, f"(?P<braces>{BRACES_PATTERN.pattern})")), re.DOTALL)
LAST_VALUE_PATTERN = re.compile(r"\{\{\s*last_value\s*\}\}")


def replace_with_literals(text: str) -> str:
    """The text with a literal of the same length wherever something stands in double braces.

    What stands in quotes or in a comment is the user's own: a text to be sent may well say {{ name }}.
    """
    return QUOTED_OR_BRACES.sub(lambda found: f"'{found['braces'][1:-1]}'" if found["braces"] else found[0], text)


def is_last_value(node: exp.Expr) -> bool:
    """Whether a part of the tree is what stands for {{ last_value }}."""
    return isinstance(node, exp.Literal) and bool(LAST_VALUE_PATTERN.fullmatch(f"{{{node.this}}}"))


def find_last_values(tokens: Sequence[Token], sql: str) -> Iterator[tuple[int, int]]:
    """Where {{ last_value }} stands, end exclusive; raises QueryError for other words in braces."""
    for token in tokens:
        start, end = token.start, token.end + 1
        if token.token_type is TokenType.STRING and LAST_VALUE_PATTERN.search(token.text):
            raise QueryError(token.line, "{{ last_value }} stands in quotes", "remove them: it is a literal")
        if token.token_type is not TokenType.STRING or not BRACES_PATTERN.fullmatch(sql, start, end):
            continue
        if not LAST_VALUE_PATTERN.fullmatch(sql, start, end):
            what = f"{sql[start:end]} means nothing in a query"
            raise QueryError(token.line, what, "write {{ last_value }}, or remove it")
        yield start, end
