"""The command `ondatra replay`, which sends dead letters again. It also sends rows at once that wait for a retry."""

import time
from datetime import UTC, datetime

import click

from ondatra_dagster.cli.commands.dead import report_no_dead_letters, show_dead_letters
from ondatra_dagster.cli.commands.run import RunCommandOptions, execute_plan
from ondatra_dagster.cli.current_project import open_sync
from ondatra_dagster.cli.output import print_message
from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import replay_dead_letters, retry_waiting_now
from ondatra_dagster.delivery.queue.queue_status import read_status
from ondatra_dagster.sync.recovery.unit_shape_check import refuse_other_format
from ondatra_dagster.sync.sync_definition import Sync

TIME_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]


@click.command("replay")
@click.argument("sync")
@click.option("--preview", is_flag=True, help="Show what would be sent, and send nothing.")
@click.option("--limit", type=click.IntRange(min=1), help="At most this many dead letters, the oldest first.")
@click.option("--since", type=click.DateTime(TIME_FORMATS), help="Only dead letters since then (local time).")
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per line.")
def command(
    sync: str,
    preview: bool,  # noqa: FBT001 - click calls it by name
    limit: int | None,
    since: datetime | None,
    as_json: bool,  # noqa: FBT001
) -> int:
    """Send the dead letters of SYNC again with the newest values, and its waiting rows at once."""
    workspace, chosen_sync = open_sync(sync)
    since_utc = since.astimezone(UTC) if since else None
    if preview:
        if not show_dead_letters(chosen_sync, as_json=as_json, limit=limit, since=since_utc):
            message = "there are no such dead letters" if since else "there are no dead letters"
            return report_no_dead_letters(workspace.try_read_queue(chosen_sync.id), message=message)
        return 0
    if loss_message := workspace.try_read_queue(chosen_sync.id).loss_message:
        print_message(
            f"nothing of {chosen_sync.id} can be replayed now; replay again after the next run: {loss_message}"
        )
    else:
        print_message(_replay_rows(chosen_sync, limit, since_utc))
    options = RunCommandOptions(as_json=as_json, trigger="ondatra replay")
    return execute_plan(workspace, workspace.sync_plan(chosen_sync), options)


def _replay_rows(sync: Sync, limit: int | None, since: datetime | None) -> str:
    """Make dead letters and waiting rows ready to be sent now. Return a sentence with their numbers."""
    dead_letter_count = waiting_count = pending_count = 0
    if sync.queue_file.exists():
        with sync.open_queue() as queue:
            refuse_other_format(queue, sync)
            now = time.time()
            pending_count = read_status(queue.store, now=now).pending_units
            dead_letter_count = replay_dead_letters(queue, now=now, limit=limit, since=since)
            waiting_count = retry_waiting_now(queue)
    rows_text = f"{format_count(dead_letter_count, 'dead letter')} and {format_count(waiting_count, 'waiting key')}"
    pending_note = f", next to {format_count(pending_count, 'pending key')}" if pending_count else ""
    return f"{rows_text} of {sync.id} are retried{pending_note}"
