"""The commands `ondatra resync` and `ondatra forget`. Both keep the records of what was sent.

A resync sends all rows again, or assumes that the API has the table. Forgetting deletes the sync's queue and queue
snapshots, and with them the knowledge of which rows the API has.
"""

import click

from ondatra_dagster import interruption
from ondatra_dagster.app.open_run_or_dry_run import OpenRunService, open_run_service
from ondatra_dagster.app.push_and_check_sync import build_ports
from ondatra_dagster.cli.commands.run import RunCommandOptions, execute_plan
from ondatra_dagster.cli.current_project import open_sync
from ondatra_dagster.cli.output import print_message
from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.sync.recovery.queue_reset_by_resync_or_forget import ResyncOptions, forget_sync, resync_queue


@click.command("resync")
@click.argument("sync")
@click.option("--assume-delivered", is_flag=True, help="Send nothing: the API already has the table's current rows.")
@click.option("--deletes", is_flag=True, help="Also delete what was sent and is no longer in the table.")
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per line.")
@click.pass_obj
def resync(
    open_service: OpenRunService | None,
    sync: str,
    assume_delivered: bool,  # noqa: FBT001 - click calls it by name
    deletes: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> int:
    """Send every row of SYNC again, as an update where the API has acknowledged it."""
    if assume_delivered and deletes:
        raise click.UsageError("--assume-delivered sends nothing, so it can't be combined with --deletes")
    workspace, chosen_sync = open_sync(sync)
    resync_options = ResyncOptions(assumes_delivered=assume_delivered, deletes_missing_rows=deletes)
    open_service = open_service or open_run_service
    with interruption.graceful_shutdown(), open_service(workspace) as run_service:
        keys = resync_queue(
            chosen_sync, build_ports(workspace, chosen_sync, run_service.tables.feed(chosen_sync)), resync_options
        )
    if resync_options.assumes_delivered:
        print_message(f"{chosen_sync.id} regards its table as delivered; only later changes are sent")
        return 0
    print_message(f"{format_count(keys, 'key')} of {chosen_sync.id} are sent again")
    options = RunCommandOptions(as_json=as_json, trigger="ondatra resync")
    return execute_plan(workspace, workspace.sync_plan(chosen_sync), options, open_service=open_service)


@click.command("forget")
@click.argument("sync")
@click.option("--yes", is_flag=True, help="Confirm: pending rows and dead letters are lost.")
def forget(sync: str, yes: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Delete SYNC's queue and queue snapshots, so that its next run asks for a resync; its records are kept."""
    workspace, chosen_sync = open_sync(sync)
    queue = workspace.queue(chosen_sync.id)
    pending_count, dead_letter_count = (queue.depth, queue.dead_units) if queue else (0, 0)
    queue_result = workspace.try_read_queue(chosen_sync.id)
    if queue_result.loss_message and not queue_result.is_forgotten:
        lost_text = "what its lost queue would be rebuilt from"
    else:
        lost_text = f"{format_count(pending_count, 'pending key')} and {format_count(dead_letter_count, 'dead letter')}"
    if not yes:
        raise click.UsageError(f"{chosen_sync.id} would lose {lost_text}; if that is what you want, add --yes")
    forget_sync(chosen_sync, workspace.tracking)
    print_message(f"{chosen_sync.id} has forgotten {lost_text}; its next run requires: ondatra resync {chosen_sync.id}")
    return 0
