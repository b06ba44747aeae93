"""`ondatra resume`: let a paused sync go on."""

import click

from ondatra_dagster.cli.current_project import open_workspace
from ondatra_dagster.cli.output import print_message
from ondatra_dagster.sync.send_guards import resume_sync, unit_noun
from ondatra_dagster.text_format import format_count


@click.command("resume")
@click.argument("sync")
def command(sync: str) -> int:
    """Let SYNC go on: its next run, or Dagster's sensor, sends what has waited."""
    workspace = open_workspace()
    chosen = workspace.sync(sync)
    if not resume_sync(chosen):
        print_message(f"{chosen.id} isn't paused")
        return 0
    seen = workspace.try_read_queue(chosen.id)
    units = format_count(seen.status.depth if seen.status else 0, unit_noun(chosen))
    print_message(f"{chosen.id} is no longer paused; {seen.unknown_reason or f'{units} pending'}: ondatra run")
    return 0
