"""`ondatra.sync_log`: every published record once, as a row of a Delta table in the warehouse.

How far the log has come stands in its commits, beside the rows: a run that is cut off has appended what it
says, and the next one goes on from there. Whether there is anything to append is seen without Spark.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.planning.delta_log import SYNC_LOG, commit_notes, read_table_state, table_path
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.tracking.log_position import Piece, Position
from ondatra_dagster.tracking.log_rows import LogRows, log_rows, pieces_after, together
from ondatra_dagster.tracking.store import TrackingStore
from ondatra_dagster.wording import count

COMMIT_BYTES = 64_000_000  # of records that are in memory at once; more are appended in several commits
DUTY = "sync_log"


class LogTable(Protocol):
    """The Delta table, in the hands of one process."""

    def writing(self) -> AbstractContextManager[None]:
        """Hold the table; BusyError says who does."""

    def append(self, rows: LogRows, *, note: str, number: int) -> None:
        """Add the rows in one commit with that note; nothing when the commit of that number is there."""


class SyncLog:
    """The log of one project."""

    def __init__(
        self, settings: Settings, tracking: TrackingStore, *, commit_bytes: int = COMMIT_BYTES
    ) -> None:
        self._address = table_path(settings, SYNC_LOG)
        self._tracking = tracking
        self._commit_bytes = commit_bytes

    def missing(self) -> Iterator[Piece]:
        """What is published and not in the log yet; starts nothing."""
        return pieces_after(self._tracking, self.position())

    def append(self, table: LogTable) -> int:
        """Bring the log up to what is published now; how many records that were."""
        appended = 0
        with table.writing():
            position = self.position()
            for pieces in in_commits(pieces_after(self._tracking, position), self._commit_bytes):
                position = position.after(pieces)
                rows = together([log_rows(self._tracking, piece) for piece in pieces])
                table.append(rows, note=position.dump(), number=position.number)
                appended += sum(piece.rows for piece in pieces)
        return appended

    def bring_up(self, opened: Callable[[], LogTable]) -> Done:
        """The same as a duty; where nothing is missing, the table isn't opened."""
        is_behind = any(True for _ in self.missing())
        appended = self.append(opened()) if is_behind else 0
        return Done(
            duty=DUTY,
            did=f"{count(appended, 'record')} appended to {SYNC_LOG}",
            counts={"records": appended},
        )

    def position(self) -> Position:
        """Where the newest commit of ours came to; those of others say nothing, whatever they did."""
        for note in commit_notes(self._address):
            if position := Position.load(note):
                return position
        if read_table_state(self._address) is not None:
            raise WarehouseError(
                f"the commits of {SYNC_LOG} no longer say what is in it, so nothing can be added; move"
                f" {self._address} away to have it made anew from the records that are kept"
            )
        return Position()


def is_logged(log: SyncLog, sync_id: str) -> bool:
    """Return whether the log has deliveries of the sync, or can't rule it out."""
    try:
        return bool(log.position().run_of(sync_id))
    except WarehouseError:
        return True


def in_commits(pieces: Iterable[Piece], most_bytes: int) -> Iterator[list[Piece]]:
    """Pieces that fit in memory together."""
    chosen: list[Piece] = []
    size = 0
    for piece in pieces:
        if chosen and size + piece.size > most_bytes:
            yield chosen
            chosen, size = [], 0
        chosen.append(piece)
        size += piece.size
    if chosen:
        yield chosen
