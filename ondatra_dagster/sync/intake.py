"""Taking in what a model's table has that its sync's queue hasn't, without sending any of it."""

from typing import NamedTuple

from ondatra_dagster.sync.cross_check import cross_check, take_in
from ondatra_dagster.sync.other_states import OtherStates
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.resync import leave_frontier
from ondatra_dagster.sync.run_account import close_crashed_runs
from ondatra_dagster.sync.sync import Sync


class TakenIn(NamedTuple):
    """Versions (after, upto] are in the queue now; equal: there was nothing."""

    after: int
    upto: int


def take_in_changes(sync: Sync, ports: Ports) -> TakenIn | None:
    """Bring the sync's queue up to its model's table; None when there is no table, or it has never run.

    What is known of it outside its queue is brought up, too: a queue that is lost afterwards needs no
    version that this one has taken in. BusyError: another process delivers; OtherStateError: another state
    folder does.
    """
    source = ports.source()
    if source is None or not sync.queue.exists():
        return None
    with sync.open_queue() as queue:
        source = ports.source() or source  # until the queue was ours, others may have gone on with it
        OtherStates(sync, ports).look_before_run()
        recovered = cross_check(queue, sync, ports, source)
        close_crashed_runs(queue, sync, ports)
        before = queue.watermark
        take_in(queue, sync, ports, source, recovered)
        leave_frontier(queue, sync, ports)
        return TakenIn(before, queue.watermark)
