"""The alerts of a project. The rules are checked when models and syncs end, and at intervals; then alerts are sent."""

import functools
import logging
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from ondatra_dagster.app.push_and_check_sync import current_verdicts
from ondatra_dagster.app.run_events import SyncResult
from ondatra_dagster.app.ui_urls import dagster_run_url
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.delivery.http.alert_webhook import AlertWebhook
from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.deltalog.removable_history import read_commit_time
from ondatra_dagster.errors import BusyError, OndatraError
from ondatra_dagster.operations.alert_rules import (
    COMPARED_RUNS,
    FAILED,
    NO_SUCCESS,
    RECOVERY_MESSAGES,
    evaluate_crash,
    evaluate_failure,
    evaluate_no_success,
    evaluate_runs,
    is_rule_enabled,
)
from ondatra_dagster.operations.alert_store import ActiveAlert, Alert, AlertState, AlertStore, RuleResult, SubjectType
from ondatra_dagster.operations.maintenance_task_runner import TaskResult
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.planning.plan import WorkNeeded, plan_model
from ondatra_dagster.project.model import Model
from ondatra_dagster.row_changes import Json
from ondatra_dagster.sync.run_history_store import RunResult
from ondatra_dagster.sync.send_guards import find_hold_reason, unit_noun
from ondatra_dagster.sync.sync_checks import Severity
from ondatra_dagster.sync.sync_definition import Sync

ALERT_TASK = "alerts"
RUNS_READ = 3 * COMPARED_RUNS  # more runs than are compared, because some only retried waiting rows
QUOTED_VALUE = re.compile(r"'[^'\n]*'")
log = logging.getLogger(__name__)


class RunReference(NamedTuple):
    """The run that an alert names, and the Dagster run that the alert links to."""

    run_id: str | None = None
    dagster_run_id: str | None = None


