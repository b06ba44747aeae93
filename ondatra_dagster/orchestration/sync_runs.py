"""One sync run with everything it needs from outside filled in, and what its checks say of it."""

import dataclasses
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime

from ondatra_dagster import interruption
from ondatra_dagster.delivery.push.pusher import PushContext, open_pusher
from ondatra_dagster.delivery.queue.backlog import Waiting, oldest
from ondatra_dagster.delivery.queue.removals import Removals
from ondatra_dagster.delivery.queue.states import looking_at
from ondatra_dagster.errors import OndatraError, StateError
from ondatra_dagster.operations.sync_log import is_logged
from ondatra_dagster.orchestration.progress import SyncResult
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.delta_log import (
    is_changed_by_another,
    read_table_state,
    table_path,
    warehouse_path,
)
from ondatra_dagster.planning.table_past import readable_from
from ondatra_dagster.sync.dead_letters import why_dead
from ondatra_dagster.sync.forecast import Forecast
from ondatra_dagster.sync.guard import standing_removals, unit_noun
from ondatra_dagster.sync.hold import hold
from ondatra_dagster.sync.ports import Feed, Ports, SourceState
from ondatra_dagster.sync.resync import Way, resync
from ondatra_dagster.sync.run import run_sync
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.sync.summary import SAMPLES, RunSummary, summary_of
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.sync.verdicts import CheckVerdict, Severity, judge
from ondatra_dagster.tracking.facts import facts_of
from ondatra_dagster.wording import count

# checks that look at the queue, and what they count in it
OF_QUEUE = {"rejects": {"dead_letters"}, "undelivered": {"waiting", "in_jobs", "oldest_seconds"}}
FORESEEABLE = {"invalid_records", "deletes_guard"}  # checks that don't hang on an API's answers


def push(
    workspace: Workspace,
    sync: Sync,
    feed: Feed,
    occasion: Occasion,
    *,
    notify: Callable[[str], None] = lambda _: None,
) -> SyncResult:
    """Run the sync, where the settings let it."""
    if workspace.settings.sinks == "off":
        summary = _nothing(sync, "sinks are off: nothing was sent")
        return SyncResult(sync=sync, summary=summary, verdicts=_told_only(workspace, sync))
    try:
        opened = dataclasses.replace(ports(workspace, sync, feed), notify=notify)
        summary = run_sync(sync, opened, occasion)
    except OndatraError as error:
        interruption.check()  # the sync isn't at fault
        return _failed(workspace, sync, str(error))
    if summary.has_done_something:
        verdicts = judge(summary, sync.limits)
        return SyncResult(sync=sync, summary=summary, verdicts=verdicts, warnings=_warnings(workspace))
    # a run that had the queue in its hands answers for what is in it; else another one does, or nobody yet
    tell = standing_verdicts if summary.queue else _told_only
    return SyncResult(sync=sync, summary=summary, verdicts=tell(workspace, sync))


def _warnings(workspace: Workspace) -> tuple[str, ...]:
    problem = workspace.history.problem
    return (*_write_facts(workspace), *([problem] if problem else []))


def _write_facts(workspace: Workspace) -> tuple[str, ...]:
    """Why they couldn't be written, if so: each run writes them, and the schedule does."""
    try:
        workspace.tracking.write_facts(facts_of(each.ends for each in workspace.syncs.values()))
    except StateError as error:
        return (f"the fact tables are left as they are: {error}",)
    return ()


def _failed(workspace: Workspace, sync: Sync, message: str) -> SyncResult:
    """A run that ended early: the checks see what was there before, and why nothing came of it."""
    try:
        standing = _standing(workspace, sync)
    except StateError:  # which may be why it ended
        standing = _nothing(sync, message)
    summary = dataclasses.replace(standing, run_id=None, message=message)
    verdicts = judge(summary, sync.limits)
    if workspace.queue_seen(sync.id).why_unknown:
        verdicts = _doubting(verdicts, message)
    return SyncResult(sync=sync, summary=summary, verdicts=_refusing(verdicts, message))


def _refusing(verdicts: Iterable[CheckVerdict], message: str) -> tuple[CheckVerdict, ...]:
    """The verdicts on a run that sends nothing, and why."""
    return tuple(
        dataclasses.replace(verdict, severity=Severity.ERROR, description=message)
        if verdict.check == "undelivered"
        else verdict
        for verdict in verdicts
    )


def _doubting(verdicts: Iterable[CheckVerdict], why: str) -> tuple[CheckVerdict, ...]:
    """The verdicts where nobody knows what is in the queue: none says that nothing is."""
    return tuple(
        _doubted(verdict, why, OF_QUEUE[verdict.check]) if verdict.check in OF_QUEUE else verdict
        for verdict in verdicts
    )


def _doubted(verdict: CheckVerdict, why: str, unknown: Collection[str]) -> CheckVerdict:
    has_passed = verdict.severity is Severity.PASS
    return dataclasses.replace(
        verdict,
        severity=Severity.WARN if has_passed else verdict.severity,
        description=why if has_passed else f"{verdict.description}; {why}",
        counts={name: number for name, number in verdict.counts.items() if name not in unknown},
    )


