"""The event collector: it stores events, and updates its routes and counts periodically.

It refuses requests when too many events arrive or wait, or when the disk is nearly full.
"""

import asyncio
import collections
import functools
import logging
import math
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ondatra_dagster.collector.event_metrics import EventCounts, format_event_metrics
from ondatra_dagster.collector.event_store import (
    EventRequest,
    EventStore,
    StoreResult,
    event_store_path,
    open_locked_store,
)
from ondatra_dagster.collector.group_commit import GroupCommit
from ondatra_dagster.collector.http_messages import RequestRejectedError, retry_later_error
from ondatra_dagster.collector.model_routes import ModelRoutes
from ondatra_dagster.deltalog.log_reader import read_last_transaction
from ondatra_dagster.errors import OndatraError, ProjectError, SelectionError, WarehouseError
from ondatra_dagster.planning.find_table_and_columns import warehouse_table_path
from ondatra_dagster.project.find_and_parse_model_files import FileStates, read_file_states
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.project_loader import load_project
from ondatra_dagster.project.settings.read_settings_and_defaults import EventSettings

DISK_CHECK_SECONDS = 1.0  # between two checks of the disk
RETRY_AFTER_SECONDS = 30


class Backpressure:
    """The limits on the events that one collector accepts, for all clients together."""

    def __init__(
        self,
        settings: EventSettings,
        folder: Path,
        *,
        count_pending: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._count_pending = count_pending
        self._clock = clock
        self._allowance = float(settings.per_second or 0)  # at most the allowance of one second
        self._refilled_at = clock()
        self._disk_checked_at = float("-inf")
        self.free_bytes = 0

    def check_limits(self) -> RequestRejectedError | None:
        """Return the reason why no events are accepted now; None if they are accepted."""
        per_second = self._settings.per_second
        if per_second and (allowance := self._refill_allowance()) <= 0:
            wait_seconds = math.floor(-allowance / per_second) + 1
            sentence = f"more than {per_second} events a second; slow down"
            return retry_later_error("rate", sentence, wait_seconds)
        return self.check_queue_and_disk()

    def check_queue_and_disk(self) -> RequestRejectedError | None:
        """Return the refusal if too many events wait or the disk is nearly full; None otherwise.

        The operator has to act on these two limits.
        """
        if self._count_pending() >= self._settings.max_waiting:
            sentence = f"{self._settings.max_waiting} events wait for a run; send it later"
            return retry_later_error("waiting", sentence, RETRY_AFTER_SECONDS)
        self.check_disk()
        if self.free_bytes < self._settings.free_bytes:
            return retry_later_error("disk", "the disk is nearly full; send it later", RETRY_AFTER_SECONDS)
        return None

    def consume_allowance(self, events: int) -> None:
        """Subtract accepted events from the allowance. If a batch exceeds it, later requests are refused for a time."""
        self._allowance -= events

    def _refill_allowance(self) -> float:
        now, per_second = self._clock(), float(self._settings.per_second or 0)
        allowance = self._allowance + (now - self._refilled_at) * per_second
        self._allowance, self._refilled_at = min(allowance, per_second), now
        return self._allowance

    def check_disk(self) -> None:
        """Read the free disk space, unless it was read just now."""
        if self._clock() - self._disk_checked_at >= DISK_CHECK_SECONDS:
            self._disk_checked_at = self._clock()
            self.free_bytes = shutil.disk_usage(self._folder).free


TASK_INTERVAL_SECONDS = 5.0  # between two checks of tables and models
LOCK_WAIT_SECONDS = 3.0  # how long a flush may still hold the file's lock when the collector starts
IDEMPOTENCY_KEY_SECONDS = 24 * 3600  # how long a request's key is remembered
TABLE_READ_ERRORS = (WarehouseError, OSError, ValueError)  # the table's log is incomplete, or another program wrote it
MODEL_FILES = ("models/**/*.[sS][qQ][lL]",)
log = logging.getLogger(__name__)


class Collector:
    """The collector of a project's events. It deletes events once their table has them."""

    def __init__(
        self, project: Project, *, purpose: str = "ondatra events", more_metrics: Callable[[], str] = str
    ) -> None:
        self.routes = ModelRoutes(project)
        self._new_routes: ModelRoutes | None = None  # read, but not yet applied
        self.counts = EventCounts()
        self._settings = project.settings
        self._extra_metrics = more_metrics
        self._model_states = self._read_model_states()
        self._commits = GroupCommit(
            lambda: open_locked_store(project.settings, purpose, wait_seconds=LOCK_WAIT_SECONDS)
        )
        self.backpressure = Backpressure(
            project.settings.events, project.settings.state, count_pending=self._count_pending
        )
        self._event_counts: collections.Counter[str] = collections.Counter()  # events in the file, by model
        self._oldest_times: Mapping[str, float] = {}  # by model, as of the last periodic tasks

    async def start(self) -> None:
        """Open the event file as its only writer; raise BusyError if another process has it."""
        self._commits.start(asyncio.get_running_loop())
        self._event_counts.update(await self._commits.run_function(EventStore.count_events))
        await self._apply_routes(self.routes)
        await self.run_periodic_tasks()

    async def _apply_routes(self, routes: ModelRoutes) -> None:
        """Apply the routes. Before that, raise the file's last number to the highest number that a table has.

        So no number is used twice for a model, even if an older copy of the file was restored.
        """
        numbering = await self._commits.run_function(lambda file: file.sequence_id)
        last_number = await asyncio.to_thread(self._last_number, routes, numbering)
        await self._commits.run_function(functools.partial(EventStore.raise_last_number, last=last_number))
        self.routes = routes

    def _last_number(self, routes: ModelRoutes, numbering: str) -> int:
        last_numbers = [
            read_last_transaction(warehouse_table_path(self._settings, model), numbering) for model in routes.models
        ]
        return max((number for number in last_numbers if number), default=0)

    def stop(self) -> None:
        """Commit all pending requests and close the file."""
        self._commits.stop()

    @property
    def is_alive(self) -> bool:
        return self._commits.is_alive

    async def store_request(self, intake: EventRequest) -> StoreResult:
        """Store the events of a request; they are durable when this returns."""
        self.backpressure.consume_allowance(intake.events)
        result = await self._commits.store_request(intake)
        if result is StoreResult.NEW:
            self._event_counts[intake.model] += intake.events
        return result

    def check_health(self) -> tuple[bool, dict[str, Any]]:
        """Return whether events can be accepted, and a status with the number of waiting events."""
        refusal = self.backpressure.check_queue_and_disk()
        status = "ending" if not self.is_alive else refusal.response.reason if refusal else "ok"
        return status == "ok", {"status": status, "waiting": self._count_pending()}

    async def collect_metrics(self) -> str:
        """Return the collector's metrics, followed by the project's metrics unless reading these fails."""
        try:
            return self._format_own_metrics() + await asyncio.to_thread(self._extra_metrics)
        except OndatraError as error:
            log.warning("the metrics are about events only: %s", error)
            return self._format_own_metrics()

    def _format_own_metrics(self) -> str:
        path = event_store_path(self._settings)
        size = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
        self.backpressure.check_disk()
        return format_event_metrics(
            self.counts,
            +self._event_counts,
            self._oldest_times,
            commit_count=self._commits.commit_count,
            file_bytes=size,
            free_bytes=self.backpressure.free_bytes,
        )

    async def repeat_periodic_tasks(self) -> None:
        """Run the periodic tasks until no more events can be accepted."""
        while self.is_alive:
            await asyncio.sleep(TASK_INTERVAL_SECONDS)
            await self.run_periodic_tasks()

    async def run_periodic_tasks(self) -> None:
        """Delete events that their tables have, and reload changed models."""
        try:
            await self._delete_flushed()
        except OndatraError as error:
            log.warning("events that are already in tables can't be removed: %s", error)
        if routes := await asyncio.to_thread(self._reload_models):
            await self._switch_routes(routes)

    async def _delete_flushed(self) -> None:
        numbering = await self._commits.run_function(lambda file: file.sequence_id)
        flushed_numbers = await asyncio.to_thread(self._flushed_numbers, numbering)
        for model, last_number in flushed_numbers.items():
            delete_events = functools.partial(EventStore.delete_up_to, model=model, upto=last_number)
            while events := await self._commits.run_function(delete_events):
                self._event_counts[model] -= events
        cutoff = int((time.time() - IDEMPOTENCY_KEY_SECONDS) * 1e6)
        await self._commits.run_function(functools.partial(EventStore.delete_keys, before=cutoff))
        self._oldest_times = await self._commits.run_function(
            functools.partial(EventStore.read_oldest_times, models=list(self._event_counts))
        )

    def _flushed_numbers(self, numbering: str) -> Mapping[str, int]:
        """Return, by model, the highest number that its table has."""
        numbers_by_model = {}
        for model in [model for model, events in self._event_counts.items() if events]:
            try:
                last_number = read_last_transaction(warehouse_table_path(self._settings, model), numbering)
            except TABLE_READ_ERRORS as error:
                log.warning("events that are already in the table of %s can't be removed: %s", model, error)
                continue
            if last_number:
                numbers_by_model[model] = last_number
        return numbers_by_model

    def _reload_models(self) -> ModelRoutes | None:
        """Reload the models if their files have changed.

        Return the new routes until they are applied; None otherwise.
        """
        states = self._read_model_states()
        if states == self._model_states:
            return self._new_routes
        self._model_states = states  # broken models are logged once
        try:
            self._new_routes = ModelRoutes(load_project(self._settings.root, self._settings))
        except (ProjectError, SelectionError) as error:
            self._new_routes = None
            log.warning("the models have changed and can't be read, so the old ones go on:\n%s", error)
        return self._new_routes

    def _read_model_states(self) -> FileStates:
        return read_file_states(self._settings.root, MODEL_FILES)

    async def _switch_routes(self, routes: ModelRoutes) -> None:
        try:
            await self._apply_routes(routes)
        except TABLE_READ_ERRORS as error:
            log.warning("the models have changed and a table can't be read, so the old ones stay in use: %s", error)
            return
        self._new_routes = None
        log.warning("the models were reloaded: %s", ", ".join(model.name for model in routes.models.values()))

    def _count_pending(self) -> int:
        return self._event_counts.total()
