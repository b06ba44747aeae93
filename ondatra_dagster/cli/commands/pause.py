"""`ondatra pause`: hold a sync; models go on, and its rows are kept for later."""

import click

from ondatra_dagster.cli.current_project import open_workspace
from ondatra_dagster.cli.output import print_message
from ondatra_dagster.sync.send_guards import pause_sync, unit_noun
from ondatra_dagster.text_format import format_count


@click.command("pause")
@click.argument("sync")
def command(sync: str) -> int:
    """Send nothing of SYNC until it is resumed; a run that is sending stops after its batch."""
    workspace = open_workspace()
    chosen = workspace.sync(sync)
    pause_sync(chosen)
    seen = workspace.try_read_queue(chosen.id)
    units = format_count(seen.status.depth if seen.status else 0, unit_noun(chosen))
    what = f"and {seen.unknown_reason}" if seen.unknown_reason else f"with {units} pending"
    print_message(f"{chosen.id} is paused, {what}; to go on: ondatra resume {chosen.id}")
    return 0