def result_of(sync: Sync, forecast: Forecast) -> SyncResult:
    """A dry run's turn, with the checks that can be told before anything is sent."""
    found = judge(forecast.summary, sync.limits)
    if forecast.refusal:
        found = _refusing(found, forecast.refusal)
    told = FORESEEABLE | ({"undelivered"} if forecast.refusal else set())
    verdicts = tuple(verdict for verdict in found if verdict.check in told)
    return SyncResult(sync=sync, summary=forecast.summary, verdicts=verdicts, forecast=forecast)


def ports(workspace: Workspace, sync: Sync, feed: Feed) -> Ports:
    """What the sync run asks for, filled with the real things."""
    settings = workspace.settings
    context = PushContext(
        sync_id=sync.id,
        kind=sync.model.kind.name,
        key_columns=sync.model.key_columns,
        arguments=sync.sink.arguments,
    )
    return Ports(
        source=lambda: source_state(workspace, sync),
        feed=feed,
        push=lambda: open_pusher(
            sync.library, context, secrets=settings.secret, rates=settings.state / "rates.sqlite"
        ),
        tracking=workspace.tracking,
        history=workspace.history,
        hold=lambda: hold(sync, settings),
        may_ask=settings.sinks == "on",
        has_old_changes=lambda after: is_changed_by_another(
            warehouse_path(settings, sync.model.id), after=after, definition=sync.model.definition
        ),
        is_logged=lambda: is_logged(workspace.sync_log, sync.id),
        publish_seconds=settings.publish_seconds,
        clock=workspace.clock,
    )


def activity(workspace: Workspace, sync: Sync) -> str:
    """How much is still to be sent."""
    queue = workspace.queue_seen(sync.id).state
    if queue is None:
        return ""
    told = {"pending": count(queue.pending, unit_noun(sync)), "open": count(queue.open_jobs, "job")}
    return ", ".join(f"{number} {word}" for word, number in told.items() if not number.startswith("0 "))


def begin_anew(workspace: Workspace, sync: Sync, feed: Feed, way: Way) -> int:
    """Let the sync's next run send the whole table again, or nothing of it; how many keys that are."""
    return resync(sync, ports(workspace, sync, feed), way)


def source_state(workspace: Workspace, sync: Sync) -> SourceState | None:
    """The model's table as its log tells; None when there is none yet."""
    path = table_path(workspace.settings, sync.model.id)
    table = read_table_state(path)
    if table is None:
        return None
    return SourceState(
        table_id=table.table_id,
        version=table.version,
        invalid_version=workspace.invalid_version(sync.model.id),
        set_aside=workspace.invalid_count(sync.model.id),
        columns=table.columns,
        rows=table.note.rows if table.note else None,
        readable_from=readable_from(path, table),
    )


def standing_verdicts(workspace: Workspace, sync: Sync) -> tuple[CheckVerdict, ...]:
    """What the checks say of the newest run, with the queue and the dead letters as they are now."""
    verdicts = judge(_standing(workspace, sync), sync.limits)
    lost = workspace.queue_seen(sync.id).lost
    return _doubting(verdicts, lost) if lost else verdicts


def _told_only(workspace: Workspace, sync: Sync) -> tuple[CheckVerdict, ...]:
    """The same of a run that has no say in it, and so doesn't fail for it; nothing where nobody knows."""
    try:
        standing = standing_verdicts(workspace, sync)
    except StateError:
        return ()
    return tuple(
        dataclasses.replace(verdict, severity=Severity.WARN)
        if verdict.severity is Severity.ERROR
        else verdict
        for verdict in standing
    )


def _standing(workspace: Workspace, sync: Sync) -> RunSummary:
    past = workspace.history.runs(sync.id, limit=1)
    if not past:
        return _nothing(sync, "the sync has never run")
    waiting, removed = _waiting(workspace, sync)
    return summary_of(
        past[0],
        workspace.queue(sync.id),
        why_dead(sync, limit=SAMPLES),
        set_aside=workspace.invalid_count(sync.model.id),
        noun=unit_noun(sync),
        waiting=waiting,
        removals=removed,
        seen_at=datetime.fromtimestamp(workspace.clock(), UTC),
    )


def _waiting(workspace: Workspace, sync: Sync) -> tuple[list[Waiting], Removals | None]:
    """What is still to be delivered, and what of it somebody has to let go."""

    def rows() -> int | None:
        source = source_state(workspace, sync)
        return source.rows if source else None

    with looking_at(sync.queue) as store:
        if store is None:
            return [], None
        return oldest(store, limit=SAMPLES), standing_removals(store, sync, rows=rows)


def _nothing(sync: Sync, message: str) -> RunSummary:
    return RunSummary.of_nothing(sync.id, message, at=datetime.now(UTC))
