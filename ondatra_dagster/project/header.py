"""The comments above a query that say what becomes of it: `-- @kind: merge`.

Here are the words and which of them go together; how a value is written is in header_values.py. Nothing here
knows the query.
"""

import dataclasses
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from ondatra_dagster.errors import Problem
from ondatra_dagster.project import header_values as values
from ondatra_dagster.project.cron import read_schedule
from ondatra_dagster.project.kinds import KINDS, Kind
from ondatra_dagster.project.model import CheckWord, Incremental, RowCheck, SinkUse
from ondatra_dagster.project.sql.conditions import Condition, read_condition, row_checks
from ondatra_dagster.project.suggestions import correction, nearest

T = TypeVar("T")


class Word(NamedTuple):
    read: values.Reader
    repeats: bool = False
    needs_sink: bool = False


WORDS = {
    "kind": Word(values.read_kind),
    "unique_key": Word(values.read_names),
    "group_key": Word(values.read_names),
    "partitioned_by": Word(values.read_names),
    "incremental": Word(values.read_name),
    "incremental_initial": Word(values.read_text),
    "sink": Word(values.read_sink),
    "sync_id": Word(values.read_sync_id, needs_sink=True),
    "max_rejects": Word(values.read_limit, needs_sink=True),
    "max_deletes": Word(values.read_limit, needs_sink=True),
    "max_lag": Word(values.read_lag, needs_sink=True),
    "description": Word(values.read_text),
    "owner": Word(values.read_owner, repeats=True),
    "tag": Word(values.read_tag, repeats=True),
    "column": Word(values.read_column, repeats=True),
    "schedule": Word(read_schedule),
    **{word.value: Word(read_condition, repeats=True) for word in CheckWord},
}
SYNONYMS = {"push": "sink"}
KEY_WORDS = ("unique_key", "group_key", "partitioned_by")
STORAGE_WORD = "partitioned_by"  # of a kind that has no such key it says how the rows are to lie

COMMENT = re.compile(r"--[^\n]*|/\*(?!\+).*?\*/", re.DOTALL)
ABOVE_THE_QUERY = re.compile(r"(?:\s+|--[^\n]*|/\*(?!\+).*?\*/)*", re.DOTALL)
LINE = re.compile(r"--+\s*@\s*(?P<word>[\w.-]+)\s*(?P<colon>:?)[ \t]*(?P<value>.*)")


class Line(NamedTuple):
    number: int
    word: str
    written: str
    value: str
    has_colon: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a model's header says, with the lines that say it."""

    kind: Kind = KINDS["table"]
    key_columns: tuple[str, ...] = ()
    storage_columns: tuple[str, ...] = ()
    incremental: Incremental | None = None
    incremental_line: int = 1
    sink: SinkUse | None = None
    description: str | None = None
    owners: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    column_descriptions: tuple[tuple[str, str], ...] = ()
    checks: tuple[RowCheck, ...] = ()
    schedule: str | None = None
    schedule_line: int = 1
    named_columns: tuple[tuple[str, int], ...] = ()  # every column that it names, with the line


def header_end(text: str) -> int:
    """Where the comments above the query end, and the query begins."""
    found = ABOVE_THE_QUERY.match(text)
    return found.end() if found else 0


def header_lines(text: str, *, first_line: int = 1) -> Iterator[Line]:
    """Every header line in a text of nothing but comments and white space."""
    for comment in COMMENT.finditer(text):
        found = LINE.fullmatch(comment.group().rstrip())
        if found is None:
            continue
        word = found["word"].casefold()
        word = SYNONYMS.get(word, word)
        if found["colon"] or _looks_like_a_word(word):  # "-- @anna, please look" is a comment like any other
            number = text.count("\n", 0, comment.start()) + first_line
            yield Line(number, word, found["word"], found["value"].strip(), bool(found["colon"]))


def _looks_like_a_word(written: str) -> bool:
    return written in WORDS or nearest(written, WORDS, likeness=0.8) is not None


def read_header(text: str, *, file: str, model: str, sinks: Collection[str]) -> tuple[Header, list[Problem]]:
    """The header, as far as it can be read, and all that is wrong with it; `sinks` are the files of lib/."""
    reading = _Reading(file)
    for line in header_lines(text):
        reading.take(line)
    kind = reading.one("kind", KINDS["table"])
    key_columns = _key(reading, kind)
    header = Header(
        kind=kind,
        key_columns=key_columns,
        storage_columns=() if STORAGE_WORD in kind.key_headers else reading.one(STORAGE_WORD, ()),
        incremental=_incremental(reading, kind),
        incremental_line=reading.line("incremental"),
        sink=_sink(reading, model, kind, sinks),
        description=reading.one("description", None),
        owners=reading.all("owner"),
        tags=reading.all("tag"),
        column_descriptions=reading.all("column"),
        checks=tuple(row_checks(list(_conditions(reading)))),
        schedule=reading.one("schedule", None),
        schedule_line=reading.line("schedule"),
        named_columns=tuple(reading.named_columns()),
    )
    return header, reading.problems


