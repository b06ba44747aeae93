"""What a request asks for: of which sync, and what its address says beside. What can't be is a sentence."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.delivery.queue.unit_counts import Operation
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.project.suggestions import correction
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.found import Search, Stage
from ondatra_dagster.tracking.record import INVALID

# what the records of a kind have whose rows are updated one by one
CHANGE_TYPES = {
    Operation.INSERT: ChangeType.INSERT,
    Operation.UPDATE: ChangeType.UPDATE_POSTIMAGE,
    Operation.DELETE: ChangeType.DELETE,
}
MOST_PAGES = 1_000_000  # more than anybody turns, and still a number that SQLite takes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request for a page."""

    workspace: Workspace
    path: Mapping[str, str]  # the parts of the path that have a name
    query: Mapping[str, str]

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.workspace.clock(), UTC)

    @property
    def sync(self) -> Sync:
        """The sync that the path names; raises SelectionError where the project has none of that id."""
        name = self.path["sync"]
        return self.workspace.syncs.get(name) or self.workspace.sync(name)

    @property
    def run(self) -> str | None:
        """The run whose records are asked for; None: of all."""
        return self.text("run")

    @property
    def stage(self) -> Stage | None:
        status = self.text("status")
        return Stage.named(status) if status else None

    @property
    def status(self) -> str | None:
        """What of its stage is asked for: NULL or DUPLICATE; else the stage."""
        status = self.text("status")
        return status if status in INVALID else self.stage

    @property
    def change(self) -> Operation | None:
        """What the records are to the destination that are asked for."""
        text = self.text("change")
        if text is None or text in set(Operation):
            return Operation(text) if text else None
        raise SelectionError(
            f"there is no change {text!r}; {correction(text, [*map(str, Operation)], plural='changes')}"
        )

    @property
    def reason(self) -> str | None:
        """An empty one asks for records of which nothing was said."""
        return self.query.get("reason")

    @property
    def prefix(self) -> str:
        return self.text("search") or ""

    @property
    def page(self) -> int:
        return self.number("page", most=MOST_PAGES) or 1

    def text(self, name: str) -> str | None:
        """A value of the address; an empty one is none."""
        return self.query.get(name) or None

    def number(self, name: str, *, most: int) -> int | None:
        """A whole number above zero."""
        text = self.text(name)
        if text is None:
            return None
        is_short = len(text) <= len(str(most))  # zeros before a number could hide how large it is
        if not (is_short and text.isascii() and text.isdecimal() and 0 < int(text) <= most):
            raise SelectionError(f"{name} can't be {text!r}; it is a number from 1 to {most:,}")
        return int(text)

    def search(self, *, limit: int | None, offset: int = 0) -> Search:
        """The records that are asked for."""
        return Search(
            run_id=self.run,
            stage=self.stage,
            status=self.status if self.status in INVALID else None,
            change_type=CHANGE_TYPES[self.change] if self.change else None,
            prefix=self.prefix,
            message=self.reason,
            limit=limit,
            offset=offset,
        )
