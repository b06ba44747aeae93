"""The collector at work: what the door hands its events to, and what has to be looked after meanwhile."""

import asyncio
import collections
import functools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from ondatra_dagster.collector.answers import Answer
from ondatra_dagster.collector.event_file import EventFile, Intake, Taken, Waiting, event_path, held_file
from ondatra_dagster.collector.group_commit import GroupCommit
from ondatra_dagster.collector.limits import Limits
from ondatra_dagster.collector.metrics import Counts, Gauges, metrics_text
from ondatra_dagster.collector.ways import ModelFiles, Ways, ways_of
from ondatra_dagster.errors import OndatraError, ProjectError, SelectionError, WarehouseError
from ondatra_dagster.planning.delta_log import last_transaction, warehouse_path
from ondatra_dagster.project.project import Project

SWEEP_SECONDS = 5.0  # between two looks at tables and models
FLUSH_SECONDS = 3.0  # that a flush may have the file for, where no collector was
KEY_SECONDS = 24 * 3600  # for which the key of a request is known
TABLE_FAULTS = (WarehouseError, OSError, ValueError)  # a log that isn't whole, or that is another's

log = logging.getLogger(__name__)


class Collector:
    """Takes events for a project, and drops them when their table has them."""

    def __init__(
        self,
        project: Project,
        *,
        purpose: str = "ondatra events",
        clock: Callable[[], float] = time.time,
        more_metrics: Callable[[], str] = str,
    ) -> None:
        self.ways: Ways = ways_of(project)
        self._coming: Ways | None = None  # to be gone over to
        self.counts = Counts()
        self._settings = project.settings
        self._clock = clock
        self._more_metrics = more_metrics
        self._files = ModelFiles(project.settings)
        self._purpose = purpose
        self._commits = GroupCommit(self._open)
        self._limits = Limits(project.settings.events, project.settings.state, waiting=self._events_waiting)
        self._events: collections.Counter[str] = collections.Counter()  # in the file, by model
        self._oldest: Mapping[str, float] = {}  # since when, by model; as of the last sweep

    def _open(self) -> Any:
        return held_file(self._settings, self._purpose, wait_seconds=FLUSH_SECONDS)

    async def start(self) -> None:
        """Take the file; raises BusyError when another collector has it."""
        self._commits.start(asyncio.get_running_loop())
        self._events.update(await self._commits.do(EventFile.events))
        await self._take_for(self.ways)
        await self.sweep()

    async def _take_for(self, ways: Ways) -> None:
        """No number may come twice for a model, also where an older copy of the file was put back."""
        numbering = await self._commits.do(lambda file: file.numbering)
        last = await asyncio.to_thread(self._last_number, ways, numbering)
        await self._commits.do(functools.partial(EventFile.number_from, last=last))
        self.ways = ways

    def _last_number(self, ways: Ways, numbering: str) -> int:
        last = [last_transaction(warehouse_path(self._settings, model), numbering) for model in ways.models]
        return max((number for number in last if number), default=0)

    def end(self) -> None:
        """Let go of the file, with all that is in hand committed."""
        self._commits.end()

    @property
    def is_alive(self) -> bool:
        return self._commits.is_alive

    def refusal(self) -> Answer | None:
        """Why nothing is taken now."""
        return self._limits.refusal()

    async def take(self, intake: Intake) -> Taken:
        """Keep events; they are durable when it returns."""
        self._limits.spend(intake.events)
        taken = await self._commits.take(intake)
        if taken is Taken.NEW:
            self._events[intake.model] += intake.events
        return taken

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether events can be taken, and how many wait."""
        refusal = self._limits.lasting_refusal()
        status = "ending" if not self.is_alive else refusal.reason if refusal else "ok"
        return status == "ok", {"status": status, "waiting": self._events_waiting()}

    async def metrics(self) -> str:
        """How events stand, and what else of the project there is to tell."""
        try:
            return self._own_metrics() + await asyncio.to_thread(self._more_metrics)
        except OndatraError as error:
            log.warning("metrics tell of events only: %s", error)
            return self._own_metrics()

    def _own_metrics(self) -> str:
        path = event_path(self._settings)
        size = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
        self._limits.look()
        waiting = {
            model: Waiting(events, self._oldest.get(model))
            for model, events in self._events.items()
            if events
        }
        gauges = Gauges(waiting, self._commits.commits, size, self._limits.free_bytes)
        return metrics_text(self.counts, gauges, now=self._clock())

    async def look_after(self) -> None:
        """Sweep from time to time, until nothing can be taken any more."""
        while self.is_alive:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.sweep()

    async def sweep(self) -> None:
        """Drop what the tables have, and read models anew that have changed."""
        try:
            await self._forget()
        except OndatraError as error:
            log.warning("what the tables have can't be dropped: %s", error)
        if ways := await asyncio.to_thread(self._read_models):
            await self._go_over_to(ways)

    async def _forget(self) -> None:
        numbering = await self._commits.do(lambda file: file.numbering)
        in_tables = await asyncio.to_thread(self._in_tables, numbering)
        for model, upto in in_tables.items():
            forget = functools.partial(EventFile.forget, model=model, upto=upto)
            while events := await self._commits.do(forget):
                self._events[model] -= events
        before = int((self._clock() - KEY_SECONDS) * 1e6)
        await self._commits.do(functools.partial(EventFile.forget_keys, before=before))
        self._oldest = await self._commits.do(functools.partial(EventFile.oldest, models=list(self._events)))

    def _in_tables(self, numbering: str) -> Mapping[str, int]:
        """Up to which number each table has what came for it."""
        found = {}
        for model in [model for model, events in self._events.items() if events]:
            try:
                upto = last_transaction(warehouse_path(self._settings, model), numbering)
            except TABLE_FAULTS as error:
                log.warning("what the table of %s has can't be dropped: %s", model, error)
                continue
            if upto:
                found[model] = upto
        return found

    def _read_models(self) -> Ways | None:
        """What has changed, or could not be gone over to yet."""
        try:
            if project := self._files.changed():
                self._coming = ways_of(project)
        except (ProjectError, SelectionError) as error:
            self._coming = None
            log.warning("the models have changed and can't be read, so the old ones go on:\n%s", error)
        return self._coming

    async def _go_over_to(self, ways: Ways) -> None:
        try:
            await self._take_for(ways)
        except TABLE_FAULTS as error:
            log.warning("the models have changed and a table can't be read, so the old ones go on: %s", error)
            return
        self._coming = None
        log.warning("models were read anew: %s", ", ".join(m.name for m in ways.models.values()))

    def _events_waiting(self) -> int:
        return self._events.total()
