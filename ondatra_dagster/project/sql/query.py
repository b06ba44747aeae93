"""A model's query, read once: its tree, and what of its text others need.

The tree is for looking only: what Spark gets is the user's own text. Which names in it are inputs is found in
references.py.
"""

import dataclasses
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token

from ondatra_dagster.project.sql import templates
from ondatra_dagster.project.sql.cast_types import bare_decimals
from ondatra_dagster.project.sql.determinism import is_deterministic
from ondatra_dagster.project.sql.dialect import Dialect, plain_calls, read_dialect
from ondatra_dagster.project.sql.table_clauses import TableClauses, parseable, read_clauses
from ondatra_dagster.project.sql.tokens import (
    DIALECT,
    PARSER_FAULTS,
    QueryError,
    comments_between,
    read_statement,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    sql: str  # from its first word to its last: no comments around it, no semicolon
    tree: exp.Expr
    clauses: TableClauses
    words: tuple[str, ...]  # what it says, without comments and white space
    comments: tuple[tuple[int, str], ...]  # what stands between its words and below it, with the line
    is_deterministic: bool
    dialect: Dialect  # what Spark says otherwise
    bare_decimals: tuple[tuple[str, int], ...]  # casts to a decimal without its digits, with the line
    last_values: tuple[tuple[int, int], ...]  # where {{ last_value }} stands


def parse_query(text: str) -> Query:
    """The one query that `text` is; raises QueryError when it is none, several or not readable.

    `text` begins with the query's first word.
    """
    tokens = read_statement(templates.as_literals(text))  # of the same length: offsets are those of `text`
    sql = text[: tokens[-1].end + 1]
    clauses = read_clauses(tokens)
    tree = _tree(plain_calls(list(parseable(tokens, clauses))), sql)
    return Query(
        sql=sql,
        tree=tree,
        clauses=clauses,
        words=tuple(sql[token.start : token.end + 1] for token in tokens),
        comments=tuple(comments_between(text, tokens)),
        is_deterministic=is_deterministic(tokens),
        dialect=read_dialect(tokens, tree, sql),
        bare_decimals=tuple(bare_decimals(tokens)),
        last_values=tuple(templates.places(tokens, sql)),
    )


def _tree(tokens: Sequence[Token], sql: str) -> exp.Expr:
    try:
        tree = DIALECT.parser().parse(list(tokens), sql)[0]
    except RecursionError as error:
        raise QueryError(1, "the query is nested too deeply", "make two models of it") from error
    except PARSER_FAULTS as error:
        raise QueryError(tokens[0].line, "the SQL can't be parsed", "look for words out of place") from error
    except ParseError as error:
        first = error.errors[0]
        if "pipe syntax operator" in first["description"]:
            what = f"|> {first['highlight'].upper()} can't be read here"
            raise QueryError(first["line"] or 1, what, "say it with |> SELECT or a plain SELECT") from error
        near = f" at {first['highlight']!r}" if first["highlight"] else ""
        # "Required keyword: 'this' missing for <class …>" speaks of sqlglot, not of the query
        why = "something is missing" if "<class" in first["description"] else first["description"]
        what = f"the SQL can't be parsed: {why}{near}"
        raise QueryError(first["line"] or 1, what, "correct it there") from error
    if not isinstance(tree, exp.Query | exp.Values):
        raise QueryError(tokens[0].line, f"{tokens[0].text.upper()} is not a query", "write one SELECT")
    return tree
