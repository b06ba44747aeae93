"""The user's model files: how they are found, and how the header and query of each file are parsed.

The checks that need several files (inputs, cycles, sync ids) are in project_loader.py.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ondatra_dagster.errors import Problem
from ondatra_dagster.project.header_value_parsers import ON_CHANGE
from ondatra_dagster.project.model import EventColumn
from ondatra_dagster.project.model_header import HEADER_WORDS, Header, find_header_end, find_header_lines, read_header
from ondatra_dagster.project.spelling_suggestions import suggest_correction
from ondatra_dagster.project.sql.event_schema import empty_query, read_event_columns
from ondatra_dagster.project.sql.output_and_system_columns import (
    OutputColumnNames,
    is_reserved_name,
    read_output_columns,
)
from ondatra_dagster.project.sql.query_parser import ParsedQuery, parse_query
from ondatra_dagster.project.sql.tokenizer import QueryError

RESERVED_FOLDERS = frozenset({"csv", "json", "parquet", "orc", "avro", "text", "delta", "ondatra"})
INVALID_SUFFIX = "__invalid"  # SCHEMA.TABLE__invalid holds the invalid rows
ReportProblem = Callable[[Problem], None]


class ModelFile(NamedTuple):
    name: str  # sync.crm
    path: Path
    file: str  # models/sync/crm.sql


def find_model_files(root: Path, report: ReportProblem) -> list[ModelFile]:
    """Return every model file with a valid name, in order. Report files with an invalid name as problems."""
    folder = root / "models"
    if not folder.is_dir():
        report(_problem("models", "there is no such folder", "change into a project, or create one: ondatra init DIR"))
        return []
    models_by_unique_name: dict[str, ModelFile] = {}
    for path in _sql_files(folder):
        file = path.relative_to(root).as_posix()
        model = ModelFile(".".join((path.parent.name, path.stem)), path, file)
        name_problem = _find_name_problem(path, folder)
        earlier_model = models_by_unique_name.get(_unique_model_name(model))
        if name_problem:
            report(_problem(file, *name_problem))
        elif earlier_model:
            is_same_name = earlier_model.name.casefold() == model.name.casefold()
            description = f"{earlier_model.file} is {'the same model' if is_same_name else 'the same name in Dagster'}"
            report(_problem(file, description, "rename one of them"))
        else:
            models_by_unique_name[_unique_model_name(model)] = model
    return list(models_by_unique_name.values())


def find_sink_files(root: Path) -> dict[str, Path]:
    """Return the path of every lib/*.star file by the sink's name."""
    return {path.stem: path for path in sorted((root / "lib").glob("*.star")) if path.is_file()}


def read_model_text(model: ModelFile, report: ReportProblem) -> str | None:
    """Return the file's text with line feeds as line ends. Report a problem and return None if it can't be read."""
    try:
        content = model.path.read_bytes()
    except OSError as error:
        report(_problem(model.file, f"the file can't be read: {error.strerror}", "make it readable"))
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        report(_problem(model.file, "the file is not UTF-8", "save it as UTF-8", line=line))
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _unique_model_name(model: ModelFile) -> str:
    """Return the name in a form that must be unique. Spark ignores case; Dagster can't tell a.b__c from a__b.c."""
    return model.name.replace(".", "__").casefold()


def _sql_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix.casefold() == ".sql" and not is_hidden and path.is_file():
            yield path


def _find_name_problem(path: Path, folder: Path) -> tuple[str, str] | None:
    """Return why a file can't be a model, and what to do about it; None if the file can be a model."""
    if path.parent.parent != folder:
        return "a model is exactly one folder deep", "move it to models/FOLDER/NAME.sql"
    for name in (path.parent.name, path.stem):
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            return f"{name!r} can't be part of a model's name", "rename it with A-Z a-z 0-9 _"
    if path.parent.name.casefold() in RESERVED_FOLDERS:
        return (f"{path.parent.name!r} can't be a folder of models", "rename it: the word is reserved")
    if path.stem.casefold().endswith(INVALID_SUFFIX):
        return (f"a model can't end in {INVALID_SUFFIX}", "rename it: such tables hold invalid rows")
    return None


def _problem(file: str, description: str, remedy: str, *, line: int = 1) -> Problem:
    return Problem(file=file, line=line, description=description, remedy=remedy)


class ParsedModelFile(NamedTuple):
    """A model file, parsed as far as that is possible without the other files."""

    source: ModelFile
    header: Header
    query: ParsedQuery
    line: int  # the line of the file where the query begins
    columns: OutputColumnNames
    event_columns: tuple[EventColumn, ...]

    def problem(self, line: int, description: str, remedy: str) -> Problem:
        """Return a problem at a line of the query."""
        return Problem(file=self.source.file, line=self.line + line - 1, description=description, remedy=remedy)

    def query_problem(self, error: QueryError) -> Problem:
        return self.problem(error.line, error.description, error.remedy)

    def header_problem(self, line: int, description: str, remedy: str) -> Problem:
        return Problem(file=self.source.file, line=line, description=description, remedy=remedy)


def parse_model_file(file: ModelFile, sinks: Collection[str], report: ReportProblem) -> ParsedModelFile | None:
    """Return the file's header and query. Report the problems of the header, of the query, and of their combination."""
    text = read_model_text(file, report)
    if text is None:
        return None
    end = find_header_end(text)
    header, problems = read_header(text[:end], file=file.file, model=file.name, sinks=sinks)
    for problem in problems:
        report(problem)
    line = text.count("\n", 0, end) + 1
    try:
        events = () if header.kind.has_query else read_event_columns(text[end:])
        query = parse_query(empty_query(events) if events else text[end:])
    except QueryError as error:
        report(Problem(file=file.file, line=line + error.line - 1, description=error.description, remedy=error.remedy))
        return None
    draft = ParsedModelFile(file, header, query, line, read_output_columns(query.tree), events)
    checks = (
        _untranslatable_call_problems,
        _misplaced_header_problems,
        _column_problems,
        _unknown_column_problems,
        _incremental_problems,
        _on_change_problems,
    )
    for problem in (problem for check in checks for problem in check(draft)):
        report(problem)
    return draft


def _untranslatable_call_problems(draft: ParsedModelFile) -> Iterator[Problem]:
    """Yield a problem for each call of another dialect that can't be translated to Spark SQL."""
    yield from map(draft.query_problem, draft.query.dialect.problems)


def _misplaced_header_problems(draft: ParsedModelFile) -> Iterator[Problem]:
    """Yield a problem for each header line below the first word of the query: a line there would have no effect."""
    for line, comment in draft.query.comments:
        for header_line in find_header_lines(comment, first_line=line):
            if header_line.word in HEADER_WORDS:
                yield draft.problem(header_line.number, f"@{header_line.spelling} is below the query", "move it above")


def _column_problems(draft: ParsedModelFile) -> Iterator[Problem]:
    """Yield a problem for each column that a table can't have. Only columns that the query's text shows are checked."""
    earlier_names: set[str] = set()
    alias_hint = " with AS" if draft.header.kind.has_query else ""
    for name, line in draft.columns.columns:
        if is_reserved_name(name):
            yield draft.problem(line, f"a column can't be called {name!r}", f"rename it{alias_hint}")
        elif name.casefold() in draft.header.kind.own_columns:
            description = f"kind {draft.header.kind.name} already has a column {name!r}"
            yield draft.problem(line, description, f"rename it{alias_hint}")
        elif name.casefold() in earlier_names:
            yield draft.problem(line, f"column {name!r} is a duplicate", f"rename one of them{alias_hint}")
        earlier_names.add(name.casefold())


def _unknown_column_problems(draft: ParsedModelFile) -> Iterator[Problem]:
    """Yield a problem for each column that the header names and that the query certainly doesn't have."""
    if not draft.columns.is_complete:
        return
    column_names = [column.name for column in draft.columns.columns]
    kind_columns = draft.header.kind.own_columns
    for name, line in draft.header.named_columns:
        if draft.columns.find_column(name) is None and name.casefold() not in kind_columns:
            remedy = suggest_correction(name, column_names, plural="columns")
            yield draft.header_problem(line, f"the query has no column {name!r}", remedy)


def _incremental_problems(draft: ParsedModelFile) -> Iterator[Problem]:
    """Yield a problem if the model has only one of @incremental and {{ last_value }}: it needs both or neither."""
    places, incremental = draft.query.last_values, draft.header.incremental
    if incremental and not places and draft.header.kind.takes_incremental:
        description = "@incremental is there, but the query doesn't use {{ last_value }}"
        remedy = f"add WHERE {incremental.column} >= {{{{ last_value }}}}"
        yield draft.header_problem(draft.header.incremental_line, description, remedy)
    if places and not incremental:
        line = draft.query.sql.count("\n", 0, places[0][0]) + 1
        yield draft.problem(line, "{{ last_value }} needs @incremental", "add -- @incremental: column")


def _on_change_problems(draft: ParsedModelFile) -> Iterator[Problem]:
    """Yield a problem if the model's inputs can't show whether its result would change."""
    header = draft.header
    if header.schedule != ON_CHANGE:
        return
    if not header.kind.has_query:
        description, remedy = "events are flushed without a @schedule", "remove it, or give a time"
        yield draft.header_problem(header.schedule_line, description, remedy)
    elif not draft.query.is_deterministic:
        description = "a query that may give other rows each time can't run on change"
        yield draft.header_problem(header.schedule_line, description, "give @schedule a time, such as 0 6 * * *")


FileStates: TypeAlias = frozenset[tuple[str, int, int]]


def read_file_states(root: Path, patterns: Iterable[str]) -> FileStates:
    """Return each file's path, modification time and size. If a later result is different, a file has changed."""
    states = []
    for path in (path for pattern in patterns for path in root.glob(pattern)):
        with contextlib.suppress(FileNotFoundError):
            state = path.stat()
            states.append((str(path), state.st_mtime_ns, state.st_size))
    return frozenset(states)
