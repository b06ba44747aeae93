"""What a run of a sync would do: the run itself, on a copy of its queue, up to the first row that it sends.

What is asked of the queue is what a run asks. Nothing is left but a line in the history.
"""

import dataclasses

from ondatra_dagster.delivery.queue.claim import make_due
from ondatra_dagster.delivery.queue.outlook import outlook
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.delivery.queue.time_correction import correct_times
from ondatra_dagster.errors import OndatraError
from ondatra_dagster.sync.cross_check import cross_check
from ondatra_dagster.sync.forecast import Forecast
from ondatra_dagster.sync.guard import table_size
from ondatra_dagster.sync.ports import Ports, SourceState
from ondatra_dagster.sync.run import SyncRun, of_no_table
from ondatra_dagster.sync.run_account import newest_known_run, past_run
from ondatra_dagster.sync.run_id import new_run_id
from ondatra_dagster.sync.start import Occasion, Start
from ondatra_dagster.sync.summary import SAMPLES, RunSummary
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import Result


def dry_run(sync: Sync, ports: Ports, occasion: Occasion) -> Forecast:
    """Say what a run would send.

    The sync's queue has to be a copy, and the tracking store one that is left alone. What a run would refuse
    to do is the forecast's refusal.
    """
    at = ports.now()
    source = ports.source()
    if source is None:
        return Forecast(summary=of_no_table(sync, at))
    with sync.open_queue() as queue:
        return _DryRun(Start.of(sync, ports, occasion, queue, source)).go()


class _DryRun:
    def __init__(self, start: Start) -> None:
        self._start = start
        self._queue: Queue = start.queue
        self._source: SourceState = start.source
        self._ports: Ports = start.ports
        self._run_id = new_run_id(start.at, after=newest_known_run(start), random=start.ports.random)

    def go(self) -> Forecast:
        try:
            recovered = cross_check(
                self._queue,
                self._start.sync,
                self._ports,
                self._source,
                is_new_state=self._start.occasion.allows_new_state,
            )
            correct_times(self._queue, self._ports.clock())
            make_due(self._queue, self._ports.clock())
            # a lost queue is only now as far as its frontier
            self._start = self._start.looked_again()
            summary = SyncRun(self._start).go_dry(recovered, self._run_id)
        except OndatraError as error:
            forecast = Forecast.refused(self._nothing(), str(error))
        else:
            forecast = self._forecast(summary)
        self._note(forecast)
        return forecast

    def _forecast(self, summary: RunSummary) -> Forecast:
        size = table_size(self._queue, self._start.sync, self._source, self._ports.feed)
        found = outlook(self._queue, since=self._start.watermark, size=size, samples=SAMPLES)
        return Forecast(summary=summary, outlook=found, source_rows=self._source.rows)

    def _nothing(self) -> RunSummary:
        nothing = RunSummary.of_nothing(self._start.sync.id, "", at=self._start.at)
        return dataclasses.replace(nothing, run_id=self._run_id, ended_at=self._ports.now())

    def _note(self, forecast: Forecast) -> None:
        """The line in the history."""
        past = dataclasses.replace(
            past_run(self._start, self._run_id),
            ended_at=forecast.summary.ended_at,
            counts=forecast.to_json(),
            result=Result.DRY,
            first_errors=(forecast.refusal,) if forecast.refusal else (),
        )
        self._ports.history.finish(past)
