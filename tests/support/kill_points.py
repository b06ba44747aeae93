"""Points of a sync run at which a test may let its process be killed, by name.

Each is a function of ours that is wrapped, in the process that is about to die and nowhere else: it is killed
when the run comes there for the n-th time.

Five of them are private to their modules (`_apply_staged`, `_send_off`, `_send`, `_land`, `_keep`): no public
function begins or ends exactly there. tests/unit/test_kill_points.py fails when one of them is renamed.
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ondatra_dagster.delivery import deliver as delivering
from ondatra_dagster.delivery import finalizing
from ondatra_dagster.delivery.http.http_transport import _Stream
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.open_jobs import OpenJobs
from ondatra_dagster.delivery.queue import enqueue as enqueueing
from ondatra_dagster.sync import cross_check as checking
from ondatra_dagster.sync import run as running
from ondatra_dagster.sync.records import Publisher


class Place(NamedTuple):
    """Where a function is called through."""

    owner: Any
    name: str
    is_after: bool = False  # the kill comes when it has returned


POINTS: Mapping[str, Place] = {
    "after commit": Place(running, "cross_check"),
    "before enqueue": Place(checking, "enqueue"),
    "in the middle of enqueue": Place(enqueueing, "_apply_staged"),
    "after enqueue": Place(checking, "enqueue", is_after=True),
    "after claim": Place(delivering._Delivering, "_send_off"),
    "after send before answer": Place(_Stream, "_send", is_after=True),
    "after answer before journal": Place(Journal, "note_answer"),
    "after journal before settle": Place(delivering._Delivering, "_land"),
    "in settle": Place(delivering, "settle", is_after=True),
    "after settle before publish": Place(Publisher, "note"),
    "in finalize": Place(finalizing, "_keep"),
    "after async submit": Place(delivering, "keep_job"),
    "between polls": Place(OpenJobs, "wait"),
}


def die_at(point: str, time: int) -> None:
    """Let this process be killed when it comes to that point for that time."""
    place = POINTS[point]
    reached: Callable[..., Any] = getattr(place.owner, place.name)
    lock, times = threading.Lock(), [0]

    def count() -> None:
        with lock:
            times[0] += 1
            if times[0] == time:
                os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if not place.is_after:
            count()
        returned = reached(*arguments, **options)
        if place.is_after:
            count()
        return returned

    setattr(place.owner, place.name, wrapped)
