"""A flush into a table that is plain files, as a process that dies where it is told to.

All but the table is what a run uses. A commit is one file that is there or isn't, as in a Delta log, with the
rows beside the transaction: `python -m support.plain_flush ROOT POINT`.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ondatra_dagster.arrivals import Portion
from ondatra_dagster.collector import waiting
from ondatra_dagster.collector.event_file import EventFile
from ondatra_dagster.planning.delta_log import last_transaction, table_path
from ondatra_dagster.project.load import load_project
from ondatra_dagster.project.settings.settings import read_settings


class Place(NamedTuple):
    """Where a function is called through."""

    owner: Any
    name: str
    is_after: bool = False  # the kill comes when it has returned


def commit(log: Path, numbering: str, portion: Portion) -> None:
    """The rows and their transaction, in one file that appears whole."""
    log.mkdir(parents=True, exist_ok=True)
    version = len(list(log.glob("*.json")))
    lines = [
        {"txn": {"appId": numbering, "version": portion.upto}},
        {"rows": [row[0] for row in portion.rows]},
    ]
    beside = log / "next.tmp"
    beside.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    beside.rename(log / f"{version:020}.json")


THIS = sys.modules[__name__]
POINTS: Mapping[str, Place] = {
    "before reading": Place(waiting, "page_after"),
    "after reading": Place(THIS, "commit"),
    "after the commit": Place(THIS, "commit", is_after=True),
    "before forgetting": Place(waiting, "held_file"),
    "in the middle of forgetting": Place(EventFile, "forget", is_after=True),
}


def die_at(place: Place) -> None:
    """Let this process be killed when it comes there."""
    reached: Callable[..., Any] = getattr(place.owner, place.name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if place.is_after:
            reached(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(place.owner, place.name, wrapped)


def flush(root: Path, *, most_events: int) -> None:
    settings = read_settings(root, {})
    model = load_project(root, settings).model("events.views")
    table = Path(table_path(settings, model.id))
    events = waiting.ModelEvents(settings, model, most_events=most_events)
    numbering = events.numbering
    for portion in events.portions(last_transaction(table, numbering)):
        commit(table / "_delta_log", numbering, portion)
    waiting.forget_flushed(settings, model)


def rows(root: Path) -> list[str]:
    """All that the table has, in its order."""
    settings = read_settings(root, {})
    log = Path(table_path(settings, "events.views")) / "_delta_log"
    return [
        page
        for path in sorted(log.glob("*.json"))
        for page in orjson.loads(path.read_bytes().split(b"\n")[1])["rows"]
    ]


if __name__ == "__main__":
    if sys.argv[2] in POINTS:
        die_at(POINTS[sys.argv[2]])
    flush(Path(sys.argv[1]), most_events=500)
