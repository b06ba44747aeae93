"""`ondatra maintain`: what has to be done from time to time, which Dagster's schedules do too."""

import click

from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import put_json, say
from ondatra_dagster.orchestration.opening import OpenEngine, open_engine
from ondatra_dagster.orchestration.workspace import Workspace


@click.command("maintain")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a duty on stdout.")
def command(as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Bring the sync log up to date, remove records past their retention, refresh the fact tables.

    Spark starts only if there is something to append to the log.
    """
    return maintain(open_workspace(), as_json=as_json)


def maintain(workspace: Workspace, *, as_json: bool, opened: OpenEngine = open_engine) -> int:
    """Do each duty and tell of it; 1 when one failed."""
    is_good = True
    with opened(workspace) as engine:
        for end in engine.maintain():
            is_good = is_good and end.is_good
            if as_json:
                put_json({"duty": end.duty, "ok": end.is_good, "did": end.did, **end.counts})
            say(f"{'✓' if end.is_good else '✗'} {end.duty}: {end.did}")
    return 0 if is_good else 1
