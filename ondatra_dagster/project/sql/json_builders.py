"""json_object, json_array and json_group_array, as Spark says them: their result is text.

Nulls are kept. A builder within a builder nests, also through a subquery's column, a CASE or COALESCE, and so
does `x::JSON`; any other text is a JSON string.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ondatra_dagster.project.model import Edit
from ondatra_dagster.project.sql.tokens import QueryError, parenthesis, says

# to the microsecond: by itself to_json cuts a time to milliseconds, and drops fields that are null
TIME = "yyyy-MM-dd''T''HH:mm:ss.SSSSSS"
FORMATS = f"map('ignoreNullFields', 'false', 'timestampFormat', '{TIME}XXX', 'timestampNTZFormat', '{TIME}')"
INNER = "'(?s)^.(.*).$', 1)"  # what stands in [ ]: Spark has no function for the JSON of a plain value
PLAIN_TEXT = re.compile(r"'([^'\"\\\x00-\x1f]*)'")
NESTING = {
    **dict.fromkeys((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE), 1),
    **dict.fromkeys((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE), -1),
}
NO_VALUE = (
    *(exp.Star, exp.Distinct, exp.Order, exp.Limit, exp.Kwarg, exp.Alias, exp.PropertyEQ),
    *(exp.IgnoreNulls, exp.RespectNulls, exp.Select),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A builder's call: its words, and what they mean."""

    node: exp.Anonymous
    tokens: Sequence[Token]  # of the whole query
    place: int  # of its name
    sql: str
    is_json: Callable[[exp.Expr], bool]  # whether a value is the text of a builder

    @property
    def name(self) -> str:
        return self.tokens[self.place].text.casefold()

    @property
    def opening(self) -> int:
        return self.place + 1

    @property
    def closing(self) -> int:
        return parenthesis(self.tokens, self.opening)[1]

    def edit(self, place: int, text: str) -> Edit:
        """Other words for a token; line ends within it stay."""
        token = self.tokens[place]
        lines = self.sql.count("\n", token.start, token.end + 1)
        return Edit(token.start, token.end + 1, text + "\n" * lines)

    def behind(self, place: int, text: str) -> Edit:
        """Words behind a token."""
        end = self.tokens[place].end + 1
        return Edit(end, end, text)

    def refusal(self, what: str, remedy: str) -> QueryError:
        return QueryError(self.tokens[self.place].line, f"{self.name}() {what}", remedy)


@dataclasses.dataclass(frozen=True, slots=True)
class Wrap:
    """What stands before and behind an argument."""

    before: str
    behind: str
    word: int | None = None  # the place of the argument, when that is replaced
    instead: str = ""


def builder_edits(call: Call) -> list[Edit]:
    """The call in Spark's words; raises QueryError when it is none that a builder takes."""
    return list(BUILDERS[call.name](call))


def _object(call: Call) -> Iterator[Edit]:
    example = "write json_object('name', value, 'other', value)"
    values = call.node.expressions
    _refuse_odd_values(call, values, example)
    if len(values) % 2:
        raise call.refusal("takes names and values in turn, and one has no other", example)
    for name in values[::2]:
        if isinstance(name, exp.Null) or (isinstance(name, exp.Literal) and not name.is_string):
            raise call.refusal(f"has the name {name.sql()}, which is no text", f"write '{name.sql()}'")
    names, contents = _only_words(call)[::2], values[1::2]
    is_plain = [
        name is not None and not call.is_json(value) for name, value in zip(names, contents, strict=True)
    ]
    if values and all(is_plain):
        yield call.edit(call.place, "to_json")
        yield call.edit(call.opening, "(named_struct(")
        yield call.edit(call.closing, f"), {FORMATS})")
        return
    wraps, between = _pieces(call, names, contents, is_plain)
    yield from _concatenated(call, "{", between, wraps, "}")


def _pieces(
    call: Call, names: Sequence[int | None], contents: Sequence[exp.Expr], is_plain: Sequence[bool]
) -> tuple[list[Wrap], list[str | None]]:
    """What stands around each name and value, and between them: plain ones in a row are written at once."""
    wraps: list[Wrap] = []
    between: list[str | None] = []
    for place, (name, value) in enumerate(zip(names, contents, strict=True)):
        went_on = is_plain[place] and is_plain[max(place - 1, 0) : place] == [True]
        goes_on = is_plain[place] and is_plain[place + 1 : place + 2] == [True]
        if is_plain[place]:
            wraps += _of_run(is_first=not went_on, is_last=not goes_on)
        else:
            wraps += [_name(call, name), _value(call, value)]
        between += [None if is_plain[place] else ":", None if goes_on else ","]
    return wraps, between


