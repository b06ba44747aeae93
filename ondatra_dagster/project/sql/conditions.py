"""What `@constraint`, `@warning` and `@audit` say of a row: conditions in Spark SQL, read without a JVM.

What surely is none is refused here; whether Spark takes the rest, it says when the model runs. How they are
judged is in warehouse/row_checks.py.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp
from sqlglot.errors import ParseError

from ondatra_dagster.project.header_values import BadHeaderError
from ondatra_dagster.project.model import CheckWord, RowCheck
from ondatra_dagster.project.sql.determinism import UNSTEADY_WORDS
from ondatra_dagster.project.sql.dialect import edited, plain_calls, read_dialect
from ondatra_dagster.project.sql.tokens import DIALECT, PARSER_FAULTS, QueryError, read_statement

SELECT = "SELECT "
WRITE_ONE = "write one condition, such as amount >= 0"
NO_CONDITION = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.DPipe, exp.Concat),
    *(exp.Literal, exp.Interval, exp.Star),
)
NAME_LENGTH = 60
DIGEST_LENGTH = 6
COMPARISONS = {">=": "ge", "<=": "le", ">": "gt", "<": "lt", "=": "eq", "==": "eq", "<>": "ne", "!=": "ne"}
ARITHMETIC = {"+": "plus", "-": "minus", "*": "times", "/": "over", "%": "mod"}
OPERATORS = {**COMPARISONS, **ARITHMETIC, "<=>": "is", "!": "not"}  # as names say them


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A Spark SQL boolean over the columns of one row."""

    text: str  # the user's own, without a comment behind it
    sql: str  # the same in Spark's words
    words: tuple[str, ...]  # what it says, without white space
    columns: tuple[str, ...]  # that it names, each once


def read_condition(value: str) -> Condition:
    """The condition that `value` is; raises BadHeaderError when it surely is none."""
    statement = SELECT + value
    try:
        tokens = read_statement(statement)
        tree = DIALECT.parser().parse(plain_calls(tokens), statement)[0]
    except (QueryError, ParseError, RecursionError, *PARSER_FAULTS) as error:
        raise BadHeaderError(f"{value!r} can't be parsed", WRITE_ONE) from error
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 or _says_more(tree):
        raise BadHeaderError(f"{value!r} is not one condition", WRITE_ONE)
    _refuse(value, tree)
    said = tokens[1:]
    dialect = read_dialect(tokens, tree, statement)
    for problem in dialect.problems:
        raise BadHeaderError(problem.what, problem.remedy)
    return Condition(
        text=statement[said[0].start : said[-1].end + 1],
        sql=edited(statement[: said[-1].end + 1], dialect.edits)[len(SELECT) :],
        words=tuple(statement[token.start : token.end + 1] for token in said),
        columns=tuple(dict.fromkeys(_columns(tree))),
    )


def row_checks(written: Sequence[tuple[CheckWord, Condition, int]]) -> Iterator[RowCheck]:
    """A model's checks: each a word, a condition and a line; their names tell them apart."""
    names = [_name(word, condition) for word, condition, _ in written]
    for (word, condition, line), name in zip(written, names, strict=True):
        yield RowCheck(
            word=word,
            name=name if names.count(name) == 1 else f"{name}_{_digest(condition)}",
            condition=condition.text,
            sql=condition.sql,
            words=condition.words,
            columns=condition.columns,
            line=line,
        )


def _says_more(tree: exp.Select) -> bool:
    """Whether anything but its one condition was said: FROM, WHERE, DISTINCT."""
    return any(said for part, said in tree.args.items() if part != "expressions")


def _refuse(value: str, tree: exp.Select) -> None:
    """Complain of what can't judge a row by itself."""
    condition = tree.expressions[0].unnest()
    if isinstance(condition, exp.Alias | exp.Aliases):
        raise BadHeaderError(f"{value!r} has a name", "leave out AS: a check is named after its condition")
    if sum(1 for _ in tree.find_all(exp.Query)) > 1:
        raise BadHeaderError(f"{value!r} asks a table", "join it in the query, and check what that gives")
    if tree.find(exp.AggFunc, exp.Window):
        raise BadHeaderError(f"{value!r} is not about one row", "aggregate in the query, and check that")
    if isinstance(condition, NO_CONDITION):
        raise BadHeaderError(f"{value!r} is neither true nor false", WRITE_ONE)


def _columns(tree: exp.Expr) -> Iterator[str]:
    """The columns that it names: of address.city that is address."""
    for column in tree.find_all(exp.Column):
        first = column.parts[0]
        is_quoted = isinstance(first, exp.Identifier) and first.quoted
        # some functions are written without parentheses, and sqlglot doesn't know all of them
        if is_quoted or first.name.casefold() not in UNSTEADY_WORDS:
            yield first.name


def _name(word: CheckWord, condition: Condition) -> str:
    """constraint_amount_ge_0: Dagster takes letters, digits and _ for a check's name."""
    said = "_".join(_plain(OPERATORS.get(part, part) for part in condition.words)).casefold()
    if not said or len(said) > NAME_LENGTH:
        said = "_".join(filter(None, (said[:NAME_LENGTH].rstrip("_"), _digest(condition))))
    return f"{word}_{said}"


def _plain(parts: Iterable[str]) -> Iterator[str]:
    for part in parts:
        yield from filter(None, re.split(r"[^A-Za-z0-9]+", part))


def _digest(condition: Condition) -> str:
    return hashlib.sha256(" ".join(condition.words).encode()).hexdigest()[:DIGEST_LENGTH]
