"""What the demo API remembers, in memory and, when asked, in one small file.

The file is what makes two runs of the example meet the same destination.
"""

import datetime
from pathlib import Path
from typing import Any

import orjson

from ondatra_dagster.changes import Json
from ondatra_dagster.testing.calls import Answer, Call
from ondatra_dagster.testing.demo_api.destination import Destination

KEPT_CALLS = 100  # in the file; in memory all are kept
KEPT_ANSWERS = 500


class DemoState:
    """What is held, the calls that made it, and the answers that idempotency keys stand for."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file.absolute() if file else None
        self.destination = Destination()
        self.calls: list[Call] = []
        self.answers: dict[str, Answer] = {}
        if self.file and self.file.exists():
            self._load(orjson.loads(self.file.read_bytes()))

    def remember(self, call: Call, answer: Answer) -> None:
        """Keep a call, and its answer for its idempotency key: what a caller hears is on disk by then."""
        self.calls.append(call)
        if call.idempotency_key and answer.status and call.method in {"POST", "PATCH"}:
            self.answers[call.idempotency_key] = answer
        if self.file:
            self._save(self.file)

    def clear(self) -> None:
        self.destination.clear()
        self.calls.clear()
        self.answers.clear()

    def summary(self) -> dict[str, Json]:
        """What is held, as GET /state tells it."""
        return {
            "state_file": str(self.file) if self.file else None,
            **{name: dict(records) for name, records in self.destination.held().items()},
            "calls": len(self.calls),
        }

    def _load(self, kept: Any) -> None:
        """Take up what `_save` wrote."""
        for name, there in (*self.destination.held().items(), *self.destination.jobs().items()):
            there.update(kept.get(name, {}))  # an older file hasn't all of them
        self.answers = {key: Answer(*answer) for key, answer in kept["answers"].items()}
        self.calls = [
            Call(**call)._replace(at=datetime.datetime.fromisoformat(call["at"])) for call in kept["calls"]
        ]

    def _save(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        kept = {
            **self.destination.held(),
            **self.destination.jobs(),
            "answers": {key: list(answer) for key, answer in list(self.answers.items())[-KEPT_ANSWERS:]},
            "calls": [call._asdict() for call in self.calls[-KEPT_CALLS:]],
        }
        beside = file.with_name(file.name + ".new")
        beside.write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2))
        beside.replace(file)
