"""`ondatra resume`: let a paused sync go on."""

import click

from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import say
from ondatra_dagster.sync.guard import unit_noun
from ondatra_dagster.sync.hold import resume
from ondatra_dagster.wording import count


@click.command("resume")
@click.argument("sync")
def command(sync: str) -> int:
    """Let SYNC go on: its next run, or Dagster's sensor, sends what has waited."""
    workspace = open_workspace()
    chosen = workspace.sync(sync)
    if not resume(chosen):
        say(f"{chosen.id} isn't paused")
        return 0
    seen = workspace.queue_seen(chosen.id)
    units = count(seen.state.depth if seen.state else 0, unit_noun(chosen))
    say(f"{chosen.id} is no longer paused; {seen.why_unknown or f'{units} pending'}: ondatra run")
    return 0