class AlertService:
    """The alerts of one project. Without a webhook, no alerts are stored or sent. An error here fails no run."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._settings = workspace.settings.alerts
        self._store = AlertStore(workspace.settings.state / "alerts.sqlite")
        self._initial_alerts = self._read_initial_alerts()  # the alerts that were active when the project was read
        self.dagster_run_id: str | None = None  # the Dagster run that this process executes

    @property
    def is_enabled(self) -> bool:
        return self._settings.webhook is not None

    def on_model_end(self, model: Model) -> None:
        """Store that a model has ended without a failure, which resolves the model's alert."""
        self._store_results(lambda: [evaluate_failure(SubjectType.MODEL, model.name, ())], run=self._current_run)

    def on_failure(self, subject_type: SubjectType, name: str, message: str) -> None:
        """Store that a model or a sync has failed with this message.

        Row values that Spark quotes in the message are masked.
        """
        masked_message = QUOTED_VALUE.sub("'…'", message)
        self._store_results(lambda: [evaluate_failure(subject_type, name, [masked_message])], run=self._current_run)

    def on_sync_end(self, result: SyncResult) -> None:
        """Store the rule results of a sync. Skip a sync that another process delivers, unless there are errors."""
        if result.errors or result.summary.queue:
            self._store_results(lambda: self._run_results(result), run=self._current_run)

    def resolve_alerts(self) -> None:
        """Resolve alerts whose problem is over without a run: an edit was undone, or the model or sync is gone.

        The caller must have read the project just now. If another process finds an alert's problem again after
        that, the alert stays active.
        """
        if self._initial_alerts:
            self._store_results(self._recovery_results, run=lambda _: RunReference(), known_alerts=self._initial_alerts)

    def check_and_send(self, *, is_current: bool = False) -> TaskResult:
        """Store which syncs have crashed, or haven't succeeded for too long; then send alerts.

        With `is_current`, first resolve alerts whose problem is over. For this, the caller must have read the
        project just now.
        """
        if not self.is_enabled:
            return TaskResult(task=ALERT_TASK, message="none are sent: alerts.webhook isn't set")
        if is_current:
            self.resolve_alerts()
        self._store_results(lambda: [*self._crash_results(), *self._no_success_results()], run=self._newest_run)
        sent_count = self.send()
        unsent_alerts, active_alerts = self._store.read_unsent(), self._store.read_active_alerts()
        unsent_note = (
            f"; {format_count(len(unsent_alerts), 'alert')} couldn't be sent, and will be at the next check"
            if unsent_alerts
            else ""
        )
        return TaskResult(
            task=ALERT_TASK,
            message=f"{format_count(sent_count, 'alert')} sent, {len(active_alerts)} still alerting{unsent_note}",
            counts={"sent": sent_count, "waiting": len(unsent_alerts), "alerting": len(active_alerts)},
            details=tuple(
                {alert.type: alert.subject, "rule": alert.rule, "since": alert.since} for alert in active_alerts
            ),
        )

    def read_active_alerts(self) -> list[ActiveAlert]:
        """Return the active alerts, oldest first.

        Return no alerts without a webhook, because alerts aren't updated then.
        """
        return self._store.read_active_alerts() if self.is_enabled else []

    def send(self) -> int:
        """Send the stored alerts, oldest first, until one isn't accepted; return the number of accepted alerts."""
        try:
            return self._send() if self.is_enabled and self._store.read_unsent() else 0
        except BusyError:
            return 0  # another process sends the alerts
        except OndatraError as error:
            log.warning("alerts are not sent: %s", error)
            return 0

    def _send(self) -> int:
        sent_count = 0
        with (
            self._store.sending_lock(),
            AlertWebhook(self._settings, secrets=self._workspace.settings.secret) as webhook,
        ):
            for alert in self._store.read_unsent():
                if problem := webhook.send_alert(alert.id, alert.body):
                    self._store.store_send_error(alert, problem)
                    log.warning("an alert was not accepted: %s", problem)
                    break
                self._store.delete_sent(alert)
                sent_count += 1
        return sent_count

    def _read_initial_alerts(self) -> list[ActiveAlert]:
        try:
            return self.read_active_alerts()
        except OndatraError as error:
            log.warning("alerts can't be read: %s", error)
            return []

    def _store_results(
        self,
        read_results: Callable[[], Iterable[RuleResult]],
        *,
        run: Callable[[RuleResult], RunReference],
        known_alerts: Collection[ActiveAlert] | None = None,
    ) -> None:
        if not self.is_enabled:
            return
        try:
            self._store.apply_results(
                list(read_results()), functools.partial(self._build_alert, run=run), known_alerts=known_alerts
            )
        except OndatraError as error:
            log.warning("alerts were not evaluated: %s", error)

    def _recovery_results(self) -> Iterator[RuleResult]:
        for alert in self._initial_alerts:
            if recovery_text := recovery_reason(self._workspace, alert):
                yield RuleResult(
                    type=SubjectType(alert.type),
                    subject=alert.subject,
                    rule=alert.rule,
                    sentence=None,
                    recovery=recovery_text,
                )
        late_syncs = {alert.subject for alert in self._initial_alerts if alert.rule == NO_SUCCESS}
        for result in self._no_success_results(
            sync for name, sync in self._workspace.syncs.items() if name in late_syncs
        ):
            if result.sentence is None:
                yield result

    def _run_results(self, result: SyncResult) -> Iterator[RuleResult]:
        sync_id, summary = result.sync.id, result.summary
        errors = [check_result.description for check_result in result.errors]
        pending = summary.queue.depth if summary.queue else 0
        if errors or has_recovered(self._workspace, sync_id, pending_count=pending):
            first_error = next(_row_errors(result), "")
            yield evaluate_failure(SubjectType.SYNC, sync_id, errors, detail=first_error)
        if summary.run_id:
            runs = self._workspace.history.list_runs(sync_id, limit=RUNS_READ)
            yield from evaluate_runs(sync_id, runs, self._settings, noun=unit_noun(result.sync))
        yield from self._no_success_results([result.sync])

    def _crash_results(self) -> Iterator[RuleResult]:
        """Yield a failure for each sync whose process was killed, because that process couldn't store its failure."""
        crashed_runs = self._workspace.history.count_crashed_runs()
        for sync_id in self._workspace.syncs:
            if crashed_runs[sync_id]:
                yield evaluate_crash(sync_id)

    def _no_success_results(self, syncs: Iterable[Sync] | None = None) -> Iterator[RuleResult]:
        """Yield the results of the rule no_success for the given syncs; if `syncs` is None, for all syncs."""
        totals = self._workspace.history.read_totals()
        for sync in self._workspace.syncs.values() if syncs is None else syncs:
            sync_totals = totals.get(sync.id)
            result = evaluate_no_success(
                sync.id,
                waiting_since=pending_since(self._workspace, sync),
                last_success=sync_totals.last_success.timestamp() if sync_totals and sync_totals.last_success else None,
                now=self._workspace.clock(),
                settings=self._settings,
            )
            if result:
                yield result

    def _build_alert(
        self, rule_result: RuleResult, state: AlertState, *, run: Callable[[RuleResult], RunReference]
    ) -> Alert:
        at = datetime.fromtimestamp(self._workspace.clock(), UTC).isoformat(timespec="seconds")
        run_id, dagster_run = run(rule_result)
        body: dict[str, Json] = {
            "id": uuid.uuid4().hex,
            "project": self._workspace.settings.root.name,
            rule_result.type.value: rule_result.subject,
            "rule": rule_result.rule,
            "state": state.value,
            "at": at,
            "sentence": _alert_message(rule_result, state),
            "numbers": dict(rule_result.numbers),
            "run": run_id,
            "link": dagster_run_url(self._workspace.settings.dagster_url, dagster_run) if dagster_run else None,
        }
        return Alert(str(body["id"]), at, body)

    def _current_run(self, rule_result: RuleResult) -> RunReference:
        """Return the run of this process that an alert names.

        The sync run's id is None if the sync's newest run belongs to another Dagster run.
        """
        own_run_id = self.dagster_run_id
        if rule_result.type is SubjectType.MODEL:
            return RunReference(own_run_id, own_run_id)
        newest_run = self._newest_run(rule_result)
        is_other_run = own_run_id is not None and newest_run.dagster_run_id != own_run_id
        return RunReference(None, own_run_id) if is_other_run else newest_run

    def _newest_run(self, rule_result: RuleResult) -> RunReference:
        """Return the newest run of the sync that the rule result is about."""
        newest_run = next(iter(self._workspace.history.list_runs(rule_result.subject, limit=1)), None)
        return RunReference(newest_run.run_id, newest_run.dagster_run_id) if newest_run else RunReference()


