"""The recovery of alerts without a run: the plan has nothing to do any more, or the subject is gone."""

from ondatra_dagster.errors import OndatraError
from ondatra_dagster.operations.alert_book import Standing, SubjectType
from ondatra_dagster.operations.alerts import FAILED, is_judged
from ondatra_dagster.orchestration.sync_runs import standing_verdicts
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.plan import Need, plan_model
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.sync.verdicts import Severity
from ondatra_dagster.tracking.history import Result


def recovery_of(workspace: Workspace, alert: Standing) -> str | None:
    """Return why the alert is over; None when it isn't, or only a run can tell.

    The workspace has to be as the files are now: models of an hour ago know nothing of an edit since then.
    """
    if gone := _missing_subject(workspace, alert):
        return f"is no longer watched: {gone}"
    if alert.rule != FAILED:
        return None
    try:
        if alert.type == SubjectType.MODEL:
            return _model_recovery(workspace, alert.subject)
        return _sync_recovery(workspace, workspace.syncs[alert.subject])
    except OndatraError:  # such as a queue that can't be read
        return None


def has_recovered(workspace: Workspace, sync_id: str, *, pending: int) -> bool:
    """Return whether a sync's failure is over, after a turn without errors or with nothing to do.

    A run that crashed, or failed and left rows, isn't made good by a turn that did nothing.
    """
    history = workspace.history
    if history.crashed()[sync_id]:
        return False
    newest = next(iter(history.runs(sync_id, limit=1)), None)
    if newest is None or newest.result is Result.SUCCEEDED:
        return True
    return not pending and newest.result is not Result.RUNNING


def _missing_subject(workspace: Workspace, alert: Standing) -> str | None:
    models = {model.name for model in workspace.project.models.values()}
    if alert.subject not in (models if alert.type == SubjectType.MODEL else workspace.syncs):
        return "the project no longer has it"
    return None if is_judged(alert.rule, workspace.settings.alerts) else f"the rule {alert.rule} is off"


def _model_recovery(workspace: Workspace, name: str) -> str | None:
    model = next(model for model in workspace.project.models.values() if model.name == name)
    step = plan_model(workspace.project, model, workspace.look())
    is_current = step.need is Need.NONE
    return "is no longer failing: its table matches its definition and inputs" if is_current else None


def _sync_recovery(workspace: Workspace, sync: Sync) -> str | None:
    if workspace.settings.sinks == "off" or workspace.sync_work(sync).is_there:
        return None
    seen = workspace.queue_seen(sync.id)
    if seen.state is None or seen.why_unknown:
        return None
    verdicts = standing_verdicts(workspace, sync)
    if any(verdict.severity is Severity.ERROR for verdict in verdicts):
        return None
    is_over = has_recovered(workspace, sync.id, pending=seen.state.depth)
    return "is no longer failing: it has nothing to do" if is_over else None
