"""The tables of a dry run: models are written to clones of theirs, and what isn't written is the real table.

How a clone is made belongs to warehouse; how a sync's queue is copied, to dry_engine.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ondatra_dagster.arrivals import WaitingEvents
from ondatra_dagster.operations.sync_log import LogTable
from ondatra_dagster.operations.tables import Maintained, UpkeepTable
from ondatra_dagster.orchestration.engine import Tables, Written
from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_log import (
    INVALID_SUFFIX,
    TableState,
    read_table_state,
    warehouse_path,
)
from ondatra_dagster.planning.plan import NEVER
from ondatra_dagster.planning.versions import table_version
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.settings.addresses import Address
from ondatra_dagster.project.settings.settings import Scratch, Settings
from ondatra_dagster.sync.ports import Feed, SourceState
from ondatra_dagster.sync.spliced_feed import SplicedFeed
from ondatra_dagster.sync.sync import Sync


class CloningTables(Tables, Protocol):
    """A warehouse in which a dry run can have clones."""

    def clone(self, original: Address, state: TableState, path: Address) -> None:
        """Make a table at `path` of what another one is."""

    def feed_at(self, sync: Sync, table: Address) -> Feed:
        """The change feed of a table of the sync's model, wherever it is."""


class Clone(NamedTuple):
    """A model's table in a dry run; without an original the dry run makes the first there is."""

    path: Address
    original: TableState | None
    original_invalid: TableState | None


class DryTables:
    """Writes nothing but clones, each made before its model is computed."""

    def __init__(self, tables: CloningTables, settings: Settings) -> None:
        if settings.scratch is None:
            raise ValueError("a dry run wants settings with a scratch")
        self._tables = tables
        self._settings = settings
        self._scratch: Scratch = settings.scratch
        self._clones: dict[str, Clone] = {}
        self.start_early, self.activity = tables.start_early, tables.activity

    @property
    def is_open(self) -> bool:
        return self._tables.is_open

    def sync_log(self, *, waits: bool = True) -> LogTable:
        """The real one, which a dry run has nothing for."""
        return self._tables.sync_log(waits=waits)

    def upkeep(self, table: Maintained) -> UpkeepTable:
        """The real one, which a dry run has nothing for either."""
        return self._tables.upkeep(table)

    def compute(self, model: Model, versions: Mapping[str, str], *, is_full: bool = False) -> Any:
        """What the model's query gives; its table's clone is as it is from now on."""
        self._clone(model.id)
        return self._tables.compute(model, versions, is_full=is_full)

    def write(
        self,
        model: Model,
        frame: Any,
        note: CommitNote,
        *,
        is_full: bool = False,
        planned: str | None = None,
        events: WaitingEvents | None = None,
    ) -> Written:
        """Bring the clone to the frame; asked anew when the original is another than was planned from."""
        clone = self._clones[model.id]
        is_as_planned = planned == (table_version(clone.original) if clone.original else "")
        written = self._tables.write(
            model,
            frame,
            note,
            is_full=is_full,
            planned=None if is_as_planned else "",
            events=events,
        )
        now = read_table_state(clone.path)
        if clone.original and now and not now.log_version:
            del self._scratch.tables[model.id]  # whoever reads it reads the real one, at the real version
        return written

    def _clone(self, model_id: str) -> None:
        real = warehouse_path(self._settings, model_id)
        path = Address(self._scratch.below, real.s3).below(*model_id.split("."))
        clone = Clone(path, read_table_state(real), read_table_state(real + INVALID_SUFFIX))
        if clone.original:
            self._tables.clone(real, clone.original, path)
        if clone.original_invalid:
            self._tables.clone(real + INVALID_SUFFIX, clone.original_invalid, path + INVALID_SUFFIX)
        self._clones[model_id] = clone
        self._scratch.tables[model_id] = path

    def version(self, model: Model, written: Written) -> int:
        """That of what was written, as if it had been written to the real table."""
        return _later(self._clones[model.id].original, written.version)

    def feed(self, sync: Sync) -> Feed:
        """The changes of the real table, and after them those of its clone."""
        real = self._tables.feed_at(sync, warehouse_path(self._settings, sync.model.id))
        clone = self._clones.get(sync.model.id)
        if clone is None:
            return real
        later = self._tables.feed_at(sync, clone.path)
        if clone.original is None:
            return later
        aside = clone.original_invalid
        return SplicedFeed(
            before=real,
            after=later,
            at=clone.original.log_version,
            invalid_at=aside.log_version if aside else None,
        )

    def source(self, sync: Sync) -> SourceState | None:
        """The model's table as a run would leave it; None when the dry run didn't compute it."""
        clone = self._clones.get(sync.model.id)
        now = read_table_state(clone.path) if clone else None
        if clone is None or now is None:
            return None
        aside = read_table_state(clone.path + INVALID_SUFFIX)
        return SourceState(
            table_id=clone.original.table_id if clone.original else now.table_id,
            version=_later(clone.original, now.version),
            invalid_version=_later(clone.original_invalid, aside.version) if aside else NEVER,
            set_aside=(aside.note.rows or 0) if aside and aside.note else 0,
            columns=now.columns,
            rows=now.note.rows if now.note else None,
        )


def _later(original: TableState | None, version: int) -> int:
    """A clone's version, had its commits been made to its original; where there are none, that one's own."""
    if original is None:
        return version
    return original.log_version + version if version else original.version
