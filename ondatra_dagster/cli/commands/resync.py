"""`ondatra resync`: start a sync again, when it is unknown what the API has."""

import click

from ondatra_dagster import interruption
from ondatra_dagster.app.run_service_factory import OpenRunService, open_run_service
from ondatra_dagster.app.sync_service import build_ports
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.cli.commands.run import RunCommandOptions, execute_plan
from ondatra_dagster.cli.current_project import open_sync
from ondatra_dagster.cli.output import print_message
from ondatra_dagster.sync.recovery.queue_reset import ResyncOptions, resync_queue
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.text_format import format_count


@click.command("resync")
@click.argument("sync")
@click.option("--assume-delivered", is_flag=True, help="Send nothing: the API has the table as it is now.")
@click.option("--deletes", is_flag=True, help="Also delete what was sent and the table no longer has.")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a line on stdout.")
@click.pass_obj
def command(
    opened: OpenRunService | None,
    sync: str,
    assume_delivered: bool,  # noqa: FBT001 - click calls it by name
    deletes: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> int:
    """Send every row of SYNC again, as an update where the API has acknowledged it."""
    if assume_delivered and deletes:
        raise click.UsageError("--assume-delivered sends nothing, so it can't go with --deletes")
    workspace, chosen = open_sync(sync)
    way = ResyncOptions(assumes_delivered=assume_delivered, deletes_missing_rows=deletes)
    return _run_resync(workspace, chosen, way, as_json=as_json, opened=opened or open_run_service)


def _run_resync(workspace: Workspace, sync: Sync, way: ResyncOptions, *, as_json: bool, opened: OpenRunService) -> int:
    """Fill the queue again, deliver it, and return the exit code."""
    with interruption.graceful_shutdown(), opened(workspace) as engine:
        keys = resync_queue(sync, build_ports(workspace, sync, engine.tables.feed(sync)), way)
    if way.assumes_delivered:
        print_message(f"{sync.id} takes its table as delivered; only what changes from now on is sent")
        return 0
    print_message(f"{format_count(keys, 'key')} of {sync.id} go out again")
    options = RunCommandOptions(as_json=as_json, trigger="ondatra resync")
    return execute_plan(workspace, workspace.sync_plan(sync), options, opened=opened)
