"""`ondatra forget`: drop what is known of the API's rows; the records of what was sent stay."""

import click

from ondatra_dagster.cli.current_project import open_sync
from ondatra_dagster.cli.output import print_message
from ondatra_dagster.sync.recovery.queue_reset import forget_sync
from ondatra_dagster.text_format import format_count


@click.command("forget")
@click.argument("sync")
@click.option("--yes", is_flag=True, help="Really: what waits and the dead letters are lost.")
def command(sync: str, yes: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Delete SYNC's queue and frontier, so that its next run asks for a resync; its records are kept."""
    workspace, chosen = open_sync(sync)
    queue = workspace.queue(chosen.id)
    keys, letters = (queue.depth, queue.dead_units) if queue else (0, 0)
    seen = workspace.try_read_queue(chosen.id)
    if seen.loss_message and not seen.is_forgotten:
        lost = "what its lost queue would be rebuilt from"
    else:
        lost = f"{format_count(keys, 'pending key')} and {format_count(letters, 'dead letter')}"
    if not yes:
        raise click.UsageError(f"{chosen.id} would lose {lost}; if that is what you want, add --yes")
    forget_sync(chosen, workspace.tracking)
    print_message(f"{chosen.id} has forgotten {lost}; its next run asks for: ondatra resync {chosen.id}")
    return 0
