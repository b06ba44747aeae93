"""The properties of a query that its text shows.

They are: deterministic, ordered, row by row, and whether rows equal to the last value are excluded.
"""

from collections.abc import Iterator, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ondatra_dagster.project.sql.column_tracing import JSON_FUNCTION_MARK
from ondatra_dagster.project.sql.find_last_value_placeholders import is_last_value
from ondatra_dagster.project.sql.tokenizer import find_parenthesis, is_word_at

# nodes that make the result for a row depend on other rows, or on the row's position
MULTI_ROW_NODES = (
    exp.AggFunc,
    exp.Any,  # any(x) is an aggregate
    exp.All,
    exp.AnonymousAggFunc,
    exp.Window,
    exp.Subquery,
    exp.Query,
    exp.Join,
    exp.Lateral,
    exp.Pivot,
    exp.TableSample,
    exp.Distinct,
)
# functions of a single row that the tree has under another name, so that sqlglot's grammar doesn't parse them
ROW_FUNCTIONS = frozenset({"json_object", "json_array"})
VALUE_WRAPPERS = (exp.Paren, exp.Cast, exp.TryCast, exp.Coalesce)
MULTI_ROW_CLAUSES = (
    *("group", "having", "qualify", "distinct", "limit", "offset", "sample", "windows", "with_"),
    *("cluster", "distribute", "laterals", "joins", "pivots", "match", "operation_modifiers"),
)


def is_row_by_row(tree: exp.Expr) -> bool:
    """Return whether each row of the only table gives its rows independently of others.

    Then only changed rows need to be computed.
    """
    if not isinstance(tree, exp.Select) or any(tree.args.get(clause) for clause in MULTI_ROW_CLAUSES):
        return False
    source = tree.args.get("from_")
    if source is None or not isinstance(source.this, exp.Table) or source.this.args.get("joins"):
        return False
    return not any(_needs_other_rows(node) for node in tree.walk() if node is not tree)


def _needs_other_rows(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):  # an unknown function may be an aggregate
        return node.name.casefold().removeprefix(JSON_FUNCTION_MARK) not in ROW_FUNCTIONS
    return isinstance(node, MULTI_ROW_NODES)


def is_ordered(tree: exp.Expr) -> bool:
    """Return whether the query orders its whole result."""
    return bool(tree.args.get("order"))


def excludes_last_value(tree: exp.Expr) -> bool:
    """Return whether the query reads only rows above {{ last_value }}, and no later rows that are equal to it."""
    return any(is_last_value(_unwrap_value(side)) for side in _lower_bounds(tree))


def _lower_bounds(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the values that another value must be greater than: x in `a > x`, `x < a` and `NOT a <= x`."""
    for node in tree.find_all(exp.GT, exp.LTE):
        if isinstance(node, exp.LTE) == _is_negated(node):
            yield node.expression
    for node in tree.find_all(exp.LT, exp.GTE):
        if isinstance(node, exp.GTE) == _is_negated(node):
            yield node.this


def _is_negated(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return isinstance(parent, exp.Not)


def _unwrap_value(node: exp.Expr) -> exp.Expr:
    """Return the innermost value, without the parentheses, casts and COALESCE around it."""
    while isinstance(node, VALUE_WRAPPERS):
        node = node.this
    return node


NONDETERMINISTIC_WORDS = frozenset(
    {"current_date", "current_timestamp", "current_time", "localtime", "current_user", "session_user"}
)
NONDETERMINISTIC_FUNCTIONS = NONDETERMINISTIC_WORDS | {
    *("rand", "randn", "random", "randstr", "uniform", "shuffle", "uuid"),
    *("now", "curdate", "localtimestamp", "current_timezone"),
    *("user", "current_catalog", "current_database", "current_schema", "version"),
    *("monotonically_increasing_id", "spark_partition_id", "input_file_name"),
    *("input_file_block_start", "input_file_block_length"),
    *("java_method", "reflect", "try_reflect"),  # these functions may call any method of Java
}
NONDETERMINISTIC_LITERALS = frozenset({"now", "today", "yesterday", "tomorrow"})  # as in timestamp 'now'
DATE_TYPE_WORDS = frozenset({"date", "timestamp", "timestamp_ltz", "timestamp_ntz"})


def is_deterministic(tokens: Sequence[Token]) -> bool:
    """Return whether the query's result doesn't depend on the clock, on random numbers, or on the user who runs it."""
    return not any(_is_nondeterministic(tokens, place) for place in range(len(tokens)))


def _is_nondeterministic(tokens: Sequence[Token], place: int) -> bool:
    token = tokens[place]
    word = token.text.casefold()
    if token.token_type is TokenType.IDENTIFIER:  # a name in backquotes is the name of a column or function
        return word in NONDETERMINISTIC_FUNCTIONS and is_word_at(tokens, place + 1, "(")
    if token.token_type is TokenType.STRING:
        follows_type = place > 0 and tokens[place - 1].text.casefold() in DATE_TYPE_WORDS
        return follows_type and word.strip() in NONDETERMINISTIC_LITERALS
    if token.token_type is TokenType.TABLE_SAMPLE:
        return not _is_repeatable_sample(tokens, place + 1)
    if word == "unix_timestamp":  # unix_timestamp with an argument is deterministic
        return is_word_at(tokens, place + 1, "(") and is_word_at(tokens, place + 2, ")")
    return word in NONDETERMINISTIC_WORDS or (word in NONDETERMINISTIC_FUNCTIONS and is_word_at(tokens, place + 1, "("))


def _is_repeatable_sample(tokens: Sequence[Token], place: int) -> bool:
    """Return whether the sample at `place` always has the same rows, as with (10 PERCENT) REPEATABLE (1)."""
    end = find_parenthesis(tokens, place)[1] if is_word_at(tokens, place, "(") else place
    return is_word_at(tokens, end + 1, "repeatable")
