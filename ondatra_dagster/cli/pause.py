"""`ondatra pause`: hold a sync; models go on, and its rows are kept for later."""

import click

from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import say
from ondatra_dagster.sync.hold import pause
from ondatra_dagster.wording import count


@click.command("pause")
@click.argument("sync")
def command(sync: str) -> int:
    """Send nothing of SYNC until it is resumed; a run that is sending stops after its batch."""
    workspace = open_workspace()
    chosen = workspace.sync(sync)
    pause(chosen)
    queue = workspace.queue(chosen.id)
    waiting = count(queue.depth if queue else 0, "key")
    say(f"{chosen.id} is paused, with {waiting} to go; to go on: ondatra resume {chosen.id}")
    return 0
