"""The parser of a model's query. It returns the tree, and the positions in the text that other modules need.

The tree is only read, because Spark gets the user's own text. input_references.py finds the names of inputs.
"""

import dataclasses
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token

from ondatra_dagster.project.sql import find_last_value_placeholders
from ondatra_dagster.project.sql.dialect_translation import (
    DialectTranslation,
    find_bare_decimals,
    tokens_for_parser,
    translate_dialect,
)
from ondatra_dagster.project.sql.query_properties import is_deterministic
from ondatra_dagster.project.sql.table_options_and_samples import TableClauses, read_clauses, remove_unparsable_clauses
from ondatra_dagster.project.sql.tokenizer import (
    PARSER_DIALECT,
    PARSER_ERRORS,
    QueryError,
    find_comments,
    tokenize_statement,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuery:
    sql: str  # the text from the first word to the last: without comments around it, without a semicolon
    tree: exp.Expr
    clauses: TableClauses
    words: tuple[str, ...]  # the words of the query, without comments and white space
    # the comments between the query's words and after the last word, with their lines
    comments: tuple[tuple[int, str], ...]
    is_deterministic: bool
    dialect: DialectTranslation  # the edits that translate other dialects to Spark's words
    bare_decimals: tuple[tuple[str, int], ...]  # the decimal types without digits in casts, with their lines
    last_values: tuple[tuple[int, int], ...]  # the positions of {{ last_value }}


def parse_query(text: str) -> ParsedQuery:
    """Return the only query in `text`. Raise QueryError if there is none or more than one, or if it can't be parsed.

    `text` begins with the query's first word.
    """
    # the literals are as long as the placeholders, so offsets in the tree are offsets in `text`
    tokens = tokenize_statement(find_last_value_placeholders.replace_with_literals(text))
    sql = text[: tokens[-1].end + 1]
    clauses = read_clauses(tokens)
    tree = _parse_tree(tokens_for_parser(list(remove_unparsable_clauses(tokens, clauses))), sql)
    return ParsedQuery(
        sql=sql,
        tree=tree,
        clauses=clauses,
        words=tuple(sql[token.start : token.end + 1] for token in tokens),
        comments=tuple(find_comments(text, tokens)),
        is_deterministic=is_deterministic(tokens),
        dialect=translate_dialect(tokens, tree, sql),
        bare_decimals=tuple(find_bare_decimals(tokens)),
        last_values=tuple(find_last_value_placeholders.find_last_values(tokens, sql)),
    )


def _parse_tree(tokens: Sequence[Token], sql: str) -> exp.Expr:
    try:
        tree = PARSER_DIALECT.parser().parse(list(tokens), sql)[0]
    except RecursionError as error:
        raise QueryError(1, "the query is nested too deeply", "split it into two models") from error
    except PARSER_ERRORS as error:
        raise QueryError(tokens[0].line, "the SQL can't be parsed", "look for misplaced words") from error
    except ParseError as error:
        details = error.errors[0]
        if "pipe syntax operator" in details["description"]:
            description = f"|> {details['highlight'].upper()} can't be read here"
            raise QueryError(details["line"] or 1, description, "write |> SELECT or a plain SELECT") from error
        location = f" at {details['highlight']!r}" if details["highlight"] else ""
        # a message such as "Required keyword: 'this' missing for <class …>" is about sqlglot, not about the query
        reason = "something is missing" if "<class" in details["description"] else details["description"]
        description = f"the SQL can't be parsed: {reason}{location}"
        raise QueryError(details["line"] or 1, description, "correct it there") from error
    if not isinstance(tree, exp.Query | exp.Values):
        raise QueryError(tokens[0].line, f"{tokens[0].text.upper()} is not a query", "write one SELECT")
    return tree
