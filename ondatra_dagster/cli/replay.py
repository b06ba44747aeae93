"""`ondatra replay`: send dead letters again, and waiting rows now."""

import time
from datetime import UTC, datetime
from typing import NamedTuple

import click

from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.letters import say_none, show_letters
from ondatra_dagster.cli.output import say
from ondatra_dagster.cli.run import run
from ondatra_dagster.delivery.queue.letters import hasten, replay
from ondatra_dagster.delivery.queue.states import look
from ondatra_dagster.sync.form_check import refuse_another_form
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.wording import count

MOMENTS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]


@click.command("replay")
@click.argument("sync")
@click.option("--preview", is_flag=True, help="Show what would be sent, and send nothing.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many dead letters, the oldest first.")
@click.option("--since", type=click.DateTime(MOMENTS), help="Only what died since then (local time).")
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
        if not show_letters(chosen, as_json=as_json, limit=limit, since=died_since):
            told = "there are no such dead letters" if since else "there are no dead letters"
            return say_none(workspace.queue_seen(chosen.id), told=told)
        return 0
    if lost := workspace.queue_seen(chosen.id).lost:
        say(f"nothing of {chosen.id} is sent again now; replay once more after the next run: {lost}")
    else:
        say(_told(chosen.id, _revive(chosen, limit, died_since)))
    return run(workspace, workspace.sync_plan(chosen), as_json=as_json, trigger="ondatra replay")


class _Again(NamedTuple):
    """What is pending now, by what it was before."""

    letters: int
    waiting: int
    pending: int


def _revive(sync: Sync, limit: int | None, since: datetime | None) -> _Again:
    if not sync.queue.exists():
        return _Again(0, 0, 0)
    with sync.open_queue() as queue:
        refuse_another_form(queue, sync)
        now = time.time()
        pending = look(queue.store, now=now).pending
        return _Again(replay(queue, now=now, limit=limit, since=since), hasten(queue), pending)


def _told(sync_id: str, again: _Again) -> str:
    letters, keys = count(again.letters, "dead letter"), count(again.waiting, "waiting key")
    pending = f", next to {count(again.pending, 'pending key')}" if again.pending else ""
    return f"{letters} and {keys} of {sync_id} are retried{pending}"
