"""The model header: the comments above a query that configure the model, such as `-- @kind: merge`.

This module has the header words and decides which of them go together. header_value_parsers.py parses their values.
This module doesn't know the query.
"""

import dataclasses
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, TypeVar, cast

from ondatra_dagster.errors import Problem
from ondatra_dagster.project import header_value_parsers as values
from ondatra_dagster.project.header_value_parsers import read_schedule
from ondatra_dagster.project.model import CheckCondition, CheckType, Incremental, ModelSink, RowCheck
from ondatra_dagster.project.model_kinds import KINDS, Kind
from ondatra_dagster.project.spelling_suggestions import find_nearest, suggest_correction
from ondatra_dagster.project.sql.check_conditions import build_row_checks, read_condition

T = TypeVar("T")


class HeaderWord(NamedTuple):
    reader: values.HeaderValueReader
    is_repeatable: bool = False
    needs_sink: bool = False


HEADER_WORDS = {
    "kind": HeaderWord(values.read_kind),
    "unique_key": HeaderWord(values.read_column_names),
    "group_key": HeaderWord(values.read_column_names),
    "partitioned_by": HeaderWord(values.read_column_names),
    "incremental": HeaderWord(values.read_column_name),
    "incremental_initial": HeaderWord(str),
    "sink": HeaderWord(values.read_sink),
    "sync_id": HeaderWord(values.read_sync_id, needs_sink=True),
    "max_rejects": HeaderWord(values.read_limit, needs_sink=True),
    "max_deletes": HeaderWord(values.read_limit, needs_sink=True),
    "max_lag": HeaderWord(values.read_lag, needs_sink=True),
    "description": HeaderWord(str),
    "owner": HeaderWord(values.read_owner, is_repeatable=True),
    "tag": HeaderWord(values.read_tag, is_repeatable=True),
    "column": HeaderWord(values.read_column, is_repeatable=True),
    "schedule": HeaderWord(read_schedule),
    **{word.value: HeaderWord(read_condition, is_repeatable=True) for word in CheckType},
}
HEADER_SYNONYMS = {"push": "sink"}
KEY_WORDS = ("unique_key", "group_key", "partitioned_by")
STORAGE_WORD = "partitioned_by"  # it sets how rows are stored, unless the kind uses it as its key

COMMENT_PATTERN = re.compile(r"--[^\n]*|/\*(?!\+).*?\*/", re.DOTALL)
LEADING_COMMENTS = re.compile(r"(?:\s+|--[^\n]*|/\*(?!\+).*?\*/)*", re.DOTALL)
HEADER_LINE_PATTERN = re.compile(r"--+\s*@\s*(?P<word>[\w.-]+)\s*(?P<colon>:?)[ \t]*(?P<value>.*)")


class HeaderLine(NamedTuple):
    number: int
    word: str
    spelling: str
    value: str
    has_colon: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The values of a model's header, with their lines."""

    kind: Kind = KINDS["table"]
    key_columns: tuple[str, ...] = ()
    storage_columns: tuple[str, ...] = ()
    incremental: Incremental | None = None
    incremental_line: int = 1
    sink: ModelSink | None = None
    description: str | None = None
    owners: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    column_descriptions: tuple[tuple[str, str], ...] = ()
    checks: tuple[RowCheck, ...] = ()
    schedule: str | None = None
    schedule_line: int = 1
    named_columns: tuple[tuple[str, int], ...] = ()  # every column that the header names, with the line


def find_header_end(text: str) -> int:
    """Return the position where the comments above the query end and the query begins."""
    comments_match = LEADING_COMMENTS.match(text)
    return comments_match.end() if comments_match else 0


def find_header_lines(text: str, *, first_line: int = 1) -> Iterator[HeaderLine]:
    """Yield every header line of a text that contains only comments and white space."""
    for comment in COMMENT_PATTERN.finditer(text):
        line_match = HEADER_LINE_PATTERN.fullmatch(comment.group().rstrip())
        if line_match is None:
            continue
        word = line_match["word"].casefold()
        word = HEADER_SYNONYMS.get(word, word)
        # "-- @anna, please look" is an ordinary comment
        if line_match["colon"] or find_nearest(word, HEADER_WORDS, likeness=0.8):
            number = text.count("\n", 0, comment.start()) + first_line
            yield HeaderLine(number, word, line_match["word"], line_match["value"].strip(), bool(line_match["colon"]))


