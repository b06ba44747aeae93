"""A flush into a table of plain files, in a process that is killed at a given point.

Everything except the table is what a run uses. A commit is one file that appears whole, as in a Delta log; it has
the transaction and its rows. Start it with `python -m support.processes.plain_flush_kill_points ROOT POINT`.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ondatra_dagster.collector import pending_events
from ondatra_dagster.collector.event_store import EventStore
from ondatra_dagster.deltalog.log_reader import read_last_transaction
from ondatra_dagster.event_batches import EventBatch
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.project.project_loader import load_project
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings


class FlushKillPoint(NamedTuple):
    """A kill before or after the call of a function."""

    function_owner: Any
    function_name: str
    is_after: bool = False  # kill when the function has returned


def commit_portion(log: Path, numbering: str, portion: EventBatch) -> None:
    """Write the rows and their transaction in one file that appears whole."""
    log.mkdir(parents=True, exist_ok=True)
    version = len(list(log.glob("*.json")))
    lines = [{"txn": {"appId": numbering, "version": portion.last_number}}, {"rows": [row[0] for row in portion.rows]}]
    beside = log / "next.tmp"
    beside.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    beside.rename(log / f"{version:020}.json")


THIS_MODULE = sys.modules[__name__]
FLUSH_KILL_POINTS: Mapping[str, FlushKillPoint] = {
    "before reading": FlushKillPoint(pending_events, "read_page_after"),
    "after reading": FlushKillPoint(THIS_MODULE, "commit_portion"),
    "after the commit": FlushKillPoint(THIS_MODULE, "commit_portion", is_after=True),
    "before forgetting": FlushKillPoint(pending_events, "open_locked_store"),
    "in the middle of forgetting": FlushKillPoint(EventStore, "delete_up_to", is_after=True),
}


def kill_process_at(place: FlushKillPoint) -> None:
    """Replace the function, so that this process is killed when it is called."""
    reached: Callable[..., Any] = getattr(place.function_owner, place.function_name)

    def kill_at_call(*arguments: Any, **options: Any) -> Any:
        if place.is_after:
            reached(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(place.function_owner, place.function_name, kill_at_call)


def flush_events(root: Path, *, most_events: int) -> None:
    settings = read_settings(root, {})
    model = load_project(root, settings).model("events.views")
    table = Path(table_path(settings, model.id))
    events = pending_events.ModelEvents(settings, model, most_events=most_events)
    numbering = events.sequence_id
    for portion in events.read_batches(read_last_transaction(table, numbering)):
        commit_portion(table / "_delta_log", numbering, portion)
    pending_events.delete_flushed_events(settings, model)


def read_plain_rows(root: Path) -> list[str]:
    """Return all pages in the table, in its order."""
    settings = read_settings(root, {})
    log = Path(table_path(settings, "events.views")) / "_delta_log"
    return [
        page for path in sorted(log.glob("*.json")) for page in orjson.loads(path.read_bytes().split(b"\n")[1])["rows"]
    ]


if __name__ == "__main__":
    if sys.argv[2] in FLUSH_KILL_POINTS:
        kill_process_at(FLUSH_KILL_POINTS[sys.argv[2]])
    flush_events(Path(sys.argv[1]), most_events=500)
