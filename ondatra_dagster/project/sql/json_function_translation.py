"""The translation of json_object, json_array and json_group_array to Spark's functions, whose result is a text.

Nulls are kept. A builder's text within another builder is nested as JSON, also through a subquery's column, a CASE or
COALESCE. The value of `x::JSON` is nested as JSON too. Any other text becomes a JSON string.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ondatra_dagster.project.model import TextEdit
from ondatra_dagster.project.sql.tokenizer import QueryError, find_parenthesis, is_word_at

# by default, to_json truncates a time to milliseconds, and drops fields that are null
TIMESTAMP_FORMAT = "yyyy-MM-dd''T''HH:mm:ss.SSSSSS"
TO_JSON_OPTIONS = (
    f"map('ignoreNullFields', 'false', 'timestampFormat', '{TIMESTAMP_FORMAT}XXX',"
    f" 'timestampNTZFormat', '{TIMESTAMP_FORMAT}')"
)
# removes the outer brackets: Spark writes a plain value as JSON only within an array or object
STRIP_BRACKETS = "'(?s)^.(.*).$', 1)"
PLAIN_TEXT = re.compile(r"'([^'\"\\\x00-\x1f]*)'")
NESTING_DEPTHS = {
    **dict.fromkeys((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE), 1),
    **dict.fromkeys((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE), -1),
}
WINDOW_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
NON_VALUE_NODES = (
    *(exp.Star, exp.Distinct, exp.Order, exp.Limit, exp.Kwarg, exp.Alias, exp.PropertyEQ),
    *(exp.IgnoreNulls, exp.RespectNulls, exp.Select),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JsonCall:
    """A call of a JSON builder: its tokens and its node in the tree."""

    node: exp.Anonymous
    tokens: Sequence[Token]  # the tokens of the whole query
    name_index: int  # the position of the builder's name in `tokens`
    sql: str
    is_json: Callable[[exp.Expr], bool]  # returns whether a value is the text of a builder

    @property
    def name(self) -> str:
        return self.tokens[self.name_index].text.casefold()

    @property
    def opening_index(self) -> int:
        return self.name_index + 1

    @property
    def closing_index(self) -> int:
        return find_parenthesis(self.tokens, self.opening_index)[1]

    def replace_token(self, place: int, text: str) -> TextEdit:
        """Return the edit that replaces a token by a text, and keeps the line breaks in the token."""
        token = self.tokens[place]
        lines = self.sql.count("\n", token.start, token.end + 1)
        return TextEdit(token.start, token.end + 1, text + "\n" * lines)

    def call_error(self, description: str, remedy: str) -> QueryError:
        return QueryError(self.tokens[self.name_index].line, f"{self.name}() {description}", remedy)


@dataclasses.dataclass(frozen=True, slots=True)
class TextWrap:
    """The texts to add before and after an argument."""

    before: str
    after: str
    replaced_token: int | None = None  # the position of the argument's token, if the argument itself is replaced
    replacement: str = ""


def translate_json_call(call: JsonCall) -> list[TextEdit]:
    """Return the edits that translate the call to Spark's words; raise QueryError for arguments it can't have."""
    return list(TRANSLATORS[call.name](call))


def _translate_object(call: JsonCall) -> Iterator[TextEdit]:
    example = "write json_object('name', value, 'other', value)"
    values = call.node.expressions
    _refuse_odd_values(call, values, example)
    if len(values) % 2:
        raise call.call_error("takes pairs of a name and a value, and one of them is incomplete", example)
    for name in values[::2]:
        if isinstance(name, exp.Null) or (isinstance(name, exp.Literal) and not name.is_string):
            raise call.call_error(f"has the name {name.sql()}, which is not a string", f"write '{name.sql()}'")
    names, contents = _literal_arguments(call)[::2], values[1::2]
    is_plain = [name is not None and not call.is_json(value) for name, value in zip(names, contents, strict=True)]
    if values and all(is_plain):
        yield call.replace_token(call.name_index, "to_json")
        yield call.replace_token(call.opening_index, "(named_struct(")
        yield call.replace_token(call.closing_index, f"), {TO_JSON_OPTIONS})")
        return
    wraps, separators = _wrap_members(call, names, contents, is_plain)
    yield from _concatenate(call, "{", separators, wraps, "}")


def _wrap_members(
    call: JsonCall, names: Sequence[int | None], contents: Sequence[exp.Expr], is_plain: Sequence[bool]
) -> tuple[list[TextWrap], list[str | None]]:
    """Return the texts around each name and value, and the separators between them.

    Plain members in a row share one to_json.
    """
    wraps: list[TextWrap] = []
    separators: list[str | None] = []
    for place, (name, value) in enumerate(zip(names, contents, strict=True)):
        continues_last = is_plain[place] and is_plain[max(place - 1, 0) : place] == [True]
        continues_next = is_plain[place] and is_plain[place + 1 : place + 2] == [True]
        if is_plain[place]:
            wraps += _wrap_plain_member(is_first=not continues_last, is_last=not continues_next)
        else:
            wraps += [_wrap_name(call, name), _wrap_value(call, value)]
        separators += [None if is_plain[place] else ":", None if continues_next else ","]
    return wraps, separators


def _wrap_plain_member(*, is_first: bool, is_last: bool) -> tuple[TextWrap, TextWrap]:
    """Return the texts around the name and the value of a plain member.

    One to_json writes all plain members in a row, so only the first and last ones open and close it.
    """
    name = TextWrap("regexp_extract(to_json(named_struct(" if is_first else "", "")
    return name, TextWrap("", f"), {TO_JSON_OPTIONS}), {STRIP_BRACKETS}" if is_last else "")


def _translate_array(call: JsonCall) -> Iterator[TextEdit]:
    values = call.node.expressions
    _refuse_odd_values(call, values, "write json_array(value, other)")
    wraps = [_wrap_value(call, value) for value in values]
    yield from _concatenate(call, "[", [","] * len(values), wraps, "]")


def _concatenate(
    call: JsonCall, first: str, separators: Sequence[str | None], wraps: Sequence[TextWrap], last: str
) -> Iterator[TextEdit]:
    """Yield the edits that concatenate all arguments. None in `separators` marks two arguments of one to_json."""
    yield call.replace_token(call.name_index, "concat")
    if not wraps:
        yield call.replace_token(call.opening_index, f"('{first}{last}'")
        return
    yield call.replace_token(call.opening_index, f"('{first}', {wraps[0].before}")
    commas = _argument_commas(call)
    for comma, text, left, right in zip(commas, separators, wraps, wraps[1:], strict=False):
        separator = "" if text is None else f"'{text}', "
        yield call.replace_token(comma, f"{left.after}, {separator}{right.before}")
    yield call.replace_token(call.closing_index, f"{wraps[-1].after}, '{last}')")
    for wrap in wraps:
        if wrap.replaced_token is not None:
            yield call.replace_token(wrap.replaced_token, wrap.replacement)


def _wrap_value(call: JsonCall, value: exp.Expr) -> TextWrap:
    if call.is_json(value):
        return TextWrap("coalesce(", ", 'null')")
    return TextWrap("regexp_extract(to_json(array(", f"), {TO_JSON_OPTIONS}), {STRIP_BRACKETS}")


def _wrap_name(call: JsonCall, word: int | None) -> TextWrap:
    """Return the texts that make a name a JSON string. Spark raises an error if the name is null."""
    if word is not None:
        token = call.tokens[word]
        plain_text = PLAIN_TEXT.fullmatch(call.sql[token.start : token.end + 1])
        if plain_text:
            return TextWrap("", "", word, f"'{json.dumps(plain_text[1], ensure_ascii=False)}'")
    null = "raise_error('json_object() has a name that is null; give it a string')"
    return TextWrap("regexp_extract(to_json(array(coalesce(CAST(", f" AS STRING), {null}))), {STRIP_BRACKETS}")


def _translate_group_array(call: JsonCall) -> Iterator[TextEdit]:
    value, order, is_distinct = _read_group_argument(call)
    is_json = call.is_json(value)
    yield call.replace_token(
        call.name_index, "concat('[', array_join(array_sort(" if is_json else "to_json(array_sort("
    )
    distinct_word = "DISTINCT " if is_distinct else ""
    yield call.replace_token(call.opening_index, f"collect_list({distinct_word}named_struct('v', ")
    if is_distinct:
        yield call.replace_token(call.opening_index + 1, "")
    yield from _translate_sort_keys(call, order)
    yield call.replace_token(call.closing_index, "))")
    sort_text = f", {_comparison_lambda(order, is_json=is_json)}" if order else ""
    ending = ", ',', 'null'), ']')" if is_json else f", {TO_JSON_OPTIONS})"
    end = call.tokens[_find_call_end(call)].end + 1
    yield TextEdit(end, end, f"{sort_text}).v{ending}")


def _read_group_argument(call: JsonCall) -> tuple[exp.Expr, Sequence[exp.Ordered], bool]:
    """Return the value that json_group_array() collects, its ORDER BY, and whether it has DISTINCT."""
    example = "write json_group_array(value) or json_group_array(value ORDER BY other)"
    if len(call.node.expressions) != 1:
        raise call.call_error("takes one value", example)
    value: exp.Expr | None = call.node.expressions[0]
    order: Sequence[exp.Ordered] = ()
    if isinstance(value, exp.Order):
        value, order = value.this, value.expressions
    is_distinct = isinstance(value, exp.Distinct)
    if isinstance(value, exp.Distinct):
        if len(value.expressions) != 1:
            raise call.call_error("takes one value", example)
        value = value.expressions[0]
    if value is None:  # an ORDER BY without a value before it
        raise call.call_error("takes one value", example)
    _refuse_odd_values(call, [value], example, order)
    if is_distinct and any(key.this != value for key in order):
        raise call.call_error("with DISTINCT can only be ordered by its value", "remove ORDER BY or DISTINCT")
    if isinstance(call.node.parent, exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        raise call.call_error("keeps nulls, and is ordered within its parentheses", example)
    return value, order, is_distinct


def _translate_sort_keys(call: JsonCall, order: Sequence[exp.Ordered]) -> Iterator[TextEdit]:
    """Yield the edits that turn ORDER BY a DESC, b into fields next to the value.

    _comparison_lambda() compares these fields.
    """
    if not order:
        return
    order_by_index = next(
        place for place in _argument_tokens(call) if call.tokens[place].token_type is TokenType.ORDER_BY
    )
    yield call.replace_token(order_by_index, ", 'k0', ")
    commas = [place for place in _argument_commas(call) if place > order_by_index]
    for number, comma in enumerate(commas, start=1):
        yield call.replace_token(comma, f", 'k{number}', ")
    for end in (*commas, call.closing_index):
        for place in _sort_direction_tokens(call, end):
            yield call.replace_token(place, "")


def _sort_direction_tokens(call: JsonCall, end: int) -> Iterator[int]:
    """Yield the positions of words such as DESC NULLS LAST at the end of a sort key, which ends before `end`."""
    if is_word_at(call.tokens, end - 2, "nulls") and call.tokens[end - 1].text.casefold() in ("first", "last"):
        yield from (end - 1, end - 2)
        end -= 2
    if call.tokens[end - 1].token_type in (TokenType.ASC, TokenType.DESC):
        yield end - 1


def _comparison_lambda(order: Sequence[exp.Ordered], *, is_json: bool) -> str:
    """Return the lambda that compares two elements.

    Equal elements are compared by their texts, so the order never varies.
    """
    text = "{}.v" if is_json else f"to_json(array({{}}.v), {TO_JSON_OPTIONS})"
    left, right = text.format("l"), text.format("r")
    comparison = f"CASE WHEN {left} <=> {right} THEN 0 WHEN {left} < {right} THEN -1 ELSE 1 END"
    for number, key in reversed(list(enumerate(order))):
        left, right = f"l.k{number}", f"r.k{number}"
        null_order, smaller_order = (-1 if key.args.get("nulls_first") else 1), (1 if key.args.get("desc") else -1)
        comparison = (
            f"CASE WHEN {left} <=> {right} THEN {comparison} "
            f"WHEN {left} IS NULL THEN {null_order} WHEN {right} IS NULL THEN {-null_order} "
            f"WHEN {left} < {right} THEN {smaller_order} ELSE {-smaller_order} END"
        )
    return f"(l, r) -> {comparison}"


def _find_call_end(call: JsonCall) -> int:
    """Return the position of the last token of the call, with the FILTER (…) and OVER (…) after it.

    FILTER and OVER may also be names of columns.
    """
    end, node = call.closing_index, call.node.parent
    for word, clause in (("filter", exp.Filter), ("over", exp.Window)):
        if not isinstance(node, clause) or not is_word_at(call.tokens, end + 1, word):
            continue
        node = node.parent
        if is_word_at(call.tokens, end + 2, "("):
            end = find_parenthesis(call.tokens, end + 2)[1]
        elif any(token.token_type in WINDOW_NAMES for token in call.tokens[end + 2 : end + 3]):
            end += 2
    return end


def _refuse_odd_values(
    call: JsonCall, values: Sequence[exp.Expr], example: str, order: Sequence[exp.Ordered] = ()
) -> None:
    """Raise QueryError unless the call has just these values between commas, or one value with these sort keys."""
    if any(isinstance(value, NON_VALUE_NODES) or value.is_star for value in values):
        raise call.call_error("takes values only", example)
    # the parser silently drops words: a comma before the first argument, `as` alone, the comma of `values, 'b'`
    argument_count = 0 if call.closing_index == call.opening_index + 1 else len(_argument_commas(call)) + 1
    if argument_count != max(len(values), len(order)):
        raise call.call_error("can't be read", example)


def _literal_arguments(call: JsonCall) -> list[int | None]:
    """Return the position of each argument's text literal; None for an argument that is anything else."""
    if call.closing_index == call.opening_index + 1:
        return []
    edges = [call.opening_index, *_argument_commas(call), call.closing_index]
    return [
        start + 1
        if end == start + 2 and call.tokens[start + 1].token_type in (TokenType.STRING, TokenType.RAW_STRING)
        else None
        for start, end in itertools.pairwise(edges)
    ]


def _argument_commas(call: JsonCall) -> list[int]:
    return [place for place in _argument_tokens(call) if call.tokens[place].token_type is TokenType.COMMA]


def _argument_tokens(call: JsonCall) -> Iterator[int]:
    """Yield the positions of the tokens between the call's parentheses, without those in inner parentheses."""
    depth = 0
    for place in range(call.opening_index + 1, call.closing_index):
        depth += NESTING_DEPTHS.get(call.tokens[place].token_type, 0)
        if depth == 0:
            yield place


TRANSLATORS: dict[str, Callable[[JsonCall], Iterator[TextEdit]]] = {
    "json_object": _translate_object,
    "json_array": _translate_array,
    "json_group_array": _translate_group_array,
}
