"""`ondatra dead`: what an API refused for good, or what was tried often enough."""

import click

from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.letters import most_rows, put_letters
from ondatra_dagster.cli.output import say
from ondatra_dagster.sync.dead_letters import dead_letters


@click.command("dead")
@click.argument("sync")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a dead letter on stdout.")
def command(sync: str, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """List the dead letters of SYNC: key, payload, error, attempts."""
    chosen = open_workspace().sync(sync)
    dead = dead_letters(chosen, most_rows=most_rows(as_json=as_json))
    put_letters(dead, chosen, as_json=as_json)
    if not dead:
        say("there are no dead letters")
    elif not as_json:
        say(f"\nmend the rows at their source, or send them as they are: ondatra replay {sync}")
    return 0
