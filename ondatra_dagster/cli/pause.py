"""`ondatra pause`: hold a sync; models go on, and its rows are kept for later."""

import click

from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import say
from ondatra_dagster.sync.guard import unit_noun
from ondatra_dagster.sync.hold import pause
from ondatra_dagster.wording import count


@click.command("pause")
@click.argument("sync")
def command(sync: str) -> int:
    """Send nothing of SYNC until it is resumed; a run that is sending stops after its batch."""
    workspace = open_workspace()
    chosen = workspace.sync(sync)
    pause(chosen)
    seen = workspace.queue_seen(chosen.id)
    units = count(seen.state.depth if seen.state else 0, unit_noun(chosen))
    what = f"and {seen.why_unknown}" if seen.why_unknown else f"with {units} pending"
    say(f"{chosen.id} is paused, {what}; to go on: ondatra resume {chosen.id}")
    return 0
