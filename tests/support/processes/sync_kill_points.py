"""The points of a sync run at which a test can kill its process, by name.

Each point is a function that is wrapped only in the process to be killed. The process is killed when the run calls
the function, or returns from it, for the n-th time.
Five of them are private to their modules (`_apply_staged`, `_start_batches`, `_send`, `_settle_returned`,
`_store_pending_finalize`): no public function begins or ends exactly there. tests/unit/test_kill_points.py
fails when one of them is renamed.
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ondatra_dagster.delivery import delivery_loop as delivering
from ondatra_dagster.delivery import finalize_call
from ondatra_dagster.delivery.http.connections_with_deadline import _DeadlineStream
from ondatra_dagster.delivery.job_poll_schedule import OpenJobs
from ondatra_dagster.delivery.queue import enqueue_changes as enqueueing
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.sync import enqueue_step
from ondatra_dagster.sync import sync_run as running
from ondatra_dagster.sync.record_publisher import RecordPublisher


class SyncKillPoint(NamedTuple):
    """A kill before or after the call of a function."""

    function_owner: Any
    function_name: str
    is_after: bool = False  # kill when the function has returned


SYNC_KILL_POINTS: Mapping[str, SyncKillPoint] = {
    "after commit": SyncKillPoint(running, "recover_queue"),
    "before enqueue": SyncKillPoint(enqueue_step, "enqueue_segment"),
    "in the middle of enqueue": SyncKillPoint(enqueueing, "_apply_staged"),
    "after enqueue": SyncKillPoint(enqueue_step, "enqueue_segment", is_after=True),
    "after claim": SyncKillPoint(delivering._DeliveryLoop, "_start_batches"),
    "after send before answer": SyncKillPoint(_DeadlineStream, "_send", is_after=True),
    "after answer before journal": SyncKillPoint(ResponseJournal, "record_response"),
    "after journal before settle": SyncKillPoint(delivering._DeliveryLoop, "_settle_returned"),
    "in settle": SyncKillPoint(delivering, "settle_batch", is_after=True),
    "after settle before publish": SyncKillPoint(RecordPublisher, "add_settled_rows"),
    "in finalize": SyncKillPoint(finalize_call, "_store_pending_finalize"),
    "after async submit": SyncKillPoint(delivering, "store_job"),
    "between polls": SyncKillPoint(OpenJobs, "wait_for_next"),
}


def kill_sync_at(point: str, time: int) -> None:
    """Replace the point's function, so that this process is killed when it gets there for the n-th time."""
    place = SYNC_KILL_POINTS[point]
    reached: Callable[..., Any] = getattr(place.function_owner, place.function_name)
    lock, times = threading.Lock(), [0]

    def count_call() -> None:
        with lock:
            times[0] += 1
            if times[0] == time:
                os.kill(os.getpid(), signal.SIGKILL)

    def call_or_kill(*arguments: Any, **options: Any) -> Any:
        if not place.is_after:
            count_call()
        returned = reached(*arguments, **options)
        if place.is_after:
            count_call()
        return returned

    setattr(place.function_owner, place.function_name, call_or_kill)
