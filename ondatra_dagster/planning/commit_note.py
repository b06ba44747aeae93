"""What a Delta commit remembers of the run that made it: its user metadata, as one value.

The warehouse writes it, the plan reads it: so data and state can't disagree.
"""

import dataclasses
from collections.abc import Mapping
from typing import Self

import orjson


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommitNote:
    definition: str
    inputs: Mapping[str, str]  # Input.name → its version, as planning.versions spells it
    run_id: str
    rows: int | None = None  # in the table after this commit
    fingerprint: str | None = None  # of the whole content, where the kind compares whole tables
    checks: str = ""  # a digest of the checks that were judged before the commit
    warned: Mapping[str, int] = dataclasses.field(default_factory=dict)  # @warning → how many rows failed it

    def dump(self) -> str:
        return orjson.dumps({"ondatra": 1, **dataclasses.asdict(self)}, option=orjson.OPT_SORT_KEYS).decode()

    @classmethod
    def load(cls, text: str | None) -> Self | None:
        """The note in a commit's user metadata; None when somebody else's hand made the commit."""
        try:
            fields = orjson.loads(text or "")
        except orjson.JSONDecodeError:
            return None
        if not isinstance(fields, dict) or fields.pop("ondatra", None) != 1:
            return None
        return cls(**fields)
