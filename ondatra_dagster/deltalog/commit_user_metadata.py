"""The user metadata of a Delta commit: the definition, the inputs and the run that made the commit.

The warehouse writes it and the plan reads it, so data and state can't disagree.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import orjson

from ondatra_dagster.count_time_and_size_format import ondatra_version
from ondatra_dagster.errors import WarehouseError

FORMAT_KEY, FORMAT_VERSION = "ondatra", 1  # the version increases when an older ondatra would misunderstand the content


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommitMetadata:
    definition: str
    inputs: Mapping[str, str]  # Input.name → its version, as planning/input_versions.py writes it
    run_id: str
    rows: int | None = None  # in the table after this commit
    fingerprint: str | None = None  # of the whole content, for a kind that compares whole tables
    checks: str = ""  # a digest of the checks that were evaluated before the commit
    warned: Mapping[str, int] = dataclasses.field(default_factory=dict)  # @warning → the number of rows that failed it

    def dump(self) -> str:
        return orjson.dumps(
            {FORMAT_KEY: FORMAT_VERSION, **dataclasses.asdict(self)}, option=orjson.OPT_SORT_KEYS
        ).decode()

    @classmethod
    def load(cls, text: str | None) -> Self | None:
        """Return the value of a commit's user metadata; None if the text isn't in this format.

        Another program's commit has no such metadata. Fields that only a newer ondatra knows are ignored.
        """
        fields = _parse_fields(text)
        if fields.get(FORMAT_KEY) != FORMAT_VERSION:
            return None
        known_names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in fields.items() if name in known_names})


def is_from_newer_version(text: str | None) -> bool:
    """Return whether the user metadata has a format that only a newer ondatra understands."""
    number = _parse_fields(text).get(FORMAT_KEY)
    return isinstance(number, int) and number > FORMAT_VERSION


def newer_version_error(subject: str) -> WarehouseError:
    """Return the error for something that a newer ondatra made, with its remedy."""
    return WarehouseError(
        f"{subject} was made by a newer ondatra than this, which is {ondatra_version()}: use that one here"
    )


def _parse_fields(text: str | None) -> dict[str, Any]:
    try:
        fields = orjson.loads(text or "")
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}
