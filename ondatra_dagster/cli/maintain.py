"""`ondatra maintain`: what has to be done from time to time, which Dagster's schedules do too."""

import click

from ondatra_dagster import interruption
from ondatra_dagster.changes import Json
from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import indented, put_json, say
from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.orchestration.opening import OpenEngine, open_engine
from ondatra_dagster.orchestration.workspace import Workspace


@click.command("maintain")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a duty on stdout.")
@click.pass_obj
def command(opened: OpenEngine | None, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Free the space that nobody needs any more, and keep tables quick to read.

    First each sync takes in what its table has new, and the sync log what was sent: nothing is lost. Spark
    starts only where one of the duties needs it.
    """
    return maintain(open_workspace(), as_json=as_json, opened=opened or open_engine)


def maintain(workspace: Workspace, *, as_json: bool, opened: OpenEngine = open_engine) -> int:
    """Do each duty and tell of it; 1 when one failed."""
    is_good = True
    with interruption.ending_in_order(), opened(workspace) as engine:
        for end in engine.maintain():
            is_good = is_good and end.is_good
            if as_json:
                put_json(_line(end))
            say(f"{'✓' if end.is_good else '✗'} {end.duty}: {indented(end.did)}")
    return 0 if is_good else 1


def _line(end: Done) -> dict[str, Json]:
    each: dict[str, Json] = {"each": [dict(each) for each in end.each]} if end.each else {}
    return {"duty": end.duty, "ok": end.is_good, "did": end.did, **end.counts, **each}