def _of_run(*, is_first: bool, is_last: bool) -> tuple[Wrap, Wrap]:
    """A name and a value among others that nothing nests in: Spark writes them all at once."""
    name = Wrap("regexp_extract(to_json(named_struct(" if is_first else "", "")
    return name, Wrap("", f"), {FORMATS}), {INNER}" if is_last else "")


def _array(call: Call) -> Iterator[Edit]:
    values = call.node.expressions
    _refuse_odd_values(call, values, "write json_array(value, other)")
    wraps = [_value(call, value) for value in values]
    yield from _concatenated(call, "[", [","] * len(values), wraps, "]")


def _concatenated(
    call: Call, first: str, between: Sequence[str | None], wraps: Sequence[Wrap], last: str
) -> Iterator[Edit]:
    """The texts of all arguments, one behind the other; None stands between those that are one text."""
    yield call.edit(call.place, "concat")
    if not wraps:
        yield call.edit(call.opening, f"('{first}{last}'")
        return
    yield call.edit(call.opening, f"('{first}', {wraps[0].before}")
    commas = _separators(call)
    for comma, text, one, other in zip(commas, between, wraps, wraps[1:], strict=False):
        sign = "" if text is None else f"'{text}', "
        yield call.edit(comma, f"{one.behind}, {sign}{other.before}")
    yield call.edit(call.closing, f"{wraps[-1].behind}, '{last}')")
    for wrap in wraps:
        if wrap.word is not None:
            yield call.edit(wrap.word, wrap.instead)


def _value(call: Call, value: exp.Expr) -> Wrap:
    if call.is_json(value):
        return Wrap("coalesce(", ", 'null')")
    return Wrap("regexp_extract(to_json(array(", f"), {FORMATS}), {INNER}")


def _name(call: Call, word: int | None) -> Wrap:
    """A name as JSON; one that is only known with its row may turn out null, which SQLite refuses too."""
    if word is not None:
        token = call.tokens[word]
        plain = PLAIN_TEXT.fullmatch(call.sql[token.start : token.end + 1])
        if plain:
            return Wrap("", "", word, f"'{json.dumps(plain[1], ensure_ascii=False)}'")
    null = "raise_error('json_object() has a name that is null; give it a text')"
    return Wrap("regexp_extract(to_json(array(coalesce(CAST(", f" AS STRING), {null}))), {INNER}")


def _group_array(call: Call) -> Iterator[Edit]:
    value, order, is_distinct = _grouped(call)
    is_json = call.is_json(value)
    yield call.edit(call.place, "concat('[', array_join(array_sort(" if is_json else "to_json(array_sort(")
    distinct = "DISTINCT " if is_distinct else ""
    yield call.edit(call.opening, f"collect_list({distinct}named_struct('v', ")
    if is_distinct:
        yield call.edit(call.opening + 1, "")
    yield from _sort_keys(call, order)
    yield call.edit(call.closing, "))")
    sort = f", {_comparison(order, is_json=is_json)}" if order else ""
    last = ", ',', 'null'), ']')" if is_json else f", {FORMATS})"
    yield call.behind(_tail_end(call), f"{sort}).v{last}")