def read_header(text: str, *, file: str, model: str, sinks: Collection[str]) -> tuple[Header, list[Problem]]:
    """Return the readable part of the header, and all its problems. `sinks` are the files of lib/."""
    reader = _HeaderReader(file)
    for line in find_header_lines(text):
        reader.add_line(line)
    kind = reader.single_value("kind", KINDS["table"])
    key_columns = _choose_key(reader, kind)
    header = Header(
        kind=kind,
        key_columns=key_columns,
        storage_columns=() if STORAGE_WORD in kind.key_headers else reader.single_value(STORAGE_WORD, ()),
        incremental=_build_incremental(reader, kind),
        incremental_line=reader.first_line_of("incremental"),
        sink=_build_sink(reader, model, kind, sinks),
        description=reader.single_value("description", None),
        owners=reader.all_values("owner"),
        tags=reader.all_values("tag"),
        column_descriptions=reader.all_values("column"),
        checks=tuple(build_row_checks(list(_collect_conditions(reader)))),
        schedule=reader.single_value("schedule", None),
        schedule_line=reader.first_line_of("schedule"),
        named_columns=tuple(reader.named_columns()),
    )
    return header, reader.problems


class _HeaderReader:
    """A reader of one file's header, line by line."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.lines: dict[str, list[int]] = {}  # word → its lines, readable or not
        self.values: dict[str, list[tuple[Any, int]]] = {}  # word → readable values, with their lines

    def add_line(self, line: HeaderLine) -> None:
        try:
            self.values.setdefault(line.word, []).append((self._parse_value(line), line.number))
        except values.HeaderValueError as error:
            self.report_problem(line.number, error.description, error.remedy)
        self.lines.setdefault(line.word, []).append(line.number)

    def _parse_value(self, line: HeaderLine) -> object:
        word = HEADER_WORDS.get(line.word)
        if word is None:
            remedy = suggest_correction(line.spelling, [*HEADER_WORDS, *HEADER_SYNONYMS], plural="words")
            raise values.HeaderValueError(f"@{line.spelling} is not a header", remedy)
        if not line.has_colon or not line.value:
            raise values.HeaderValueError(f"@{line.spelling} says nothing", f"write -- @{line.spelling}: value")
        if line.word in self.lines and not word.is_repeatable:
            first_line = self.lines[line.word][0]
            raise values.HeaderValueError(f"@{line.spelling} is already on line {first_line}", "keep one of the two")
        return word.reader(line.value)

    def report_problem(self, line: int, description: str, remedy: str) -> None:
        self.problems.append(Problem(file=self.file, line=line, description=description, remedy=remedy))

    def report_word(self, word: str, description: str, remedy: str) -> None:
        """Report a problem at the first header line with this word."""
        self.report_problem(self.first_line_of(word), description, remedy)

    def first_line_of(self, word: str) -> int:
        """Return the number of the first header line with this word, or 1 if no line has it."""
        return self.lines.get(word, [1])[0]

    def has_value(self, word: str) -> bool:
        return bool(self.values.get(word))

    def single_value(self, word: str, default: T) -> T:
        return cast("T", self.values[word][0][0]) if self.has_value(word) else default

    def all_values(self, word: str) -> tuple[Any, ...]:
        return tuple(value for value, _ in self.values.get(word, ()))

    def named_columns(self) -> Iterator[tuple[str, int]]:
        """Yield every column that the header names, with the number of the line."""
        for word in KEY_WORDS:
            for names, line in self.values.get(word, ()):
                yield from ((name, line) for name in names)
        yield from self.values.get("incremental", ())
        for (name, _), line in self.values.get("column", ()):
            yield name, line
        for check in CheckType:
            for condition, line in self.values.get(check, ()):
                yield from ((name, line) for name in condition.columns)


def _collect_conditions(header_reader: _HeaderReader) -> Iterator[tuple[CheckType, CheckCondition, int]]:
    """Yield the checks' conditions. Report a condition that a check type has twice, and yield it once."""
    for word in CheckType:
        first_lines: dict[tuple[str, ...], int] = {}
        for condition, line in header_reader.values.get(word, ()):
            first_line = first_lines.setdefault(condition.words, line)
            if first_line == line:
                yield word, condition, line
            else:
                header_reader.report_problem(line, f"@{word} repeats line {first_line}", "keep one of the two")