def _alert_message(rule_result: RuleResult, state: AlertState) -> str:
    if state is AlertState.RECOVERED:
        return f"{rule_result.subject} {rule_result.recovery or RECOVERY_MESSAGES[rule_result.rule]}"
    change_note = " is still failing, now because" if state is AlertState.CHANGED else ""
    return f"{rule_result.subject}{change_note}: {rule_result.sentence}"


def _row_errors(result: SyncResult) -> Iterator[str]:
    """Yield the errors and reject reasons of a sync run's rows; nothing if the sync had no run."""
    if result.summary.run_id:
        yield from result.summary.first_errors
        yield from (reason.message for reason in result.summary.reject_reasons)


def pending_since(workspace: Workspace, sync: Sync) -> float | None:
    """Return the time since which the sync has had something to send, in seconds since 1970.

    Return None if there is nothing to send, if nothing may be sent, or if the time is unknown.
    """
    settings = workspace.settings
    table = read_table_state(table_path(settings, sync.model.id))
    if settings.sinks == "off" or find_hold_reason(sync, settings) or table is None:
        return None
    queue, read_error, _loss_message = workspace.try_read_queue(sync.id)
    if read_error:
        return None  # the sync's runs fail for the same reason
    start_times = [queue.oldest_since if queue else None]
    watermark = queue.watermark if queue else -1
    if table.version > watermark:
        changed_at = table.changed_at.timestamp() if table.changed_at else None
        start_times.append(read_commit_time(table_path(settings, sync.model.id), watermark + 1) or changed_at)
    return min((start_time for start_time in start_times if start_time is not None), default=None)


def recovery_reason(workspace: Workspace, alert: ActiveAlert) -> str | None:
    """Return the reason why the alert's problem is over; None if it isn't over, or if only a run can show that.

    The workspace must match the current files, because a workspace that was loaded earlier misses later
    edits.
    """
    if missing_reason := _missing_subject_reason(workspace, alert):
        return f"is no longer watched: {missing_reason}"
    if alert.rule != FAILED:
        return None
    try:
        if alert.type == SubjectType.MODEL:
            return _model_recovery_reason(workspace, alert.subject)
        return _sync_recovery_reason(workspace, workspace.syncs[alert.subject])
    except OndatraError:  # such as a queue that can't be read
        return None


def has_recovered(workspace: Workspace, sync_id: str, *, pending_count: int) -> bool:
    """Return whether the failure of a sync is over, after a run without errors or when there was nothing to do.

    A sync with nothing to do hasn't recovered if its newest run crashed, or failed and left pending rows.
    """
    history = workspace.history
    if history.count_crashed_runs()[sync_id]:
        return False
    newest_run = next(iter(history.list_runs(sync_id, limit=1)), None)
    if newest_run is None or newest_run.result is RunResult.SUCCEEDED:
        return True
    return not pending_count and newest_run.result is not RunResult.RUNNING


def _missing_subject_reason(workspace: Workspace, alert: ActiveAlert) -> str | None:
    models = {model.name for model in workspace.project.models.values()}
    if alert.subject not in (models if alert.type == SubjectType.MODEL else workspace.syncs):
        return "the project no longer has it"
    return None if is_rule_enabled(alert.rule, workspace.settings.alerts) else f"the rule {alert.rule} is off"


def _model_recovery_reason(workspace: Workspace, name: str) -> str | None:
    model = next(model for model in workspace.project.models.values() if model.name == name)
    step = plan_model(workspace.project, model, workspace.plan_inputs())
    is_current = step.work_needed is WorkNeeded.NO
    return "is no longer failing: its table matches its definition and inputs" if is_current else None


def _sync_recovery_reason(workspace: Workspace, sync: Sync) -> str | None:
    if workspace.settings.sinks == "off" or workspace.sync_work(sync).has_work:
        return None
    queue_result = workspace.try_read_queue(sync.id)
    if queue_result.status is None or queue_result.unknown_reason:
        return None
    verdicts = current_verdicts(workspace, sync)
    if any(verdict.severity is Severity.ERROR for verdict in verdicts):
        return None
    is_recovered = has_recovered(workspace, sync.id, pending_count=queue_result.status.depth)
    return "is no longer failing: it has nothing to do" if is_recovered else None
