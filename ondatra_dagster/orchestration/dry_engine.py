"""The engine of a dry run: it plans, computes and takes in as any other, on clones and copies, and no more.

The same calls come to the same code; only tables and queues are in another place, which goes at the end.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import NoReturn

from ondatra_dagster import interruption
from ondatra_dagster.arrivals import WaitingEvents
from ondatra_dagster.collector.event_file import event_path
from ondatra_dagster.orchestration import sync_runs
from ondatra_dagster.orchestration.dry_tables import CloningTables, DryTables
from ondatra_dagster.orchestration.engine import Computed, Engine, Written
from ondatra_dagster.orchestration.progress import ModelResult, Progress, SyncResult
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.plan import ModelStep, plan_model
from ondatra_dagster.planning.scratch import open_scratch
from ondatra_dagster.project.model import Model
from ondatra_dagster.store import database
from ondatra_dagster.store.state_id import UNKNOWN, StateId, known_state_id
from ondatra_dagster.sync.dry_run import dry_run
from ondatra_dagster.sync.hold import hold, pause
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.sync import Sync


@contextlib.contextmanager
def open_dry_workspace(workspace: Workspace) -> Iterator[Workspace]:
    """The workspace as a dry run has it: its queues are copies, and its tables may come to be clones."""
    with open_scratch(workspace.settings) as settings:
        assert settings.scratch  # noqa: S101 - for the type checker
        folder = settings.scratch.folder
        project = dataclasses.replace(workspace.project, settings=settings)
        syncs = {name: dataclasses.replace(sync, state=folder) for name, sync in workspace.syncs.items()}
        for name, sync in workspace.syncs.items():
            _copy_queue(sync, syncs[name])
        if (events := event_path(workspace.settings)).exists():
            database.copy(events, event_path(settings))
        yield dataclasses.replace(workspace, project=project, syncs=syncs)


def _copy_queue(sync: Sync, to: Sync) -> None:
    if sync.queue.exists():
        database.copy(sync.queue, to.queue)
    if sync.pause.exists():
        pause(to)


class DryEngine(Engine):
    """A project that is only looked at."""

    is_dry = True

    def __init__(
        self,
        workspace: Workspace,
        rehearsed: Workspace,
        tables: CloningTables,
        *,
        progress: Progress | None = None,
    ) -> None:
        self._dry_tables = DryTables(tables, rehearsed.settings)
        self._rehearsed = rehearsed
        super().__init__(workspace, self._dry_tables, progress=progress)

    def plan_model(self, model: Model, *, is_full: bool = False) -> ModelStep:
        """Whether the model would have to be computed, when all that it reads has had its turn."""
        return plan_model(self.workspace.project, model, self._rehearsed.look(), is_full=is_full)

    def _remember_no_change(self, model: Model, written: Written) -> None:
        """The next run has to find this out for itself."""

    def _events(self, model: Model) -> WaitingEvents | None:
        return self._rehearsed.events(model)

    def _forget_events(self, model: Model) -> None:
        """They wait on for a real run."""

    def _result(self, computed: Computed, written: Written) -> ModelResult:
        result = super()._result(computed, written)
        return dataclasses.replace(result, version=self._dry_tables.version(computed.step.model, written))

    @interruption.interruptible()
    def push(self, sync: Sync, occasion: Occasion) -> SyncResult:
        """Say what would be brought to the sync's destination now."""
        self._progress.sync_began(sync, lambda: "")
        result = self._forecast(sync, occasion)
        self._progress.sync_ended(result)
        return result

    def end(self) -> None:
        """A dry run leaves no log."""

    def records_address(self, result: SyncResult) -> str | None:
        """A dry run leaves none."""
        return None

    def _forecast(self, sync: Sync, occasion: Occasion) -> SyncResult:
        if self.workspace.settings.sinks == "off":
            return sync_runs.push(self.workspace, sync, self.tables.feed(sync), occasion)
        forecast = dry_run(self._rehearsed.syncs[sync.id], self._ports(sync), occasion)
        return sync_runs.result_of(sync, forecast)

    def _ports(self, sync: Sync) -> Ports:
        """Those of a run, but for what it would change."""
        own = self._rehearsed.syncs[sync.id]
        return dataclasses.replace(
            sync_runs.ports(self._rehearsed, own, self.tables.feed(sync)),
            source=lambda: self._dry_tables.source(sync) or sync_runs.source_state(self._rehearsed, own),
            push=_sends_nothing,
            tracking=self.workspace.tracking.left_alone(self._state_id()),
            hold=lambda: hold(sync, self.workspace.settings),  # who pauses it pauses the real one
        )

    def _state_id(self) -> StateId:
        return known_state_id(self.workspace.settings.state) or UNKNOWN


def _sends_nothing() -> NoReturn:
    raise RuntimeError("a dry run has no API to send to")
