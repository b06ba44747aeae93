"""The waiting events of a model, for status commands and for the flush that writes them.

The table's own log holds the number up to which the table has events, in the commit of their rows. So a flush that
is interrupted has written a batch entirely or not at all. Reading this number needs neither Spark nor the
collector.
"""

import contextlib
import datetime
from collections.abc import Iterator

import orjson

from ondatra_dagster.collector.event_store import (
    PendingSummary,
    StoredRequest,
    event_store_path,
    open_locked_store,
    read_page_after,
    read_sequence_id,
    summarize_pending,
)
from ondatra_dagster.collector.event_to_row_parser import EventParser
from ondatra_dagster.collector.json_value_parsers import ParseNotes
from ondatra_dagster.deltalog.log_reader import read_last_transaction
from ondatra_dagster.errors import BusyError
from ondatra_dagster.event_batches import EventBatch, InvalidEvent
from ondatra_dagster.planning.find_table_and_columns import warehouse_table_path
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings

BATCH_EVENTS = 50_000  # in memory at once; more events are written in several commits
BATCH_BYTES = 32_000_000
PAGE_REQUESTS = 50
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class ModelEvents:
    """The events of one model that aren't in its table."""

    def __init__(
        self, settings: Settings, model: Model, *, most_events: int = BATCH_EVENTS, most_bytes: int = BATCH_BYTES
    ) -> None:
        self._settings = settings
        self._model = model
        self._path = event_store_path(settings)
        self._max_events = most_events
        self._max_bytes = most_bytes
        # an event that was accepted stays accepted, whatever the settings say now
        self._parser = EventParser(model.event_columns, keeps_unknown=True)

    @property
    def sequence_id(self) -> str:
        return read_sequence_id(self._path) or ""

    def summarize_pending(self) -> PendingSummary:
        """Return how many of the model's events wait, and since when."""
        numbering = self.sequence_id
        if not numbering:
            return PendingSummary()
        return summarize_pending(self._path, self._model.id, self._last_flushed_number(numbering))

    def read_batches(self, after: int | None) -> Iterator[EventBatch]:
        """Yield the events above the number `after` that the real table doesn't have, in batches that fit in memory."""
        numbering = self.sequence_id
        number = max(after or 0, self._last_flushed_number(numbering)) if numbering else 0
        while numbering and (batch := self._read_batch(number)):
            yield batch
            number = batch.last_number

    def _last_flushed_number(self, numbering: str) -> int:
        # the real table's number, also in a dry run: a clone may not have it
        return read_last_transaction(warehouse_table_path(self._settings, self._model.id), numbering) or 0

    def _read_batch(self, after: int) -> EventBatch | None:
        """Return the next batch; None if no events are left."""
        rows: list[list[object]] = []
        invalid_events: list[InvalidEvent] = []
        last_number, size = after, 0
        for intake in self._read_requests(after):
            self._parse_request(intake, rows, invalid_events)
            last_number, size = intake.number, size + len(intake.body)
            if len(rows) + len(invalid_events) >= self._max_events or size >= self._max_bytes:
                break
        return EventBatch(last_number, rows, invalid_events) if last_number > after else None

    def _read_requests(self, after: int) -> Iterator[StoredRequest]:
        while page := read_page_after(self._path, self._model.id, after, limit=PAGE_REQUESTS):
            yield from page
            after = page[-1].number

    def _parse_request(self, intake: StoredRequest, rows: list[list[object]], misfits: list[InvalidEvent]) -> None:
        """Add one request's events: as rows, or as invalid events if they no longer fit the columns."""
        content = orjson.loads(intake.body)
        received_at = EPOCH + datetime.timedelta(microseconds=intake.received_at)
        for event in content if isinstance(content, list) else [content]:
            notes = ParseNotes()
            row = self._parser.parse_event(event, notes, received_at)
            if not notes.problems:
                rows.append(row)
                continue
            problem = "; ".join(
                f"{field_problem.field} {field_problem.problem}".strip() for field_problem in notes.problems
            )
            misfits.append(InvalidEvent(intake.number, received_at, orjson.dumps(event).decode(), problem))


def delete_flushed_events(settings: Settings, model: Model) -> None:
    """Delete the events that the model's table has. If a collector runs, leave them, because it deletes them itself."""
    path = settings.state / event_store_path(settings).name
    if not path.exists():
        return
    with (
        contextlib.suppress(BusyError),
        open_locked_store(settings, "a flush, which drops what is in the tables") as file,
    ):
        last_number = read_last_transaction(warehouse_table_path(settings, model.id), file.sequence_id)
        while last_number and file.delete_up_to(model.id, last_number):
            pass
