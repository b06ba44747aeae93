"""The values that describe a model: its inputs, sink and settings. Nothing here reads a file."""

import dataclasses
import enum
import hashlib
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ondatra_dagster.project.model_kinds import Kind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput:
    """Another model of the project."""

    model: str  # its name, casefolded

    @property
    def name(self) -> str:
        return self.model


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileInput:
    """Files that the query reads by path: csv.`data/x.csv` WITH ('header' = 'true')."""

    format: str  # csv, json, parquet
    path: str  # as written: relative to the project
    options: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        options = ", ".join(f"'{key}' = '{value}'" for key, value in self.options)
        return f"{self.format}.`{self.path}`" + (f" WITH ({options})" if options else "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceInput:
    """A table that exists already, found through [tool.ondatra.sources]."""

    source: str
    table: str
    location: str  # a folder of tables, or "catalog.schema"

    @property
    def name(self) -> str:
        return f"{self.source}.{self.table}"


Input: TypeAlias = ModelInput | FileInput | SourceInput


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One place in the query where an input's name stands, to be replaced by the name of its view."""

    start: int  # offsets into Model.sql; end is exclusive
    end: int
    input: Input
    alias: str | None = None  # what to call it where the query gives no alias of its own
    name_end: int | None = None  # where the name ends when a TABLESAMPLE stands between it and the alias
    is_qualifier: bool = False  # mart.customers.id: the part before the column


class TextEdit(NamedTuple):
    """Other words for a stretch of the query; an empty stretch is a place between two words."""

    start: int  # offsets into Model.sql; end is exclusive
    end: int
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class RowLimit:
    """A number of rows, or a percentage of them, just as it was written."""

    amount: Decimal
    is_percentage: bool = False

    def is_exceeded_by(self, count: int, *, of: int) -> bool:
        """Whether so many of so many rows are more than that."""
        return count * 100 > self.amount * of if self.is_percentage else count > self.amount


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelSink:
    """A model's @sink line."""

    name: str  # lib/NAME.star
    arguments: tuple[str, ...]
    sync_id: str
    line: int
    max_rejects: RowLimit | None = None
    max_deletes: RowLimit | None = None
    max_lag_seconds: float = 24 * 3600


class CheckType(enum.StrEnum):
    """Which rows a check looks at, and what becomes of a run in which one of them fails it."""

    CONSTRAINT = "constraint"  # those that the query gave: nothing is written
    WARNING = "warning"  # the same: all is written
    AUDIT = "audit"  # those of the table as it would be: nothing is written


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckCondition:
    """A Spark SQL boolean over the columns of one row."""

    condition: str  # as the user wrote it, without a comment behind it; null passes
    sql: str  # the same in Spark's words
    words: tuple[str, ...]  # what the condition says, without white space
    columns: tuple[str, ...]  # that the condition names, each once


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowCheck(CheckCondition):
    """A model's @constraint, @warning or @audit line."""

    check_type: CheckType
    name: str  # one of its own among the model's
    line: int

    def __str__(self) -> str:
        return f"@{self.check_type} {self.condition}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """What a field of an event has to be."""

    name: str  # in Spark's plain words: string, bigint, decimal, array, map, struct, …
    precision: int = 0  # of a decimal
    scale: int = 0
    type_arguments: tuple["EventType", ...] = ()  # an array's element; a map's key and value; a struct's fields
    fields: tuple[str, ...] = ()  # the names of the latter

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
    type: str  # as Spark spells it
    event_type: EventType
    is_required: bool = False
    line: int = dataclasses.field(default=1, compare=False)  # within the definitions


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Incremental:
    """A model's @incremental line: its query asks for what is newer than its last results."""

    column: str
    initial: str | None = None  # what counts as the last value before there is one


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One SQL file."""

    name: str  # sync.hubspot, as the file is spelled
    path: Path
    file: str  # relative to the project, for messages
    kind: Kind
    sql: str  # the query alone
    sql_line: int  # where it begins in the file
    definition: str  # a digest of all that decides what the query gives; comments and white space don't
    inputs: tuple[Input, ...] = ()
    references: tuple[Reference, ...] = ()
    edits: tuple[TextEdit, ...] = ()  # what Spark says otherwise
    is_deterministic: bool = True  # the same inputs give the same rows: False always runs
    is_row_by_row: bool = False  # each row of its one input gives rows by itself
    is_ordered: bool = False  # by an ORDER BY of the whole
    last_values: tuple[tuple[int, int], ...] = ()  # where {{ last_value }} stands in `sql`; end is exclusive
    incremental: Incremental | None = None
    event_columns: tuple[EventColumn, ...] = ()  # of kind events, which has no query of the user's
    key_columns: tuple[str, ...] = ()
    storage_columns: tuple[str, ...] = ()  # rows that are equal in these are to lie together
    sink: ModelSink | None = None
    description: str | None = None
    owners: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    column_descriptions: tuple[tuple[str, str], ...] = ()
    checks: tuple[RowCheck, ...] = ()
    schedule: str | None = None  # cron, in UTC, or ON_CHANGE

    @property
    def id(self) -> str:
        """The name that models are told apart by: without regard to case."""
        return self.name.casefold()

    @property
    def key_path(self) -> list[str]:
        return self.name.split(".")

    @property
    def checks_digest(self) -> str:
        """A digest of all that is checked: they change nothing in what the query gives. "" is no check."""
        if not self.checks:
            return ""
        said = sorted(f"{check.check_type} {' '.join(check.words)}" for check in self.checks)
        return hashlib.sha256("\n".join(said).encode()).hexdigest()
