"""`ondatra resync`: begin a sync anew, when nobody knows any more what the API holds."""

import click

from ondatra_dagster import interruption
from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import say
from ondatra_dagster.cli.run import run
from ondatra_dagster.orchestration.opening import OpenEngine, open_engine
from ondatra_dagster.orchestration.sync_runs import begin_anew
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.sync.resync import Way
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.wording import count


@click.command("resync")
@click.argument("sync")
@click.option("--assume-delivered", is_flag=True, help="Send nothing: the API has the table as it is now.")
@click.option("--deletes", is_flag=True, help="Also delete what was sent and the table no longer has.")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a line on stdout.")
@click.pass_obj
def command(
    opened: OpenEngine | None,
    sync: str,
    assume_delivered: bool,  # noqa: FBT001 - click calls it by name
    deletes: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> int:
    """Send every row of SYNC again, as an update where the API has acknowledged it."""
    if assume_delivered and deletes:
        raise click.UsageError("--assume-delivered sends nothing, so it can't go with --deletes")
    workspace = open_workspace()
    chosen = workspace.sync(sync)
    way = Way(assume_delivered=assume_delivered, removes=deletes)
    return _resync(workspace, chosen, way, as_json=as_json, opened=opened or open_engine)


def _resync(workspace: Workspace, sync: Sync, way: Way, *, as_json: bool, opened: OpenEngine) -> int:
    """Fill the queue anew and deliver it; the exit code."""
    with interruption.ending_in_order(), opened(workspace) as engine:
        feed = engine.tables.feed(sync)
        keys = begin_anew(workspace, sync, feed, way)
    if way.assume_delivered:
        say(f"{sync.id} takes its table as delivered; only what changes from now on is sent")
        return 0
    say(f"{count(keys, 'key')} of {sync.id} go out again")
    plan = workspace.sync_plan(sync)
    return run(workspace, plan, as_json=as_json, trigger="ondatra resync", opened=opened)
