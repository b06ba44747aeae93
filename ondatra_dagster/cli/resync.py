"""`ondatra resync`: begin a sync anew, when nobody knows any more what the API holds."""

import click

from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import say
from ondatra_dagster.cli.run import run
from ondatra_dagster.orchestration.opening import OpenEngine, open_engine
from ondatra_dagster.orchestration.sync_runs import begin_anew
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.planning.plan import Plan
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.wording import count


@click.command("resync")
@click.argument("sync")
@click.option("--assume-delivered", is_flag=True, help="Send nothing: the API has the table as it is now.")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a line on stdout.")
def command(sync: str, assume_delivered: bool, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Send every row of SYNC again, as an update where the API has acknowledged it."""
    workspace = open_workspace()
    chosen = workspace.sync(sync)
    return resync(workspace, chosen, assume_delivered=assume_delivered, as_json=as_json)


def resync(
    workspace: Workspace,
    sync: Sync,
    *,
    assume_delivered: bool,
    as_json: bool,
    opened: OpenEngine = open_engine,
) -> int:
    """Fill the queue anew and deliver it; the exit code."""
    with opened(workspace) as engine:
        feed = engine.tables.feed(sync)
        keys = begin_anew(workspace, sync, feed, assume_delivered=assume_delivered)
    if assume_delivered:
        say(f"{sync.id} takes its table as delivered; only what changes from now on is sent")
        return 0
    say(f"{count(keys, 'key')} of {sync.id} go out again")
    plan = workspace.plan({sync.model.id})
    return run(
        workspace, Plan(models=(), syncs=plan.syncs), as_json=as_json, trigger="ondatra resync", opened=opened
    )
