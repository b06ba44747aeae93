"""Other state folders that deliver the same sync: found before the first call, so that no row is sent twice.

Two machines can't lock each other out: what they share is the tracking store. There each run leaves a mark in
place of the one before, and rewrites it while it goes on. So a run that begins sees whether another one is at
work, and a run at work sees that another one has begun.
"""

from datetime import UTC

from ondatra_dagster.delivery.frontier import Frontier
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.errors import OtherStateError
from ondatra_dagster.sync.ports import Ports
from ondatra_dagster.sync.run_id import begun_at
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.run_mark import RunMark
from ondatra_dagster.wording import duration

LOOK_SECONDS = 1.0


class OtherStates:
    """What one run of a sync knows of its runs in other state folders."""

    def __init__(self, sync: Sync, ports: Ports) -> None:
        """To be made when the run begins, before it waits for anything."""
        self._sync = sync
        self._ports = ports
        self._run_id = ""
        self._seen = self._mark()  # the newest mark that this run knows and may go on from

    def look_before_run(self) -> None:
        """Raise OtherStateError when another state folder is at work, or was since this run began.

        To be called before the queue is compared with the store. What was done since the begin is found by
        the mark, for the clocks of two machines may differ.
        """
        mark = self._mark()
        if mark is None or self._is_own(mark):
            self._seen = mark
            return
        watched = self._watched(mark)
        if self._seen is None or mark.run_id != self._seen.run_id:
            raise self._met(mark.state_id, mark.run_id)
        self._seen = watched

    def begin(self, run_id: str) -> None:
        """Leave the mark of this run, unless another state folder has left one meanwhile."""
        mark = self._mark()
        if mark and mark != self._seen and not self._is_own(mark):
            raise self._met(mark.state_id, mark.run_id)
        self._run_id = run_id
        self._write()

    def check(self) -> None:
        """Raise OtherStateError when another state folder has begun a run since; else renew the mark."""
        if mark := self.overtaking():
            raise self._met(mark.state_id, mark.run_id)
        self._write()

    def overtaking(self) -> RunMark | None:
        """Return the mark that another run has left in place of this one's; None when it is still there."""
        mark = self._mark()
        return mark if mark and mark.run_id != self._run_id else None

    def end(self) -> None:
        """Note that the run has ended, so that no other run waits for a sign of it."""
        self._write(has_ended=True)

    def _write(self, *, has_ended: bool = False) -> None:
        mark = RunMark(
            run_id=self._run_id, state_id=self._own_id, seen_at=self._ports.now(), has_ended=has_ended
        )
        self._ports.tracking.write_mark(self._sync.id, mark)

    def _mark(self) -> RunMark | None:
        return self._ports.tracking.read_mark(self._sync.id)

    @property
    def _own_id(self) -> str:
        return self._ports.tracking.state.id

    def _is_own(self, mark: RunMark) -> bool:
        return mark.state_id == self._own_id

    def _watched(self, first: RunMark) -> RunMark | None:
        """Return the mark of another state folder's run once that has ended, or must be dead for its silence.

        Raise OtherStateError at the first sign of life.
        """
        if first.has_ended:
            return first
        silence = 2 * self._ports.publish_seconds
        self._ports.notify(
            f"{self._sync.id}: run {first.run_id} of the state folder with the id {first.state_id} hasn't"
            f" ended; waiting {duration(silence)} for a sign of it"
        )
        mark: RunMark | None = first
        for _ in range(int(silence / LOOK_SECONDS) + 1):
            self._ports.sleep(LOOK_SECONDS)
            mark = self._mark()
            if mark is None or mark.has_ended:
                break
            if mark != first:
                raise self._met(mark.state_id, mark.run_id)
        return mark

    def _met(self, state_id: str, run_id: str) -> OtherStateError:
        return OtherStateError(
            f"{self._sync.id} is delivered from another state folder too (id {state_id}, run {run_id}), so"
            f" nothing more is sent from this one (id {self._own_id}). Let only one of them run this sync;"
            " the next run goes on from what the other one leaves in the tracking store"
        )


def newest_run(sync: Sync, ports: Ports) -> str:
    """Return the newest run that left a folder, or an empty text. A bucket may hold other folders, too."""
    return next(filter(begun_at, reversed(ports.tracking.runs(sync.id))), "")


def describe_takeover(queue: Queue, sync: Sync, ports: Ports, frontier: Frontier) -> str:
    """Say from what a sync goes on whose own queue is missing, or is older than what is known elsewhere."""
    own, at = ports.tracking.state, frontier.written_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    left = f"it goes on from what was left in the tracking store at {at} UTC"
    is_missing = queue.meta("table_id") is None
    if frontier.state_id == own.id:
        what = "is missing" if is_missing else "is older than the last run: it was put back"
        return f"{sync.id}: the queue {what}; {left}"
    if frontier.state_id == own.copy_of:
        what = f"this state folder (id {own.id}) is a copy of the one with the id {own.copy_of}"
    elif is_missing:
        what = f"this state folder (id {own.id}) is new to this sync"
    else:
        what = "another state folder has delivered this sync since the last run from here"
    return f"{sync.id}: {what}; {left} by the state folder with the id {frontier.state_id or 'unknown'}"