class _Reading:
    """The header lines of one file, read one by one."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.lines: dict[str, list[int]] = {}  # word → where it stands, readable or not
        self._values: dict[str, list[tuple[Any, int]]] = {}  # the readable ones, with their lines

    def take(self, line: Line) -> None:
        try:
            self._values.setdefault(line.word, []).append((self._value(line), line.number))
        except values.BadHeaderError as bad:
            self.complain(line.number, bad.what, bad.remedy)
        self.lines.setdefault(line.word, []).append(line.number)

    def _value(self, line: Line) -> object:
        word = WORDS.get(line.word)
        if word is None:
            known = correction(line.written, [*WORDS, *SYNONYMS], plural="words")
            raise values.BadHeaderError(f"@{line.written} is not a header", known)
        if not line.has_colon or not line.value:
            raise values.BadHeaderError(f"@{line.written} says nothing", f"write -- @{line.written}: value")
        if line.word in self.lines and not word.repeats:
            first = self.lines[line.word][0]
            raise values.BadHeaderError(f"@{line.written} is on line {first} already", "keep one of the two")
        return word.read(line.value)

    def complain(self, line: int, what: str, remedy: str) -> None:
        self.problems.append(Problem(file=self.file, line=line, what=what, remedy=remedy))

    def line(self, word: str) -> int:
        """Where a word stands first; line 1 when it doesn't."""
        return self.lines.get(word, [1])[0]

    def is_readable(self, word: str) -> bool:
        return bool(self._values.get(word))

    def one(self, word: str, default: T) -> T:
        return cast("T", self._values[word][0][0]) if self.is_readable(word) else default

    def all(self, word: str) -> tuple[Any, ...]:
        return tuple(value for value, _ in self._values.get(word, ()))

    def with_lines(self, word: str) -> Sequence[tuple[Any, int]]:
        """Every value of a word, with its line."""
        return self._values.get(word, ())

    def named_columns(self) -> Iterator[tuple[str, int]]:
        """Every column that the header names, with the line that names it."""
        for word in KEY_WORDS:
            for names, line in self._values.get(word, ()):
                yield from ((name, line) for name in names)
        yield from self._values.get("incremental", ())
        for (name, _), line in self._values.get("column", ()):
            yield name, line
        for check in CheckWord:
            for condition, line in self._values.get(check, ()):
                yield from ((name, line) for name in condition.columns)


def _conditions(reading: _Reading) -> Iterator[tuple[CheckWord, Condition, int]]:
    """What is checked, each once; complains of what is said twice."""
    for word in CheckWord:
        first: dict[tuple[str, ...], int] = {}
        for condition, line in reading.with_lines(word):
            other = first.setdefault(condition.words, line)
            if other == line:
                yield word, condition, line
            else:
                reading.complain(line, f"@{word} says what line {other} says", "keep one of the two")


def _key(reading: _Reading, kind: Kind) -> tuple[str, ...]:
    """The key's columns; complains of a missing key, and of one that the kind hasn't."""
    if "kind" in reading.lines and not reading.is_readable("kind"):
        return ()  # which key it needs is unknown
    _refuse_other_keys(reading, kind)
    given = [word for word in kind.key_headers if word in reading.lines]
    if len(given) > 1:
        what = f"@{given[0]} and @{given[1]} say the same of kind {kind.name}"
        reading.complain(reading.line(given[1]), what, "keep one of them")
    if not given and kind.needs_key:
        remedy = f"add -- @{kind.key_headers[0]}: column"
        reading.complain(reading.line("kind"), f"kind {kind.name} needs a key", remedy)
    return reading.one(given[0], ()) if given else ()


def _refuse_other_keys(reading: _Reading, kind: Kind) -> None:
    instead = (
        f"write @{kind.key_headers[0]}" if kind.key_headers else "remove it, or choose a kind with a key"
    )
    for word in KEY_WORDS:
        if word in reading.lines and word not in (*kind.key_headers, STORAGE_WORD):
            reading.complain(reading.line(word), f"kind {kind.name} has no @{word}", instead)


def _incremental(reading: _Reading, kind: Kind) -> Incremental | None:
    """The column whose highest value the query goes on from; complains of kinds that can't."""
    if "incremental" not in reading.lines:
        if "incremental_initial" in reading.lines:
            what = "@incremental_initial has no @incremental"
            reading.complain(reading.line("incremental_initial"), what, "add -- @incremental: column")
        return None
    if not kind.takes_incremental:
        kinds = " or ".join(name for name, each in KINDS.items() if each.takes_incremental)
        what = f"kind {kind.name} can't be incremental"
        reading.complain(reading.line("incremental"), what, f"remove it, or choose kind {kinds}")
    if not reading.is_readable("incremental"):
        return None
    return Incremental(
        column=reading.one("incremental", ""), initial=reading.one("incremental_initial", None)
    )


def _sink(reading: _Reading, model: str, kind: Kind, sinks: Collection[str]) -> SinkUse | None:
    """The model's one sink; complains of an unknown one, and of words that mean nothing without one."""
    if "sink" not in reading.lines:
        _refuse_sinkless(reading)
    elif not kind.has_query:
        reading.complain(reading.line("sink"), f"kind {kind.name} can't have a @sink", "push a model of it")
    if not reading.is_readable("sink"):
        return None
    name, arguments = reading.one("sink", ("", ()))
    if name not in sinks:
        known = correction(name, sinks, plural="sinks")
        reading.complain(reading.line("sink"), f"@sink {name!r} has no lib/{name}.star", known)
    return SinkUse(
        name=name,
        arguments=arguments,
        sync_id=reading.one("sync_id", model),
        line=reading.line("sink"),
        max_rejects=reading.one("max_rejects", None),
        max_deletes=reading.one("max_deletes", None),
        max_lag_seconds=reading.one("max_lag", 24.0 * 3600),
    )


def _refuse_sinkless(reading: _Reading) -> None:
    for word, rules in WORDS.items():
        if rules.needs_sink and word in reading.lines:
            reading.complain(reading.line(word), f"@{word} has no @sink", "add -- @sink: name, or remove it")
