"""The values that describe a model: its inputs, sink and settings. This module reads no files."""

import dataclasses
import enum
import hashlib
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ondatra_dagster.project.model_kinds import Kind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput:
    """An input that is another model of the project."""

    model: str  # the model's name, casefolded

    @property
    def name(self) -> str:
        return self.model


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileInput:
    """The files that the query reads by path: csv.`data/x.csv` WITH ('header' = 'true')."""

    format: str  # csv, json, parquet
    path: str  # as written; relative to the project
    options: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        options = ", ".join(f"'{key}' = '{value}'" for key, value in self.options)
        return f"{self.format}.`{self.path}`" + (f" WITH ({options})" if options else "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceInput:
    """An input that is an existing table of a source in [tool.ondatra.sources]."""

    source: str
    table: str
    location: str  # a folder of tables, or "catalog.schema"

    @property
    def name(self) -> str:
        return f"{self.source}.{self.table}"


Input: TypeAlias = ModelInput | FileInput | SourceInput


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A place in the query that names an input. The input's name is replaced there by the name of its view."""

    start: int  # offsets into Model.sql; end is exclusive
    end: int
    input: Input
    alias: str | None = None  # the alias to add if the query has none
    name_end: int | None = None  # the end of the name if a TABLESAMPLE is between it and the alias
    is_qualifier: bool = False  # True: the name qualifies a column, as in mart.customers.id


class TextEdit(NamedTuple):
    """A replacement for a part of the query. If the part is empty, the text is inserted between two words."""

    start: int  # offsets into Model.sql; end is exclusive
    end: int
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class RowLimit:
    """A limit from the header: a number of rows, or a percentage of all rows."""

    amount: Decimal
    is_percentage: bool = False

    def is_exceeded_by(self, count: int, *, of: int) -> bool:
        """Return whether `count` rows out of `of` are more than the limit."""
        return count * 100 > self.amount * of if self.is_percentage else count > self.amount


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelSink:
    """The value of a model's @sink line."""

    name: str  # lib/NAME.star
    arguments: tuple[str, ...]
    sync_id: str
    line: int
    max_rejects: RowLimit | None = None
    max_deletes: RowLimit | None = None
    max_lag_seconds: float = 24 * 3600


class CheckType(enum.StrEnum):
    """The type of a check. It decides which rows are checked, and what the run does if a row fails."""

    CONSTRAINT = "constraint"  # checks the query's rows; if one fails, nothing is written
    WARNING = "warning"  # checks the query's rows; all rows are written, also those that fail
    AUDIT = "audit"  # checks the rows of the new table; if one fails, nothing is written


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckCondition:
    """A condition of a check: a Spark SQL boolean over the columns of one row."""

    condition: str  # as the user wrote it, without a comment after it; a row for which it is null passes
    sql: str  # the same condition in Spark SQL
    words: tuple[str, ...]  # the words of the condition, without white space
    columns: tuple[str, ...]  # the columns that the condition names, each once


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowCheck(CheckCondition):
    """A @constraint, @warning or @audit line of a model."""

    check_type: CheckType
    name: str  # unique within the model
    line: int

    def __str__(self) -> str:
        return f"@{self.check_type} {self.condition}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """The type of an event's field."""

    name: str  # Spark's name of the type, such as string, bigint, decimal, array, map, struct
    precision: int = 0  # the precision of a decimal
    scale: int = 0
    # the types of an array's element, of a map's key and value, or of a struct's fields
    type_arguments: tuple["EventType", ...] = ()
    fields: tuple[str, ...] = ()  # the names of a struct's fields

    def __str__(self) -> str:
        word = self.name.upper()
        if self.name == "decimal":
            return f"{word}({self.precision}, {self.scale})"
        if self.fields:
            pairs = zip(self.fields, self.type_arguments, strict=True)
            return f"{word}<{', '.join(f'{name}: {part}' for name, part in pairs)}>"
        return f"{word}<{', '.join(map(str, self.type_arguments))}>" if self.type_arguments else word


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventColumn:
    """A column that a model of kind events defines."""

    name: str
    type: str  # in Spark's spelling
    event_type: EventType
    is_required: bool = False
    line: int = dataclasses.field(default=1, compare=False)  # the line within the column definitions


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Incremental:
    """The values of a model's @incremental lines: the query reads only rows that are newer than its last results."""

    column: str
    initial: str | None = None  # the last value as long as the table has no value in the column


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model: one SQL file."""

    name: str  # sync.hubspot, in the spelling of the file
    path: Path
    file: str  # relative to the project, for messages
    kind: Kind
    sql: str  # the query alone
    sql_line: int  # the line of the file where the query begins
    definition: str  # a digest of everything that decides the query's result, without comments and white space
    inputs: tuple[Input, ...] = ()
    references: tuple[Reference, ...] = ()
    edits: tuple[TextEdit, ...] = ()  # the replacements for words of other SQL dialects
    is_deterministic: bool = True  # the same inputs always give the same rows; if False, every run evaluates the query
    is_row_by_row: bool = False  # each row of the only input gives its rows independently of other rows
    is_ordered: bool = False  # the outermost query has an ORDER BY
    last_values: tuple[tuple[int, int], ...] = ()  # the places of {{ last_value }} in `sql`; end is exclusive
    incremental: Incremental | None = None
    event_columns: tuple[EventColumn, ...] = ()  # only for kind events, where the user writes no query
    key_columns: tuple[str, ...] = ()
    storage_columns: tuple[str, ...] = ()  # rows with equal values in these columns are stored together
    sink: ModelSink | None = None
    description: str | None = None
    owners: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    column_descriptions: tuple[tuple[str, str], ...] = ()
    checks: tuple[RowCheck, ...] = ()
    schedule: str | None = None  # cron, in UTC, or ON_CHANGE

    @property
    def id(self) -> str:
        """Return the model's id: its casefolded name, because case doesn't matter."""
        return self.name.casefold()

    @property
    def key_path(self) -> list[str]:
        return self.name.split(".")

    @property
    def checks_digest(self) -> str:
        """Return a digest of the model's checks, "" if it has none.

        It is separate from `definition`, because no check changes the query's result.
        """
        if not self.checks:
            return ""
        check_texts = sorted(f"{check.check_type} {' '.join(check.words)}" for check in self.checks)
        return hashlib.sha256("\n".join(check_texts).encode()).hexdigest()
