"""What waits of a model, for those who look and for the flush that takes it.

Up to where the table has it stands in the table's own log, in the commit that holds the rows. So a flush that
is cut off anywhere has happened or not, and who looks needs neither Spark nor the collector.
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

BATCH_EVENTS = 50_000  # that are in memory at once; more are written in several commits
BATCH_BYTES = 32_000_000
PAGE_REQUESTS = 50
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class ModelEvents:
    """The events of one model: those that aren't in its table."""

    def __init__(
        self, settings: Settings, model: Model, *, most_events: int = BATCH_EVENTS, most_bytes: int = BATCH_BYTES
    ) -> None:
        self._settings = settings
        self._model = model
        self._path = event_store_path(settings)
        self._max_events = most_events
        self._max_bytes = most_bytes
        # what was taken once isn't refused any more, whatever the settings say now
        self._parser = EventParser(model.event_columns, keeps_unknown=True)

    @property
    def sequence_id(self) -> str:
        return read_sequence_id(self._path) or ""

    def summarize_pending(self) -> PendingSummary:
        """How many there are, and since when."""
        numbering = self.sequence_id
        if not numbering:
            return PendingSummary()
        return summarize_pending(self._path, self._model.id, self._last_flushed_number(numbering))

    def read_batches(self, after: int | None) -> Iterator[EventBatch]:
        """Those after that number, and after all that the real table has, in portions that fit in memory."""
        numbering = self.sequence_id
        number = max(after or 0, self._last_flushed_number(numbering)) if numbering else 0
        while numbering and (portion := self._read_batch(number)):
            yield portion
            number = portion.last_number

    def _last_flushed_number(self, numbering: str) -> int:
        # of the real table, also in a dry run: a clone may not tell
        return read_last_transaction(warehouse_table_path(self._settings, self._model.id), numbering) or 0

    def _read_batch(self, after: int) -> EventBatch | None:
        """What comes next; None when nothing does."""
        rows: list[list[object]] = []
        misfits: list[InvalidEvent] = []
        upto, size = after, 0
        for intake in self._read_requests(after):
            self._parse_request(intake, rows, misfits)
            upto, size = intake.number, size + len(intake.body)
            if len(rows) + len(misfits) >= self._max_events or size >= self._max_bytes:
                break
        return EventBatch(upto, rows, misfits) if upto > after else None

    def _read_requests(self, after: int) -> Iterator[StoredRequest]:
        while page := read_page_after(self._path, self._model.id, after, most=PAGE_REQUESTS):
            yield from page
            after = page[-1].number

    def _parse_request(self, intake: StoredRequest, rows: list[list[object]], misfits: list[InvalidEvent]) -> None:
        """Add the events of one request, those aside that the columns have no place for any more."""
        came = orjson.loads(intake.body)
        received_at = EPOCH + datetime.timedelta(microseconds=intake.received_at)
        for event in came if isinstance(came, list) else [came]:
            reading = ParseNotes()
            row = self._parser.parse_event(event, reading, received_at)
            if not reading.problems:
                rows.append(row)
                continue
            problem = "; ".join(f"{each.field} {each.problem}".strip() for each in reading.problems)
            misfits.append(InvalidEvent(intake.number, received_at, orjson.dumps(event).decode(), problem))


def delete_flushed_events(settings: Settings, model: Model) -> None:
    """Drop what the model's table has; a collector that runs does that by itself."""
    path = settings.state / event_store_path(settings).name
    if not path.exists():
        return
    with (
        contextlib.suppress(BusyError),
        open_locked_store(settings, "a flush, which drops what is in the tables") as file,
    ):
        upto = read_last_transaction(warehouse_table_path(settings, model.id), file.sequence_id)
        while upto and file.delete_up_to(model.id, upto):
            pass