def _grouped(call: Call) -> tuple[exp.Expr, Sequence[exp.Ordered], bool]:
    """What is collected, in which order, and whether each value once."""
    example = "write json_group_array(value) or json_group_array(value ORDER BY other)"
    if len(call.node.expressions) != 1:
        raise call.refusal("takes one value", example)
    value: exp.Expr | None = call.node.expressions[0]
    order: Sequence[exp.Ordered] = ()
    if isinstance(value, exp.Order):
        value, order = value.this, value.expressions
    is_distinct = isinstance(value, exp.Distinct)
    if isinstance(value, exp.Distinct):
        if len(value.expressions) != 1:
            raise call.refusal("takes one value", example)
        value = value.expressions[0]
    if value is None:  # ORDER BY, and nothing before it
        raise call.refusal("takes one value", example)
    _refuse_odd_values(call, [value], example, order)
    if is_distinct and any(key.this != value for key in order):
        raise call.refusal("with DISTINCT can only be ordered by its value", "take ORDER BY or DISTINCT away")
    if isinstance(call.node.parent, exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        raise call.refusal("keeps nulls, and is ordered within its parentheses", example)
    return value, order, is_distinct


def _sort_keys(call: Call, order: Sequence[exp.Ordered]) -> Iterator[Edit]:
    """ORDER BY a DESC, b as fields beside the value; how they compare is said elsewhere."""
    if not order:
        return
    begin = next(place for place in _top_level(call) if call.tokens[place].token_type is TokenType.ORDER_BY)
    yield call.edit(begin, ", 'k0', ")
    commas = [place for place in _separators(call) if place > begin]
    for number, comma in enumerate(commas, start=1):
        yield call.edit(comma, f", 'k{number}', ")
    for end in (*commas, call.closing):
        for place in _direction(call, end):
            yield call.edit(place, "")


def _direction(call: Call, end: int) -> Iterator[int]:
    """The places of DESC NULLS LAST before the end of a sort key."""
    if says(call.tokens, end - 2, "nulls") and call.tokens[end - 1].text.casefold() in ("first", "last"):
        yield from (end - 1, end - 2)
        end -= 2
    if call.tokens[end - 1].token_type in (TokenType.ASC, TokenType.DESC):
        yield end - 1


def _comparison(order: Sequence[exp.Ordered], *, is_json: bool) -> str:
    """Which of two elements comes first; equal ones by their texts, so that the order is always the same."""
    text = "{}.v" if is_json else f"to_json(array({{}}.v), {FORMATS})"
    left, right = text.format("l"), text.format("r")
    comparison = f"CASE WHEN {left} <=> {right} THEN 0 WHEN {left} < {right} THEN -1 ELSE 1 END"
    for number, key in reversed(list(enumerate(order))):
        left, right = f"l.k{number}", f"r.k{number}"
        null, smaller = (-1 if key.args.get("nulls_first") else 1), (1 if key.args.get("desc") else -1)
        comparison = (
            f"CASE WHEN {left} <=> {right} THEN {comparison} "
            f"WHEN {left} IS NULL THEN {null} WHEN {right} IS NULL THEN {-null} "
            f"WHEN {left} < {right} THEN {smaller} ELSE {-smaller} END"
        )
    return f"(l, r) -> {comparison}"


def _tail_end(call: Call) -> int:
    """The last word of FILTER (…) and OVER (…) behind the call; either may be a column's name instead."""
    end, node = call.closing, call.node.parent
    for word, clause in (("filter", exp.Filter), ("over", exp.Window)):
        if not isinstance(node, clause) or not says(call.tokens, end + 1, word):
            continue
        node = node.parent
        if says(call.tokens, end + 2, "("):
            end = parenthesis(call.tokens, end + 2)[1]
        elif _is_window_name(call.tokens[end + 2 : end + 3]):
            end += 2
    return end


def _is_window_name(tokens: Sequence[Token]) -> bool:
    """Return whether that is the name of a window; without a token, the query has ended."""
    return any(token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) for token in tokens)


def _refuse_odd_values(
    call: Call, values: Sequence[exp.Expr], example: str, order: Sequence[exp.Ordered] = ()
) -> None:
    """Raise a refusal unless commas separate just these values, or the keys by which one is ordered."""
    if any(isinstance(value, NO_VALUE) or value.is_star for value in values):
        raise call.refusal("takes values only", example)
    # the parser drops words: a comma that begins the arguments, `as` alone, the comma of `values, 'b'`
    written = 0 if call.closing == call.opening + 1 else len(_separators(call)) + 1
    if written != max(len(values), len(order)):
        raise call.refusal("can't be read", example)


def _only_words(call: Call) -> list[int | None]:
    """For each argument that is one text and nothing else, the place of that text."""
    if call.closing == call.opening + 1:
        return []
    edges = [call.opening, *_separators(call), call.closing]
    return [
        start + 1
        if end == start + 2 and call.tokens[start + 1].token_type in (TokenType.STRING, TokenType.RAW_STRING)
        else None
        for start, end in itertools.pairwise(edges)
    ]


def _separators(call: Call) -> list[int]:
    return [place for place in _top_level(call) if call.tokens[place].token_type is TokenType.COMMA]


def _top_level(call: Call) -> Iterator[int]:
    """The places of the words between the call's parentheses that stand in no others."""
    depth = 0
    for place in range(call.opening + 1, call.closing):
        depth += NESTING.get(call.tokens[place].token_type, 0)
        if depth == 0:
            yield place


BUILDERS: dict[str, Callable[[Call], Iterator[Edit]]] = {
    "json_object": _object,
    "json_array": _array,
    "json_group_array": _group_array,
}
