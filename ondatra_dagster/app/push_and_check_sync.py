"""The sync run of a project: its ports, which are filled from the workspace, and the results of its checks."""

import dataclasses
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime

from ondatra_dagster import interruption
from ondatra_dagster.app.run_events import SyncResult
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import PushContext
from ondatra_dagster.delivery.push.starlark_sink_and_batch_halving import open_starlark_sink
from ondatra_dagster.delivery.queue.pending_rows import PendingKey, read_oldest_pending
from ondatra_dagster.delivery.queue.queue_database import open_for_reading
from ondatra_dagster.delivery.queue.removal_count import RemovalCount
from ondatra_dagster.deltalog.log_reader import is_changed_by_another, read_table_state
from ondatra_dagster.deltalog.removable_history import find_oldest_readable_version
from ondatra_dagster.errors import OndatraError, StateError
from ondatra_dagster.operations.sync_log_appender import is_logged
from ondatra_dagster.planning.find_table_and_columns import table_path, warehouse_table_path
from ondatra_dagster.records.source_and_destination_tables import build_fact_tables
from ondatra_dagster.sync.dead_letter_listing import list_dead_letter_reasons
from ondatra_dagster.sync.run_context import Feed, Ports, RunOptions, SourceState
from ondatra_dagster.sync.run_summary import MAX_SAMPLES, DryRunResult, RunSummary, summarize_past_run
from ondatra_dagster.sync.send_guards import find_hold_reason, read_removals, unit_noun
from ondatra_dagster.sync.sync_checks import Severity, SyncCheckResult, run_sync_checks
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.sync.sync_run import run_sync

# the checks that read the queue, each with its counts from the queue
QUEUE_COUNTS = {"rejects": {"dead_letters"}, "undelivered": {"waiting", "in_jobs", "oldest_seconds"}}
DRY_RUN_CHECKS = {"invalid_records", "deletes_guard"}  # checks that don't depend on an API's responses


def push_sync(
    workspace: Workspace, sync: Sync, feed: Feed, options: RunOptions, *, notify: Callable[[str], None] = lambda _: None
) -> SyncResult:
    """Run the sync unless the setting `sinks` is off; return its result with the results of its checks."""
    if workspace.settings.sinks == "off":
        summary = _empty_summary(sync, "sinks are off: nothing was sent")
        return SyncResult(sync=sync, summary=summary, verdicts=_verdicts_as_warnings(workspace, sync))
    try:
        ports = dataclasses.replace(build_ports(workspace, sync, feed), notify=notify)
        summary = run_sync(sync, ports, options)
    except OndatraError as error:
        interruption.raise_if_interrupted()  # an interruption caused the error
        return _failed_result(workspace, sync, str(error))
    if summary.has_run:
        verdicts = run_sync_checks(summary, sync.limits)
        warnings = tuple(filter(None, (_write_fact_tables(workspace), workspace.history.problem)))
        return SyncResult(sync=sync, summary=summary, verdicts=verdicts, warnings=warnings)
    # the queue's state may fail a run that read the queue; any other run gets only warnings
    read_verdicts = current_verdicts if summary.queue else _verdicts_as_warnings
    return SyncResult(sync=sync, summary=summary, verdicts=read_verdicts(workspace, sync))


def _write_fact_tables(workspace: Workspace) -> str | None:
    """Write the fact tables after a run, as the schedule does; return an error message if that failed."""
    try:
        workspace.tracking.write_fact_tables(build_fact_tables(sync.endpoints for sync in workspace.syncs.values()))
    except StateError as error:
        return f"the source and destination tables were not updated: {error}"
    return None


def _failed_result(workspace: Workspace, sync: Sync, message: str) -> SyncResult:
    """Return the result of a run that ended with an error.

    The checks judge the state before the run, and the check `undelivered` reports the error.
    """
    try:
        current_summary = _current_summary(workspace, sync)
    except StateError:  # the same error may have ended the run
        current_summary = _empty_summary(sync, message)
    summary = dataclasses.replace(current_summary, run_id=None, message=message)
    verdicts = run_sync_checks(summary, sync.limits)
    if workspace.try_read_queue(sync.id).unknown_reason:
        verdicts = _mark_unknown(verdicts, message)
    return SyncResult(sync=sync, summary=summary, verdicts=_mark_undelivered(verdicts, message))


def _mark_undelivered(verdicts: Iterable[SyncCheckResult], message: str) -> tuple[SyncCheckResult, ...]:
    """Return the verdicts with the message as an ERROR of the check `undelivered`."""
    return tuple(
        dataclasses.replace(verdict, severity=Severity.ERROR, description=message)
        if verdict.name == "undelivered"
        else verdict
        for verdict in verdicts
    )


def _mark_unknown(verdicts: Iterable[SyncCheckResult], reason: str) -> tuple[SyncCheckResult, ...]:
    """Return the verdicts for a queue whose content is unknown, so that no verdict says that the queue is empty."""
    return tuple(
        _mark_verdict_unknown(verdict, reason, QUEUE_COUNTS[verdict.name]) if verdict.name in QUEUE_COUNTS else verdict
        for verdict in verdicts
    )


def _mark_verdict_unknown(verdict: SyncCheckResult, reason: str, unknown: Collection[str]) -> SyncCheckResult:
    is_pass = verdict.severity is Severity.PASS
    return dataclasses.replace(
        verdict,
        severity=Severity.WARN if is_pass else verdict.severity,
        description=reason if is_pass else f"{verdict.description}; {reason}",
        counts={name: number for name, number in verdict.counts.items() if name not in unknown},
    )


