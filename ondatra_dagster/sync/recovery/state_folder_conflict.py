"""The detection of other state folders that deliver the same sync, so that no row is sent twice.

Two machines can't lock each other out, because they share only the tracking store. Each run replaces the
previous run's heartbeat there, and renews its own heartbeat while it is in progress. So a new run detects a run
in progress, and a run in progress detects a newer run.
"""

from ondatra_dagster.count_time_and_size_format import format_duration
from ondatra_dagster.errors import OtherStateFolderError
from ondatra_dagster.records.metadata_and_heartbeat_format import RunHeartbeat
from ondatra_dagster.sync.run_context import Ports, parse_start_time
from ondatra_dagster.sync.sync_definition import Sync

HEARTBEAT_POLL_SECONDS = 1.0


class StateFolderConflictCheck:
    """The check of one run against runs from other state folders."""

    def __init__(self, sync: Sync, ports: Ports) -> None:
        """Read the sync's last heartbeat. A run creates this object first, before it waits for anything."""
        self._sync = sync
        self._ports = ports
        self._run_id = ""
        self._known_heartbeat = self._read_heartbeat()  # the newest heartbeat that this run knows and may continue from

    def check_before_run(self) -> None:
        """Raise OtherStateFolderError if another state folder delivers the sync, or has delivered it during this run.

        Call this method before the queue is compared with the tracking store. The check compares heartbeats
        and not times, because the clocks of two machines may differ.
        """
        heartbeat = self._read_heartbeat()
        if heartbeat is None or self._is_own(heartbeat):
            self._known_heartbeat = heartbeat
            return
        last_heartbeat = self._wait_for_end(heartbeat)
        if self._known_heartbeat is None or heartbeat.run_id != self._known_heartbeat.run_id:
            raise self._build_error(heartbeat)
        self._known_heartbeat = last_heartbeat

    def begin_run(self, run_id: str) -> None:
        """Write this run's heartbeat; raise OtherStateFolderError if another state folder has written one meanwhile."""
        heartbeat = self._read_heartbeat()
        if heartbeat and heartbeat != self._known_heartbeat and not self._is_own(heartbeat):
            raise self._build_error(heartbeat)
        self._run_id = run_id
        self._write_heartbeat()

    def check_during_run(self) -> None:
        """Raise OtherStateFolderError if another run has begun after this one; otherwise renew the heartbeat."""
        if heartbeat := self.find_newer_run():
            raise self._build_error(heartbeat)
        self._write_heartbeat()

    def find_newer_run(self) -> RunHeartbeat | None:
        """Return the heartbeat with which a newer run replaced this run's heartbeat; None if there is no newer run."""
        heartbeat = self._read_heartbeat()
        return heartbeat if heartbeat and heartbeat.run_id != self._run_id else None

    def end_run(self) -> None:
        """Note in the heartbeat that the run has ended, so that no other run waits for its heartbeat."""
        self._write_heartbeat(has_ended=True)

    def _write_heartbeat(self, *, has_ended: bool = False) -> None:
        heartbeat = RunHeartbeat(
            run_id=self._run_id, state_id=self._own_state_id, seen_at=self._ports.now(), has_ended=has_ended
        )
        self._ports.record_store.write_heartbeat(self._sync.id, heartbeat)

    def _read_heartbeat(self) -> RunHeartbeat | None:
        return self._ports.record_store.read_heartbeat(self._sync.id)

    @property
    def _own_state_id(self) -> str:
        return self._ports.record_store.state.id

    def _is_own(self, mark: RunHeartbeat) -> bool:
        return mark.state_id == self._own_state_id

    def _wait_for_end(self, first: RunHeartbeat) -> RunHeartbeat | None:
        """Wait until another state folder's run has ended or stopped its heartbeat; return its last heartbeat.

        Raise OtherStateFolderError as soon as the run renews its heartbeat.
        """
        if first.has_ended:
            return first
        silence_seconds = 2 * self._ports.publish_seconds
        self._ports.notify(
            f"{self._sync.id}: run {first.run_id} of the state folder with the id {first.state_id} hasn't"
            f" ended; waiting {format_duration(silence_seconds)} for its heartbeat"
        )
        heartbeat: RunHeartbeat | None = first
        for _ in range(int(silence_seconds / HEARTBEAT_POLL_SECONDS) + 1):
            self._ports.sleep(HEARTBEAT_POLL_SECONDS)
            heartbeat = self._read_heartbeat()
            if heartbeat is None or heartbeat.has_ended:
                break
            if heartbeat != first:
                raise self._build_error(heartbeat)
        return heartbeat

    def _build_error(self, mark: RunHeartbeat) -> OtherStateFolderError:
        return OtherStateFolderError(
            f"{self._sync.id} is delivered from another state folder too (id {mark.state_id}, run {mark.run_id}), so"
            f" nothing more is sent from this one (id {self._own_state_id}). Run this sync from only one of them;"
            " its next run continues from the queue snapshot in the tracking store"
        )


def find_newest_run(sync: Sync, ports: Ports) -> str:
    """Return the id of the newest run with a folder in the tracking store; an empty text if no run has one.

    Folders whose names aren't run ids are skipped, because a bucket may contain some.
    """
    return next(filter(parse_start_time, reversed(ports.record_store.list_runs(sync.id))), "")
