"""`ondatra dead`: what an API refused for good, or what was tried often enough."""

import click

from ondatra_dagster.cli.current_project import open_workspace
from ondatra_dagster.cli.dead_letter_output import MAX_DEAD_LETTERS_SHOWN, report_no_dead_letters, show_dead_letters
from ondatra_dagster.cli.output import print_message


@click.command("dead")
@click.argument("sync")
@click.option(
    "--limit", type=click.IntRange(min=1), help=f"How many, the oldest first; {MAX_DEAD_LETTERS_SHOWN}, or all."
)
@click.option("as_json", "--json", is_flag=True, help="One JSON object a dead letter on stdout.")
def command(sync: str, limit: int | None, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """List the dead letters of SYNC: key, payload, error, attempts; 1 when its queue is lost."""
    workspace = open_workspace()
    chosen = workspace.sync(sync)
    if not show_dead_letters(chosen, as_json=as_json, limit=limit):
        return report_no_dead_letters(workspace.try_read_queue(chosen.id))
    if not as_json:
        print_message(f"\nmend the rows at their source, or send them as they are: ondatra replay {sync}")
    return 0
