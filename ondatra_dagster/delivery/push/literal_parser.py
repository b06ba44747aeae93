"""The parser of literals in a syntax tree. It checks that each literal has the type that its place needs.

Nothing of the file is run. This module checks how a value is written; api_dict_parser knows the meaning of API's
keys.
"""

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from ondatra_dagster.errors import Problem
from ondatra_dagster.project.spelling_suggestions import suggest_correction

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class InvalidLiteralError(Exception):
    """An error of an invalid literal.

    The parser of the dict around it notes the problem and goes on with the next key.
    """

    def __init__(self, node: ast.AST, description: str, remedy: str) -> None:
        super().__init__(description)
        self.line: int = getattr(node, "lineno", 1)
        self.description = description
        self.remedy = remedy


LiteralReader: TypeAlias = Callable[[ast.expr, "ProblemList"], Any]


class ProblemList(list[Problem]):
    """The problems of one file."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def add_literal(self, error: InvalidLiteralError) -> None:
        self.append(Problem(file=self.file, line=error.line, description=error.description, remedy=error.remedy))


def read_fields(
    node: ast.expr, problems: ProblemList, readers: Mapping[str, LiteralReader], place: str
) -> dict[str, Any]:
    """Return the dict's values by key. Leave out invalid values, and add a problem for each to `problems`."""
    values: dict[str, Any] = {}
    for key, value in read_items(node, place):
        try:
            name = _read_key(key, readers, place)
            if name in values:
                problems.add_literal(InvalidLiteralError(key, f"{name!r} appears twice in {place}", "keep one of them"))
            values[name] = readers[name](value, problems)
        except InvalidLiteralError as error:
            problems.add_literal(error)
    return values


def _read_key(node: ast.expr, readers: Mapping[str, LiteralReader], place: str) -> str:
    name = read_text(node)
    if name not in readers:
        remedy = suggest_correction(name, readers, plural="keys here")
        raise InvalidLiteralError(node, f"{name!r} is not a key of {place}", remedy)
    return name


def read_items(node: ast.expr, place: str) -> Iterator[tuple[ast.expr, ast.expr]]:
    if not isinstance(node, ast.Dict):
        raise InvalidLiteralError(node, f"{place} is not a dict of literals", 'write it as {"key": value, …}')
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            raise InvalidLiteralError(
                value, f"{place} includes another dict with **", "write its keys out: it is read without running"
            )
        yield key, value


def _evaluate_literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        remedy = 'write the value itself: nothing is run to read it; a secret is {"env": "NAME"}'
        raise InvalidLiteralError(node, f"{ast.unparse(node)} is not a literal", remedy) from error


def raise_unexpected(node: ast.expr, description: str) -> NoReturn:
    raise InvalidLiteralError(node, f"{ast.unparse(node):.80} is not {description}", f"write {description}")


def read_text(node: ast.expr, _problems: "ProblemList | None" = None) -> str:
    value = _evaluate_literal(node)
    if not isinstance(value, str) or not value.strip():
        raise_unexpected(node, "a string in quotes")
    return value


def number_reader(*, minimum: float, maximum: float = math.inf, is_whole: bool = False) -> LiteralReader:
    bounds = f"of at least {minimum:g}" if math.isinf(maximum) else f"from {minimum:g} to {maximum:g}"

    def read_number(node: ast.expr, _problems: ProblemList) -> int | float:
        value = _evaluate_literal(node)
        kinds = (int,) if is_whole else (int, float)
        if (
            isinstance(value, bool)
            or not isinstance(value, kinds)
            or not minimum <= value <= maximum
            or math.isinf(value)
        ):
            raise_unexpected(node, f"a {'whole ' if is_whole else ''}number {bounds}")
        return value

    return read_number


def choice_reader(words: Sequence[str], plural: str) -> LiteralReader:
    def read_choice(node: ast.expr, problems: ProblemList) -> str:
        choice = read_text(node, problems)
        if choice not in words:
            remedy = suggest_correction(choice, words, plural=plural)
            raise InvalidLiteralError(node, f"{choice!r} is not one of the {plural}", remedy)
        return choice

    return read_choice


def list_reader(reader: LiteralReader) -> LiteralReader:
    def read_list(node: ast.expr, problems: ProblemList) -> tuple[Any, ...]:
        if not isinstance(node, ast.List | ast.Tuple):
            raise_unexpected(node, "a list in brackets")
        return tuple(reader(element, problems) for element in node.elts)

    return read_list


def pattern_reader(pattern: re.Pattern[str], description: str) -> LiteralReader:
    def read_matching_text(node: ast.expr, problems: ProblemList) -> str:
        text = read_text(node, problems)
        if not pattern.fullmatch(text):
            raise_unexpected(node, description)
        return text

    return read_matching_text


def read_duration(node: ast.expr, problems: ProblemList) -> float:
    match = _DURATION.fullmatch(read_text(node, problems).strip())
    seconds = float(match[1]) * _UNIT_SECONDS[match[2]] if match else 0.0
    if not seconds:
        raise_unexpected(node, "a duration like '500ms', '10s', '5m' or '1h'")
    return seconds