def _choose_key(header_reader: _HeaderReader, kind: Kind) -> tuple[str, ...]:
    """Return the columns of the model's key.

    Report a missing key, and a header word for a key that the kind doesn't have.
    """
    if "kind" in header_reader.lines and not header_reader.has_value("kind"):
        return ()  # the kind is unknown, so its key is too
    _report_other_keys(header_reader, kind)
    key_words = [word for word in kind.key_headers if word in header_reader.lines]
    if len(key_words) > 1:
        description = f"@{key_words[0]} and @{key_words[1]} mean the same for kind {kind.name}"
        header_reader.report_word(key_words[1], description, "keep one of them")
    if not key_words and kind.needs_key:
        remedy = f"add -- @{kind.key_headers[0]}: column"
        header_reader.report_word("kind", f"kind {kind.name} needs a key", remedy)
    return header_reader.single_value(key_words[0], ()) if key_words else ()


def _report_other_keys(header_reader: _HeaderReader, kind: Kind) -> None:
    remedy = f"write @{kind.key_headers[0]}" if kind.key_headers else "remove it, or choose a kind with a key"
    for word in KEY_WORDS:
        if word in header_reader.lines and word not in (*kind.key_headers, STORAGE_WORD):
            header_reader.report_word(word, f"kind {kind.name} has no @{word}", remedy)


def _build_incremental(header_reader: _HeaderReader, kind: Kind) -> Incremental | None:
    """Return the values of the @incremental lines; None without @incremental.

    Report an @incremental that the kind can't use, and an @incremental_initial without @incremental.
    """
    if "incremental" not in header_reader.lines:
        if "incremental_initial" in header_reader.lines:
            description = "@incremental_initial has no @incremental"
            header_reader.report_word("incremental_initial", description, "add -- @incremental: column")
        return None
    if not kind.takes_incremental:
        kinds = " or ".join(name for name, kind_ in KINDS.items() if kind_.takes_incremental)
        description = f"kind {kind.name} can't be incremental"
        header_reader.report_word("incremental", description, f"remove it, or choose kind {kinds}")
    if not header_reader.has_value("incremental"):
        return None
    return Incremental(
        column=header_reader.single_value("incremental", ""),
        initial=header_reader.single_value("incremental_initial", None),
    )


def _build_sink(header_reader: _HeaderReader, model: str, kind: Kind, sinks: Collection[str]) -> ModelSink | None:
    """Return the model's only sink; None without one.

    Report an unknown sink, and words that need a sink if there is none.
    """
    if "sink" not in header_reader.lines:
        _report_words_without_sink(header_reader)
    elif not kind.has_query:
        header_reader.report_word("sink", f"kind {kind.name} can't have a @sink", "push a model of it")
    if not header_reader.has_value("sink"):
        return None
    name, arguments = header_reader.single_value("sink", ("", ()))
    if name not in sinks:
        suggestion = suggest_correction(name, sinks, plural="sinks")
        header_reader.report_word("sink", f"@sink {name!r} has no lib/{name}.star", suggestion)
    return ModelSink(
        name=name,
        arguments=arguments,
        sync_id=header_reader.single_value("sync_id", model),
        line=header_reader.first_line_of("sink"),
        max_rejects=header_reader.single_value("max_rejects", None),
        max_deletes=header_reader.single_value("max_deletes", None),
        max_lag_seconds=header_reader.single_value("max_lag", 24.0 * 3600),
    )


def _report_words_without_sink(header_reader: _HeaderReader) -> None:
    for word, rules in HEADER_WORDS.items():
        if rules.needs_sink and word in header_reader.lines:
            header_reader.report_word(word, f"@{word} has no @sink", "add -- @sink: name, or remove it")
