"""`ondatra run`: plan, then start Dagster in this process on what has work; with none it starts nothing."""

import contextlib
import time
from collections.abc import Collection

import click

from ondatra_dagster import interruption
from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import put_json, say
from ondatra_dagster.cli.run_progress import JsonProgress, TextProgress
from ondatra_dagster.orchestration.alerting import Alerts
from ondatra_dagster.orchestration.dry_engine import open_dry_workspace
from ondatra_dagster.orchestration.opening import OpenEngine, open_engine
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.plan import Plan
from ondatra_dagster.project.selection import select
from ondatra_dagster.sync.guard import unit_noun
from ondatra_dagster.sync.hold import hold
from ondatra_dagster.wording import count, duration

TRIGGER = "ondatra run"


@click.command("run")
@click.argument("selection", metavar="[SELECT]...", nargs=-1)
@click.option(
    "--full-refresh",
    "is_full",
    is_flag=True,
    help="Compute the models anew into the same tables; equal rows stay, what isn't given any more goes.",
)
@click.option(
    "--dry-run",
    "is_dry",
    is_flag=True,
    help="Tell what would be written and sent; nothing is, but for a line in the history.",
)
@click.option(
    "--allow-deletes",
    metavar="SYNC",
    multiple=True,
    help="Let this sync remove more than its @max_deletes; may be given more than once.",
)
@click.option(
    "--allow-new-state",
    "is_new_state",
    is_flag=True,
    help="Let a sync whose state is lost send all its rows as new ones; without it, such a sync waits.",
)
@click.option("as_json", "--json", is_flag=True, help="One JSON object a model or sync on stdout.")
@click.pass_obj
def command(
    opened: OpenEngine | None,
    selection: tuple[str, ...],
    is_full: bool,  # noqa: FBT001 - click calls it by name
    is_dry: bool,  # noqa: FBT001
    allow_deletes: tuple[str, ...],
    is_new_state: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> int:
    """Bring tables and destinations up to date.

    SELECT names models as Dagster does: mart.orders, +sync.crm, 'mart.*'. Their syncs run with them.
    """
    workspace = open_workspace()
    for warning in workspace.warnings:
        say(f"warning: {warning}")
    chosen = select(workspace.project, selection) if selection else None
    allowed = [workspace.sync(name).id for name in allow_deletes]
    plan = make_plan(workspace, chosen, is_full=is_full, is_dry=is_dry)
    workspace.check_columns({step.model.id for step in plan.models if step.will_run})
    for sync_id in allowed:
        if why := _why_useless(workspace, plan, sync_id):
            say(f"--allow-deletes {sync_id} allows nothing: {why}")
    opened = opened or open_engine
    return run(
        workspace,
        plan,
        as_json=as_json,
        allow_deletes=allowed,
        is_new_state=is_new_state,
        opened=opened,
        is_dry=is_dry,
    )


def make_plan(
    workspace: Workspace,
    chosen: Collection[str] | None = None,
    *,
    is_full: bool = False,
    is_dry: bool = False,
) -> Plan:
    """What there is to do; a dry run looks at copies already here, for SQLite leaves files where it looks."""
    if not is_dry:
        return workspace.plan(chosen, is_full=is_full)
    with open_dry_workspace(workspace) as rehearsed:
        return rehearsed.plan(chosen, is_full=is_full)


def run(
    workspace: Workspace,
    plan: Plan,
    *,
    as_json: bool,
    trigger: str = TRIGGER,
    allow_deletes: Collection[str] = (),
    is_new_state: bool = False,
    opened: OpenEngine = open_engine,
    is_dry: bool = False,
) -> int:
    """Run a plan, telling of each model and sync as it ends; the exit code."""
    if is_dry:
        say("dry run: nothing is written and nothing is sent")
    if not plan.has_work:
        if not is_dry:
            _settle_alerts(workspace)
        _say_idle(workspace, plan, as_json=as_json, is_dry=is_dry)
        return 0
    is_remote = bool(workspace.settings.spark.remote)  # the server is up already
    progress = JsonProgress(plan) if as_json else TextProgress(plan, starts_spark=not is_remote)
    with (
        interruption.ending_in_order(),
        contextlib.closing(progress),
        opened(workspace, progress, is_dry=is_dry) as engine,
    ):
        if plan.needs_tables:
            engine.start_early(step.model for step in plan.models if step.will_run)
        from ondatra_dagster.orchestration.run import run_plan

        end = run_plan(engine, plan, trigger=trigger, allow_deletes=allow_deletes, is_new_state=is_new_state)
    if end.was_interrupted:
        raise interruption.InterruptedRunError  # which Dagster has taken for its own
    for failure in end.unexplained:
        progress.failed("Dagster", failure)
    progress.ended(end.run_id, is_good=end.is_good)
    return 0 if end.is_good else 1


def _why_useless(workspace: Workspace, plan: Plan, sync_id: str) -> str | None:
    """Return why --allow-deletes has no effect on this run; None when it has one."""
    if sync_id not in {step.sync_id for step in plan.syncs}:
        return "it isn't selected"
    if workspace.settings.sinks == "off":
        return "sinks are off"
    held = hold(workspace.syncs[sync_id], workspace.settings)
    return f"{held}; give the flag again after that" if held else None


def _settle_alerts(workspace: Workspace) -> None:
    """Tell alerts.webhook what is over: with an edit undone there is nothing left to run."""
    alerts = Alerts(workspace)
    alerts.settle()
    alerts.send()


def _say_idle(workspace: Workspace, plan: Plan, *, as_json: bool, is_dry: bool) -> None:
    models, syncs = count(len(plan.models), "model"), count(len(plan.syncs), "sync")
    if as_json:
        put_json({"run": None, "ok": True, "reason": "nothing to do"})
    say(f"nothing to do: {models} and {syncs} have nothing new")
    for step in plan.syncs if not is_dry else ():
        queue = workspace.queue_seen(step.sync_id).state
        noun = unit_noun(workspace.syncs[step.sync_id])
        if held := hold(workspace.syncs[step.sync_id], workspace.settings):
            say(f"{step.sync_id}: {held}: {count(queue.depth if queue else 0, noun)} pending")
        elif queue and queue.next_due_at:
            due_in = duration(max(queue.next_due_at - time.time(), 0))
            told = {"to be tried again": queue.waiting, "in open jobs to be asked about": queue.in_jobs}
            parts = [f"{count(units, noun)} {what}" for what, units in told.items() if units]
            say(f"{step.sync_id}: {' and '.join(parts)} in {due_in}")
