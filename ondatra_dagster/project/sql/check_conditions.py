"""The conditions of `@constraint`, `@warning` and `@audit`, in Spark SQL, parsed without a JVM.

This module refuses only texts that certainly aren't conditions. Spark checks the others when the model runs.
warehouse/row_checks.py evaluates the conditions.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Sequence

from sqlglot import exp
from sqlglot.errors import ParseError

from ondatra_dagster.project.header_value_parsers import HeaderValueError
from ondatra_dagster.project.model import CheckCondition, CheckType, RowCheck
from ondatra_dagster.project.sql.dialect_translation import apply_edits, tokens_for_parser, translate_dialect
from ondatra_dagster.project.sql.query_properties import NONDETERMINISTIC_WORDS
from ondatra_dagster.project.sql.tokenizer import PARSER_DIALECT, PARSER_ERRORS, QueryError, tokenize_statement

SELECT_PREFIX = "SELECT "
CONDITION_REMEDY = "write one condition, such as amount >= 0"
NON_BOOLEAN_NODES = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.DPipe, exp.Concat),
    *(exp.Literal, exp.Interval, exp.Star),
)
MAX_NAME_LENGTH = 60
DIGEST_LENGTH = 6
COMPARISONS = {">=": "ge", "<=": "le", ">": "gt", "<": "lt", "=": "eq", "==": "eq", "<>": "ne", "!=": "ne"}
ARITHMETIC = {"+": "plus", "-": "minus", "*": "times", "/": "over", "%": "mod"}
OPERATORS = {**COMPARISONS, **ARITHMETIC, "<=>": "is", "!": "not"}  # the words for operators in a check's name


def read_condition(value: str) -> CheckCondition:
    """Return the condition in `value`; raise HeaderValueError if the text certainly isn't a condition."""
    statement = SELECT_PREFIX + value
    try:
        tokens = tokenize_statement(statement)
        tree = PARSER_DIALECT.parser().parse(tokens_for_parser(tokens), statement)[0]
    except (QueryError, ParseError, RecursionError, *PARSER_ERRORS) as error:
        raise HeaderValueError(f"{value!r} can't be parsed", CONDITION_REMEDY) from error
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 or _has_other_clauses(tree):
        raise HeaderValueError(f"{value!r} is not one condition", CONDITION_REMEDY)
    _refuse_non_row_condition(value, tree)
    condition_tokens = tokens[1:]
    dialect = translate_dialect(tokens, tree, statement)
    for problem in dialect.problems:
        raise HeaderValueError(problem.description, problem.remedy)
    return CheckCondition(
        condition=statement[condition_tokens[0].start : condition_tokens[-1].end + 1],
        sql=apply_edits(statement[: condition_tokens[-1].end + 1], dialect.edits)[len(SELECT_PREFIX) :],
        words=tuple(statement[token.start : token.end + 1] for token in condition_tokens),
        columns=tuple(dict.fromkeys(_named_columns(tree))),
    )


def build_row_checks(conditions: Sequence[tuple[CheckType, CheckCondition, int]]) -> Iterator[RowCheck]:
    """Yield a model's checks with unique names. Each item of `conditions` has a check type, a condition and a line."""
    names = [_check_name(word, condition) for word, condition, _ in conditions]
    for (word, condition, line), name in zip(conditions, names, strict=True):
        unique_name = name if names.count(name) == 1 else f"{name}_{_condition_digest(condition)}"
        yield RowCheck(check_type=word, name=unique_name, line=line, **dataclasses.asdict(condition))


def _has_other_clauses(tree: exp.Select) -> bool:
    """Return whether the parsed condition has more than a SELECT list, such as FROM, WHERE or DISTINCT."""
    return any(clause for clause_name, clause in tree.args.items() if clause_name != "expressions")


def _refuse_non_row_condition(value: str, tree: exp.Select) -> None:
    """Raise HeaderValueError for an expression that can't check a single row, such as an aggregate."""
    condition = tree.expressions[0].unnest()
    if isinstance(condition, exp.Alias | exp.Aliases):
        raise HeaderValueError(f"{value!r} has a name", "leave out AS: a check is named after its condition")
    if sum(1 for _ in tree.find_all(exp.Query)) > 1:
        raise HeaderValueError(f"{value!r} asks a table", "join it in the query, and check what that gives")
    if tree.find(exp.AggFunc, exp.Window):
        raise HeaderValueError(f"{value!r} is not about one row", "aggregate in the query, and check that")
    if isinstance(condition, NON_BOOLEAN_NODES):
        raise HeaderValueError(f"{value!r} is neither true nor false", CONDITION_REMEDY)


def _named_columns(tree: exp.Expr) -> Iterator[str]:
    """Yield the columns that the condition names. For a field such as address.city, yield the column address."""
    for column in tree.find_all(exp.Column):
        first_part = column.parts[0]
        is_quoted = isinstance(first_part, exp.Identifier) and first_part.quoted
        # Spark has functions without parentheses, which look like columns, and sqlglot doesn't know all of them
        if is_quoted or first_part.name.casefold() not in NONDETERMINISTIC_WORDS:
            yield first_part.name


def _check_name(word: CheckType, condition: CheckCondition) -> str:
    """Return a name such as constraint_amount_ge_0. Dagster allows only letters, digits and _ in a check's name."""
    name_text = " ".join(OPERATORS.get(part, part) for part in condition.words)
    name_text = "_".join(re.findall(r"[A-Za-z0-9]+", name_text)).casefold()
    if not name_text or len(name_text) > MAX_NAME_LENGTH:
        name_text = "_".join(filter(None, (name_text[:MAX_NAME_LENGTH].rstrip("_"), _condition_digest(condition))))
    return f"{word}_{name_text}"


def _condition_digest(condition: CheckCondition) -> str:
    return hashlib.sha256(" ".join(condition.words).encode()).hexdigest()[:DIGEST_LENGTH]
