"""The parser of one model file: its header, its query, and whether the two agree.

project_loader.py checks what needs the other files: inputs, cycles, sync ids.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ondatra_dagster.errors import Problem
from ondatra_dagster.project.file_discovery import ModelFile, ReportProblem, read_model_text
from ondatra_dagster.project.header_value_parsers import ON_CHANGE
from ondatra_dagster.project.model import EventColumn
from ondatra_dagster.project.model_header import HEADER_WORDS, Header, find_header_end, find_header_lines, read_header
from ondatra_dagster.project.spelling_suggestions import suggest_correction
from ondatra_dagster.project.sql.event_schema import empty_query, read_event_columns
from ondatra_dagster.project.sql.output_columns import OutputColumnNames, is_reserved_name, read_output_columns
from ondatra_dagster.project.sql.query_parser import ParsedQuery, parse_query
from ondatra_dagster.project.sql.tokenizer import QueryError


class ParsedModelFile(NamedTuple):
    """One model file, read as far as it can be read by itself."""

    source: ModelFile
    header: Header
    query: ParsedQuery
    line: int  # where the query begins
    columns: OutputColumnNames
    event_columns: tuple[EventColumn, ...]

    def problem(self, line: int, what: str, remedy: str) -> Problem:
        """A problem at a line of the query."""
        return Problem(file=self.source.file, line=self.line + line - 1, description=what, remedy=remedy)

    def header_problem(self, line: int, what: str, remedy: str) -> Problem:
        return Problem(file=self.source.file, line=line, description=what, remedy=remedy)


def parse_model_file(file: ModelFile, sinks: Collection[str], report: ReportProblem) -> ParsedModelFile | None:
    """The file's header and query; reports what is wrong with either, and with both together."""
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
    looks = (
        _untranslatable_call_problems,
        _misplaced_header_problems,
        _column_problems,
        _unknown_column_problems,
        _incremental_problems,
        _on_change_problems,
    )
    for problem in (problem for look in looks for problem in look(draft)):
        report(problem)
    return draft


def _untranslatable_call_problems(draft: ParsedModelFile) -> Iterator[Problem]:
    """Calls of another dialect that can't be put into Spark's words."""
    for error in draft.query.dialect.problems:
        yield draft.problem(error.line, error.description, error.remedy)


def _misplaced_header_problems(draft: ParsedModelFile) -> Iterator[Problem]:
    """Header lines below the first word of the query: nobody would read them."""
    for line, comment in draft.query.comments:
        for late in find_header_lines(comment, first_line=line):
            if late.word in HEADER_WORDS:
                yield draft.problem(late.number, f"@{late.spelling} stands below the query", "move it above")


def _column_problems(draft: ParsedModelFile) -> Iterator[Problem]:
    """Columns that a table can't have, as far as the query's text shows them."""
    seen: set[str] = set()
    how = " with AS" if draft.header.kind.has_query else ""
    for name, line in draft.columns.columns:
        if is_reserved_name(name):
            yield draft.problem(line, f"a column can't be called {name!r}", f"rename it{how}")
        elif name.casefold() in draft.header.kind.own_columns:
            what = f"kind {draft.header.kind.name} has a column {name!r} of its own"
            yield draft.problem(line, what, f"rename it{how}")
        elif name.casefold() in seen:
            yield draft.problem(line, f"column {name!r} comes twice", f"rename one of them{how}")
        seen.add(name.casefold())


def _unknown_column_problems(draft: ParsedModelFile) -> Iterator[Problem]:
    """Columns that the header names and the query surely doesn't have."""
    if not draft.columns.is_complete:
        return
    known = [column.name for column in draft.columns.columns]
    own = draft.header.kind.own_columns
    for name, line in draft.header.named_columns:
        if draft.columns.find_column(name) is None and name.casefold() not in own:
            remedy = suggest_correction(name, known, plural="columns")
            yield draft.header_problem(line, f"the query has no column {name!r}", remedy)


def _incremental_problems(draft: ParsedModelFile) -> Iterator[Problem]:
    """@incremental and {{ last_value }} need each other."""
    places, incremental = draft.query.last_values, draft.header.incremental
    if incremental and not places and draft.header.kind.takes_incremental:
        what = "@incremental is there, but the query doesn't use {{ last_value }}"
        remedy = f"add WHERE {incremental.column} >= {{{{ last_value }}}}"
        yield draft.header_problem(draft.header.incremental_line, what, remedy)
    if places and not incremental:
        line = draft.query.sql.count("\n", 0, places[0][0]) + 1
        yield draft.problem(line, "{{ last_value }} needs @incremental", "add -- @incremental: column")


def _on_change_problems(draft: ParsedModelFile) -> Iterator[Problem]:
    """Models of which nobody can tell by what they read whether they would change."""
    header = draft.header
    if header.schedule != ON_CHANGE:
        return
    if not header.kind.has_query:
        what, remedy = "events are flushed without a @schedule", "remove it, or give a time"
        yield draft.header_problem(header.schedule_line, what, remedy)
    elif not draft.query.is_deterministic:
        what = "a query that may give other rows each time can't run on change"
        yield draft.header_problem(header.schedule_line, what, "give @schedule a time, such as 0 6 * * *")
