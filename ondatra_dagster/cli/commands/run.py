"""The command `ondatra run`, which makes a plan and then runs Dagster in this process.

Without work it starts nothing.
"""

import contextlib
import dataclasses
import time
from collections.abc import Collection
from typing import Any

import click

from ondatra_dagster import interruption
from ondatra_dagster.app.alert_service import AlertService
from ondatra_dagster.app.dry_run_service import open_dry_workspace
from ondatra_dagster.app.open_run_or_dry_run import OpenRunService, open_run_service
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.cli.current_project import open_workspace
from ondatra_dagster.cli.output import print_json, print_message
from ondatra_dagster.cli.run_output import JsonProgress, TextProgress
from ondatra_dagster.count_time_and_size_format import format_count, format_duration
from ondatra_dagster.planning.plan import Plan
from ondatra_dagster.project.model_selection import select_models
from ondatra_dagster.sync.send_guards import find_hold_reason, unit_noun


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunCommandOptions:
    """The options of `ondatra run`, named as in click. Other commands that run a plan set some of them."""

    as_json: bool = False
    is_full: bool = False
    is_dry: bool = False
    allow_deletes: Collection[str] = ()  # syncs that may delete more rows than their @max_deletes
    is_new_state: bool = False
    trigger: str = "ondatra run"  # the run's trigger, as the history shows it


DEFAULT_OPTIONS = RunCommandOptions()


@click.command("run")
@click.argument("selection", metavar="[SELECT]...", nargs=-1)
@click.option(
    "--full-refresh",
    "is_full",
    is_flag=True,
    help="Compute the models again into the same tables. Equal rows stay; rows missing in the result are deleted.",
)
@click.option(
    "--dry-run",
    "is_dry",
    is_flag=True,
    help="Show what would be written and sent, and do nothing. Only the history gets a line.",
)
@click.option(
    "--allow-deletes",
    metavar="SYNC",
    multiple=True,
    help="Let this sync remove more than its @max_deletes. Repeat it for other syncs.",
)
@click.option(
    "--allow-new-state",
    "is_new_state",
    is_flag=True,
    help="Let a sync whose state is lost send all its rows as new ones. Else such a sync waits.",
)
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per model or sync.")
@click.pass_obj
def command(open_service: OpenRunService | None, /, selection: tuple[str, ...], **arguments: Any) -> int:
    """Bring tables and destinations up to date.

    SELECT names models as Dagster does: mart.orders, +sync.crm, 'mart.*'. Their syncs run with them.
    """
    options = RunCommandOptions(**arguments)
    workspace = open_workspace()
    for warning in workspace.warnings:
        print_message(f"warning: {warning}")
    chosen_models = select_models(workspace.project, selection) if selection else None
    options = dataclasses.replace(options, allow_deletes=[workspace.sync(name).id for name in options.allow_deletes])
    plan = plan_run(workspace, chosen_models, is_full=options.is_full, is_dry=options.is_dry)
    workspace.check_columns({step.model.id for step in plan.models if step.will_run})
    for sync_id in options.allow_deletes:
        if useless_reason := _useless_reason(workspace, plan, sync_id):
            print_message(f"--allow-deletes {sync_id} allows nothing: {useless_reason}")
    return execute_plan(workspace, plan, options, open_service=open_service or open_run_service)


def plan_run(
    workspace: Workspace, model_ids: Collection[str] | None = None, *, is_full: bool = False, is_dry: bool = False
) -> Plan:
    """Return the plan of a run. A dry run plans on copies of the files, because SQLite creates files when it reads."""
    if not is_dry:
        return workspace.plan(model_ids, is_full=is_full)
    with open_dry_workspace(workspace) as dry_workspace:
        return dry_workspace.plan(model_ids, is_full=is_full)


def execute_plan(
    workspace: Workspace,
    plan: Plan,
    options: RunCommandOptions = DEFAULT_OPTIONS,
    *,
    open_service: OpenRunService = open_run_service,
) -> int:
    """Run a plan, report the result of each model and sync, and return the exit code."""
    if options.is_dry:
        print_message("dry run: nothing is written and nothing is sent")
    if not plan.has_work:
        if not options.is_dry:  # if the user undid an edit, there may be nothing to run, but alerts to end
            alerts = AlertService(workspace)
            alerts.resolve_alerts()
            alerts.send()
        _report_idle(workspace, plan, options)
        return 0
    # a remote server already runs, so this process doesn't start Spark
    is_remote = bool(workspace.settings.spark.remote)
    progress = JsonProgress(plan) if options.as_json else TextProgress(plan, starts_spark=not is_remote)
    with (
        interruption.graceful_shutdown(),
        contextlib.closing(progress),
        open_service(workspace, progress, is_dry=options.is_dry) as run_service,
    ):
        if plan.needs_tables:
            run_service.tables.start_early(step.model for step in plan.models if step.will_run)
        from ondatra_dagster.orchestration.in_process_run import run_plan

        end = run_plan(
            run_service,
            plan,
            trigger=options.trigger,
            allow_deletes=options.allow_deletes,
            is_new_state=options.is_new_state,
        )
    if end.was_interrupted:
        raise interruption.InterruptedRunError  # Dagster has caught the error that the interruption raised
    for failure in end.other_errors:
        progress.on_failure("Dagster", failure)
    progress.on_run_end(end.run_id, is_good=end.is_successful)
    return 0 if end.is_successful else 1


def _useless_reason(workspace: Workspace, plan: Plan, sync_id: str) -> str | None:
    """Return why --allow-deletes has no effect on this run; None if it has an effect."""
    if sync_id not in {step.sync_id for step in plan.syncs}:
        return "it isn't selected"
    if workspace.settings.sinks == "off":
        return "sinks are off"
    hold_reason = find_hold_reason(workspace.syncs[sync_id], workspace.settings)
    return f"{hold_reason}; give the flag again after that" if hold_reason else None


def _report_idle(workspace: Workspace, plan: Plan, options: RunCommandOptions) -> None:
    models, syncs = format_count(len(plan.models), "model"), format_count(len(plan.syncs), "sync")
    if options.as_json:
        print_json({"run": None, "ok": True, "reason": "nothing to do"})
    print_message(f"nothing to do: {models} and {syncs} have no changes")
    for step in plan.syncs if not options.is_dry else ():
        queue = workspace.try_read_queue(step.sync_id).status
        noun = unit_noun(workspace.syncs[step.sync_id])
        if hold_reason := find_hold_reason(workspace.syncs[step.sync_id], workspace.settings):
            print_message(f"{step.sync_id}: {hold_reason}: {format_count(queue.depth if queue else 0, noun)} pending")
        elif queue and queue.next_due_at:
            wait_text = format_duration(max(queue.next_due_at - time.time(), 0))
            units_by_state = {"to be retried": queue.waiting_units, "in open jobs to be polled": queue.units_in_jobs}
            phrases = [
                f"{format_count(units, noun)} {state_text}" for state_text, units in units_by_state.items() if units
            ]
            print_message(f"{step.sync_id}: {' and '.join(phrases)} in {wait_text}")
