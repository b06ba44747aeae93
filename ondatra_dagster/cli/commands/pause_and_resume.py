"""The commands `ondatra pause` and `ondatra resume`. While a sync is paused, models run and its rows are kept."""

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
    workspace, chosen = open_sync(sync)
    pause_sync(chosen)
    seen = workspace.try_read_queue(chosen.id)
    what = f"and {seen.unknown_reason}" if seen.unknown_reason else f"with {_pending_units(seen, chosen)}"
    print_message(f"{chosen.id} is paused, {what}; to go on: ondatra resume {chosen.id}")
    return 0


@click.command("resume")
@click.argument("sync")
def resume(sync: str) -> int:
    """Resume SYNC: its next run, or Dagster's sensor, sends the waiting rows."""
    workspace, chosen = open_sync(sync)
    if not resume_sync(chosen):
        print_message(f"{chosen.id} isn't paused")
        return 0
    seen = workspace.try_read_queue(chosen.id)
    what = seen.unknown_reason or _pending_units(seen, chosen)
    print_message(f"{chosen.id} is no longer paused; {what}: ondatra run")
    return 0


def _pending_units(seen: QueueReadResult, sync: Sync) -> str:
    return f"{format_count(seen.status.depth if seen.status else 0, unit_noun(sync))} pending"
