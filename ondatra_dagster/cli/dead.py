"""`ondatra dead`: what an API refused for good, or what was tried often enough."""

import click

from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.letters import LETTERS, show_letters
from ondatra_dagster.cli.output import say


@click.command("dead")
@click.argument("sync")
@click.option("--limit", type=click.IntRange(min=1), help=f"How many, the oldest first; {LETTERS}, or all.")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a dead letter on stdout.")
def command(sync: str, limit: int | None, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """List the dead letters of SYNC: key, payload, error, attempts."""
    if not show_letters(open_workspace().sync(sync), as_json=as_json, limit=limit):
        say("there are no dead letters")
    elif not as_json:
        say(f"\nmend the rows at their source, or send them as they are: ondatra replay {sync}")
    return 0
