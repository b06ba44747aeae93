"""`ondatra replay`: send dead letters again, and waiting rows now."""

import time
from datetime import UTC, datetime
from typing import NamedTuple

import click

from ondatra_dagster.cli.commands.dead import report_no_dead_letters, show_dead_letters
from ondatra_dagster.cli.commands.run import RunCommandOptions, execute_plan
from ondatra_dagster.cli.current_project import open_workspace
from ondatra_dagster.cli.output import print_message
from ondatra_dagster.delivery.queue.dead_letters import replay_dead_letters, retry_waiting_now
from ondatra_dagster.delivery.queue.queue_status import read_status
from ondatra_dagster.sync.recovery.unit_format_check import refuse_other_format
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.text_format import format_count

TIME_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]


@click.command("replay")
@click.argument("sync")
@click.option("--preview", is_flag=True, help="Show what would be sent, and send nothing.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many dead letters, the oldest first.")
@click.option("--since", type=click.DateTime(TIME_FORMATS), help="Only what died since then (local time).")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a line on stdout.")
def command(
    sync: str,
    preview: bool,  # noqa: FBT001 - click calls it by name
    limit: int | None,
    since: datetime | None,
    as_json: bool,  # noqa: FBT001
) -> int:
    """Send the dead letters of SYNC with the newest values, and its waiting rows without waiting."""
    workspace = open_workspace()
    chosen = workspace.sync(sync)
    died_since = since.astimezone(UTC) if since else None
    if preview:
        if not show_dead_letters(chosen, as_json=as_json, limit=limit, since=died_since):
            told = "there are no such dead letters" if since else "there are no dead letters"
            return report_no_dead_letters(workspace.try_read_queue(chosen.id), told=told)
        return 0
    if lost := workspace.try_read_queue(chosen.id).loss_message:
        print_message(f"nothing of {chosen.id} is sent again now; replay once more after the next run: {lost}")
    else:
        print_message(_format_counts(chosen.id, _replay_rows(chosen, limit, died_since)))
    options = RunCommandOptions(as_json=as_json, trigger="ondatra replay")
    return execute_plan(workspace, workspace.sync_plan(chosen), options)


class _ReplayedCounts(NamedTuple):
    """The counts of what is pending now, by what it was before."""

    dead_letters: int
    waiting: int
    pending: int


def _replay_rows(sync: Sync, limit: int | None, since: datetime | None) -> _ReplayedCounts:
    if not sync.queue_file.exists():
        return _ReplayedCounts(0, 0, 0)
    with sync.open_queue() as queue:
        refuse_other_format(queue, sync)
        now = time.time()
        pending = read_status(queue.store, now=now).pending_units
        return _ReplayedCounts(
            replay_dead_letters(queue, now=now, limit=limit, since=since), retry_waiting_now(queue), pending
        )


def _format_counts(sync_id: str, again: _ReplayedCounts) -> str:
    letters, keys = (format_count(again.dead_letters, "dead letter"), format_count(again.waiting, "waiting key"))
    pending = f", next to {format_count(again.pending, 'pending key')}" if again.pending else ""
    return f"{letters} and {keys} of {sync_id} are retried{pending}"
