"""The commands `ondatra pause` and `ondatra resume`. While a sync is paused, its model runs and its rows are kept."""

import click

from ondatra_dagster.app.workspace import QueueReadResult
from ondatra_dagster.cli.current_project import open_sync
from ondatra_dagster.cli.output import print_message
from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.sync.send_guards import pause_sync, resume_sync, unit_noun
from ondatra_dagster.sync.sync_definition import Sync


@click.command("pause")
@click.argument("sync")
def pause(sync: str) -> int:
    """Send no rows of SYNC until it is resumed; a run that is sending stops after its batch."""
    workspace, chosen_sync = open_sync(sync)
    pause_sync(chosen_sync)
    queue_result = workspace.try_read_queue(chosen_sync.id)
    pending_text = (
        f"and {queue_result.unknown_reason}"
        if queue_result.unknown_reason
        else f"with {_pending_units(queue_result, chosen_sync)}"
    )
    print_message(f"{chosen_sync.id} is paused, {pending_text}; to continue: ondatra resume {chosen_sync.id}")
    return 0


@click.command("resume")
@click.argument("sync")
def resume(sync: str) -> int:
    """Resume SYNC: its next run, or Dagster's sensor, sends the waiting rows."""
    workspace, chosen_sync = open_sync(sync)
    if not resume_sync(chosen_sync):
        print_message(f"{chosen_sync.id} isn't paused")
        return 0
    queue_result = workspace.try_read_queue(chosen_sync.id)
    pending_text = queue_result.unknown_reason or _pending_units(queue_result, chosen_sync)
    print_message(f"{chosen_sync.id} is no longer paused; {pending_text}: ondatra run")
    return 0


def _pending_units(read_result: QueueReadResult, sync: Sync) -> str:
    return f"{format_count(read_result.status.depth if read_result.status else 0, unit_noun(sync))} pending"
