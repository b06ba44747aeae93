"""The dry run of a sync: a run on a copy of its queue, up to the first row that it would send.

It asks the queue what a run asks, and leaves only a line in the history.
"""

import dataclasses

from ondatra_dagster.delivery.queue.claimed_batches import mark_due_pending
from ondatra_dagster.delivery.queue.dry_run_changes import read_expected_changes
from ondatra_dagster.delivery.queue.queue_database import Queue, correct_times
from ondatra_dagster.errors import OndatraError
from ondatra_dagster.sync.recovery.queue_recovery import recover_queue
from ondatra_dagster.sync.run_bookkeeping import build_past_run, find_newest_known_run
from ondatra_dagster.sync.run_context import Ports, RunContext, RunOptions, SourceState
from ondatra_dagster.sync.run_history import RunResult
from ondatra_dagster.sync.run_id import create_run_id
from ondatra_dagster.sync.run_summary import MAX_SAMPLES, DryRunResult, RunSummary
from ondatra_dagster.sync.send_guards import count_table_units
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.sync_run import SyncRun, summarize_missing_table


def dry_run_sync(sync: Sync, ports: Ports, options: RunOptions) -> DryRunResult:
    """Say what a run would send.

    The sync's queue has to be a copy, and the tracking store one that is left alone. What a run would refuse
    to do is the forecast's refusal.
    """
    at = ports.now()
    source = ports.read_source()
    if source is None:
        return DryRunResult(summary=summarize_missing_table(sync, at))
    with sync.open_queue() as queue:
        return _SyncDryRun(RunContext.create(sync, ports, options, queue, source)).execute()


class _SyncDryRun:
    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._queue: Queue = context.queue
        self._source: SourceState = context.source
        self._ports: Ports = context.ports
        self._run_id = create_run_id(
            context.started_at, after=find_newest_known_run(context), random=context.ports.random
        )

    def execute(self) -> DryRunResult:
        try:
            recovered = recover_queue(
                self._queue,
                self._context.sync,
                self._ports,
                self._source,
                is_new_state=self._context.options.allows_new_state,
            )
            correct_times(self._queue, self._ports.clock())
            mark_due_pending(self._queue, self._ports.clock())
            # a lost queue is only now as far as its snapshot
            self._context = self._context.with_current_watermarks()
            summary = SyncRun(self._context).execute_dry(recovered, self._run_id)
        except OndatraError as error:
            forecast = DryRunResult.from_refusal(self._build_empty_summary(), str(error))
        else:
            forecast = self._build_result(summary)
        self._write_history(forecast)
        return forecast

    def _build_result(self, summary: RunSummary) -> DryRunResult:
        size = count_table_units(self._queue, self._context.sync, self._source, self._ports.feed)
        found = read_expected_changes(self._queue, since=self._context.watermark, size=size, samples=MAX_SAMPLES)
        return DryRunResult(summary=summary, expected_changes=found, source_rows=self._source.row_count)

    def _build_empty_summary(self) -> RunSummary:
        nothing = RunSummary.without_run(self._context.sync.id, "", at=self._context.started_at)
        return dataclasses.replace(nothing, run_id=self._run_id, ended_at=self._ports.now())

    def _write_history(self, forecast: DryRunResult) -> None:
        """The line in the history."""
        past = dataclasses.replace(
            build_past_run(self._context, self._run_id),
            ended_at=forecast.summary.ended_at,
            counts=forecast.to_json(),
            result=RunResult.DRY,
            first_errors=(forecast.refusal,) if forecast.refusal else (),
        )
        self._ports.history.finish_run(past)
