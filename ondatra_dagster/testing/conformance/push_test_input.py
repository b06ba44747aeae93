"""A test case of a push function: the function's file, and versions of the rows to push."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from ondatra_dagster.project.model_kinds import KINDS, Kind
from ondatra_dagster.row_changes import Json
from ondatra_dagster.testing.fake_api import AnswerFunction

Row: TypeAlias = Mapping[str, Json]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushCase:
    """A test case of one push function, as one model uses it.

    `versions` has the rows that the model's query returns in each run. Rows appear, change and disappear. The API has
    to accept all of them. Values have the form in which push() gets them: dates and decimals are texts.
    """

    library: Path | str  # lib/NAME.star
    kind: str
    versions: Sequence[Sequence[Row]]
    key: Sequence[str] = ()  # the columns of @unique_key, @group_key or @partitioned_by
    arguments: Sequence[str] = ()  # the arguments in @sink: name('x', 'y')
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)  # column → its type, as Spark spells it
    answer: AnswerFunction | None = None  # answers calls in which your API differs from a plain REST API
    id_fields: Sequence[str] = ()  # the fields that name a POSTed record in its address; default: the key
    heeds_idempotency_keys: bool = False  # whether your API carries out a repeated call only once
    # whether the API's final content equals the table; default: True for all kinds except append and scd2
    is_mirror: bool | None = None
    never_null: Sequence[str] = ()  # columns that never contain a null, in addition to the key's columns

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is not a kind; kinds are {', '.join(KINDS)}")
        if self.model_kind.needs_key and not self.key:
            raise ValueError(f"kind {self.kind} needs a key: key=['column']")
        if not self.versions or not self.versions[0]:
            raise ValueError("versions needs rows: a list with the query's result of each run")

    @property
    def model_kind(self) -> Kind:
        return KINDS[self.kind]

    @property
    def library_path(self) -> Path:
        return Path(self.library).absolute()

    @property
    def must_mirror_table(self) -> bool:
        """Return whether the API's final content depends only on the table, and not on its earlier versions."""
        return self.kind not in ("append", "scd2") if self.is_mirror is None else self.is_mirror

    def with_versions(self, *versions: Sequence[Row]) -> "PushCase":
        return dataclasses.replace(self, versions=versions)
