"""The collector at work: what the door hands its events to, and what has to be looked after meanwhile."""

import asyncio
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
from ondatra_dagster.errors import OndatraError, ProjectError, SelectionError, StateError
from ondatra_dagster.planning.delta_log import last_transaction, warehouse_path
from ondatra_dagster.project.project import Project

SWEEP_SECONDS = 5.0  # between two looks at tables and models
KEY_SECONDS = 24 * 3600  # for which the key of a request is known

log = logging.getLogger(__name__)


class Collector:
    """Takes events for a project, and drops them when their table has them."""

    def __init__(
        self, project: Project, *, purpose: str = "ondatra events", clock: Callable[[], float] = time.time
    ) -> None:
        self.ways: Ways = ways_of(project)
        self.counts = Counts()
        self._settings = project.settings
        self._clock = clock
        self._files = ModelFiles(project.settings)
        self._purpose = purpose
        self._commits = GroupCommit(self._open)
        self._limits = Limits(project.settings.events, project.settings.state, waiting=self._events_waiting)
        self._waiting: dict[str, Waiting] = {}
        self._total = 0

    def _open(self) -> Any:
        return held_file(self._settings, self._purpose)

    async def start(self) -> None:
        """Take the file; raises BusyError when another collector has it."""
        self._commits.start(asyncio.get_running_loop())
        await self._commits.do(self._begin)
        await self.sweep()

    def _begin(self, file: EventFile) -> None:
        """No number may come twice, also where an older copy of the file was put back."""
        numbering = file.numbering
        last = [
            last_transaction(warehouse_path(self._settings, model), numbering) for model in self.ways.models
        ]
        file.number_from(max((number for number in last if number), default=0))

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
            before = self._waiting.get(intake.model, Waiting())
            oldest_at = before.oldest_at or intake.received_at / 1e6
            self._waiting[intake.model] = Waiting(before.events + intake.events, oldest_at)
            self._total += intake.events
        return taken

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether events can be taken, and how many wait."""
        refusal = self.refusal()
        is_well = self.is_alive and not (refusal and refusal.reason in ("disk", "waiting"))
        status = "ok" if is_well else refusal.reason if refusal and self.is_alive else "ending"
        return is_well, {"status": status, "waiting": self._total}

    def metrics(self) -> str:
        path = event_path(self._settings)
        size = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
        self._limits.look()
        gauges = Gauges(self._waiting, self._commits.commits, size, self._limits.free_bytes)
        return metrics_text(self.counts, gauges, now=self._clock())

    async def look_after(self, ended: Callable[[], None]) -> None:
        """Sweep from time to time; tells when nothing can be taken any more."""
        while self.is_alive:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.sweep()
        ended()

    async def sweep(self) -> None:
        """Drop what the tables have, and read models anew that have changed."""
        try:
            in_tables = await asyncio.to_thread(
                self._in_tables, await self._commits.do(lambda file: file.numbering)
            )
            for model, upto in in_tables.items():
                while await self._commits.do(functools.partial(EventFile.forget, model=model, upto=upto)):
                    pass
            before = int((self._clock() - KEY_SECONDS) * 1e6)
            await self._commits.do(functools.partial(EventFile.forget_keys, before=before))
            self._waiting = await self._commits.do(EventFile.waiting)
            self._total = self._events_in_file()
        except StateError as error:
            log.warning("the file of events can't be looked after: %s", error)
        except OndatraError as error:
            log.warning("the tables can't be looked at: %s", error)
        await asyncio.to_thread(self._read_models)

    def _in_tables(self, numbering: str) -> Mapping[str, int]:
        """Up to which number each table has what came for it."""
        found = {}
        for model in self._waiting or self.ways.models:
            upto = last_transaction(warehouse_path(self._settings, model), numbering)
            if upto:
                found[model] = upto
        return found

    def _read_models(self) -> None:
        try:
            if project := self._files.changed():
                self.ways = ways_of(project)
                log.warning("models were read anew: %s", ", ".join(m.name for m in self.ways.models.values()))
        except (ProjectError, SelectionError) as error:
            log.warning("the models have changed and can't be read, so the old ones go on:\n%s", error)

    def _events_waiting(self) -> int:
        return self._total

    def _events_in_file(self) -> int:
        return sum(waiting.events for waiting in self._waiting.values())
