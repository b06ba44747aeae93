"""The state of the demo API, in memory and, on request, in one small file.

With the file, a second run of the example finds the records of the first.
"""

import datetime
from pathlib import Path
from typing import Any

import orjson

from ondatra_dagster.row_changes import Json
from ondatra_dagster.testing.demo_api.crm_and_erp import CrmAndErp
from ondatra_dagster.testing.fake_api_server import Answer, RecordedCall

MAX_SAVED_CALLS = 100  # the number of calls in the file; memory has all of them
MAX_SAVED_ANSWERS = 500


class DemoState:
    """The records, the calls that wrote them, and the answers by idempotency key."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file.absolute() if file else None
        self.crm_and_erp = CrmAndErp()
        self.calls: list[RecordedCall] = []
        self.answers: dict[str, Answer] = {}
        if self.file and self.file.exists():
            self._load_file(orjson.loads(self.file.read_bytes()))

    def store_call(self, call: RecordedCall, answer: Answer) -> None:
        """Store a call in memory and in the file before the caller gets the answer.

        The answer to a POST or PATCH is also stored by its idempotency key.
        """
        self.calls.append(call)
        if call.idempotency_key and answer.status and call.method in {"POST", "PATCH"}:
            self.answers[call.idempotency_key] = answer
        if self.file:
            self._save_file(self.file)

    def clear(self) -> None:
        self.crm_and_erp.clear()
        self.calls.clear()
        self.answers.clear()

    def summary(self) -> dict[str, Json]:
        """Return the state in the form that GET /state shows."""
        return {
            "state_file": str(self.file) if self.file else None,
            **{name: dict(records) for name, records in self.crm_and_erp.records_by_collection().items()},
            "calls": len(self.calls),
        }

    def _load_file(self, content: Any) -> None:
        """Load the content of a file that `_save_file` wrote."""
        for name, records in (
            *self.crm_and_erp.records_by_collection().items(),
            *self.crm_and_erp.jobs_by_endpoint().items(),
        ):
            records.update(content.get(name, {}))  # a file of an older version doesn't have all collections
        self.answers = {key: Answer(*answer) for key, answer in content["answers"].items()}
        self.calls = [
            RecordedCall(**call)._replace(at=datetime.datetime.fromisoformat(call["at"])) for call in content["calls"]
        ]

    def _save_file(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        saved_state = {
            **self.crm_and_erp.records_by_collection(),
            **self.crm_and_erp.jobs_by_endpoint(),
            "answers": {key: list(answer) for key, answer in list(self.answers.items())[-MAX_SAVED_ANSWERS:]},
            "calls": [call._asdict() for call in self.calls[-MAX_SAVED_CALLS:]],
        }
        new_file = file.with_name(file.name + ".new")
        new_file.write_bytes(orjson.dumps(saved_state, option=orjson.OPT_INDENT_2))
        new_file.replace(file)