def dry_run_result(sync: Sync, forecast: DryRunResult) -> SyncResult:
    """Return the result of a dry run, with the checks that are possible without sending."""
    check_results = run_sync_checks(forecast.summary, sync.limits)
    if forecast.refusal:
        check_results = _mark_undelivered(check_results, forecast.refusal)
    check_names = DRY_RUN_CHECKS | ({"undelivered"} if forecast.refusal else set())
    verdicts = tuple(verdict for verdict in check_results if verdict.name in check_names)
    return SyncResult(sync=sync, summary=forecast.summary, verdicts=verdicts, forecast=forecast)


def build_ports(workspace: Workspace, sync: Sync, feed: Feed) -> Ports:
    """Return the ports of a sync run, which are filled from the workspace."""
    settings = workspace.settings
    context = PushContext(
        sync_id=sync.id, kind=sync.model.kind.name, key_columns=sync.model.key_columns, arguments=sync.sink.arguments
    )
    return Ports(
        read_source=lambda: read_source_state(workspace, sync),
        feed=feed,
        open_push=lambda: open_starlark_sink(
            sync.push_library, context, secrets=settings.secret, rates=settings.state / "rates.sqlite"
        ),
        record_store=workspace.tracking,
        history=workspace.history,
        find_hold_reason=lambda: find_hold_reason(sync, settings),
        may_poll=settings.sinks == "on",
        has_old_changes=lambda after_version: is_changed_by_another(
            warehouse_table_path(settings, sync.model.id), after=after_version, definition=sync.model.definition
        ),
        is_in_sync_log=lambda: is_logged(workspace.sync_log, sync.id),
        publish_seconds=settings.publish_seconds,
        clock=workspace.clock,
    )


def describe_pending(workspace: Workspace, sync: Sync) -> str:
    """Return a phrase with the numbers of pending units and open jobs; "" if both are zero or unknown."""
    queue = workspace.try_read_queue(sync.id).status
    if queue is None:
        return ""
    pending_counts = {
        "pending": format_count(queue.pending_units, unit_noun(sync)),
        "open": format_count(queue.open_jobs, "job"),
    }
    return ", ".join(f"{number} {word}" for word, number in pending_counts.items() if not number.startswith("0 "))


def read_source_state(workspace: Workspace, sync: Sync) -> SourceState | None:
    """Return the state of the model's table from its Delta log; None if the table doesn't exist yet."""
    path = table_path(workspace.settings, sync.model.id)
    table = read_table_state(path)
    if table is None:
        return None
    return SourceState(
        table_id=table.table_id,
        version=table.version,
        invalid_version=workspace.invalid_version(sync.model.id),
        invalid_count=workspace.invalid_count(sync.model.id),
        columns=table.columns,
        row_count=table.commit_metadata.rows if table.commit_metadata else None,
        oldest_readable_version=find_oldest_readable_version(path, table),
    )


def current_verdicts(workspace: Workspace, sync: Sync) -> tuple[SyncCheckResult, ...]:
    """Return the check results of the newest run, updated with the current queue and dead letters."""
    verdicts = run_sync_checks(_current_summary(workspace, sync), sync.limits)
    loss_message = workspace.try_read_queue(sync.id).loss_message
    return _mark_unknown(verdicts, loss_message) if loss_message else verdicts


def _verdicts_as_warnings(workspace: Workspace, sync: Sync) -> tuple[SyncCheckResult, ...]:
    """Return the current check results with each ERROR as a WARN, for a run that must not fail for them.

    Return an empty tuple if the results can't be read.
    """
    try:
        check_results = current_verdicts(workspace, sync)
    except StateError:
        return ()
    return tuple(
        dataclasses.replace(verdict, severity=Severity.WARN) if verdict.severity is Severity.ERROR else verdict
        for verdict in check_results
    )


def _current_summary(workspace: Workspace, sync: Sync) -> RunSummary:
    newest_runs = workspace.history.list_runs(sync.id, limit=1)
    if not newest_runs:
        return _empty_summary(sync, "the sync has never run")
    pending, removals = _read_pending_and_removals(workspace, sync)
    return dataclasses.replace(
        summarize_past_run(newest_runs[0]),
        queue=workspace.queue(sync.id),
        unit_noun=unit_noun(sync),
        reject_reasons=list_dead_letter_reasons(sync, limit=MAX_SAMPLES),
        invalid_count=workspace.invalid_count(sync.model.id),
        pending_samples=tuple(pending),
        removals=removals,
        queue_read_at=datetime.fromtimestamp(workspace.clock(), UTC),
    )


def _read_pending_and_removals(workspace: Workspace, sync: Sync) -> tuple[list[PendingKey], RemovalCount | None]:
    """Return samples of the pending rows, and the count of removals that the user may have to allow."""

    def count_rows() -> int | None:
        source = read_source_state(workspace, sync)
        return source.row_count if source else None

    with open_for_reading(sync.queue_file) as store:
        if store is None:
            return [], None
        return read_oldest_pending(store, limit=MAX_SAMPLES), read_removals(store, sync, rows=count_rows)


def _empty_summary(sync: Sync, message: str) -> RunSummary:
    return RunSummary.without_run(sync.id, message, end_time=datetime.now(UTC))
