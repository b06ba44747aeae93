"""What waits of a model, for those who look and for the flush that takes it.

Up to where the table has it stands in the table's own log, in the commit that holds the rows. So a flush that
is cut off anywhere has happened or not, and who looks needs neither Spark nor the collector.
"""

import contextlib
import datetime
from collections.abc import Iterator

import orjson

from ondatra_dagster.arrivals import Misfit, Portion
from ondatra_dagster.collector.event_file import (
    NumberedIntake,
    Waiting,
    event_path,
    held_file,
    numbering_of,
    page_after,
    waiting_after,
)
from ondatra_dagster.collector.event_reader import EventReader, Reading
from ondatra_dagster.errors import BusyError
from ondatra_dagster.planning.delta_log import last_transaction, warehouse_path
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.settings.settings import Settings

PORTION_EVENTS = 50_000  # that are in memory at once; more are written in several commits
PORTION_BYTES = 32_000_000
PAGE_INTAKES = 50
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class ModelEvents:
    """The events of one model: those that aren't in its table."""

    def __init__(
        self,
        settings: Settings,
        model: Model,
        *,
        most_events: int = PORTION_EVENTS,
        most_bytes: int = PORTION_BYTES,
    ) -> None:
        self._settings = settings
        self._model = model
        self._path = event_path(settings)
        self._most_events = most_events
        self._most_bytes = most_bytes
        # what was taken once isn't refused any more, whatever the settings say now
        self._reader = EventReader(model.event_columns, keeps_unknown=True)

    @property
    def numbering(self) -> str:
        return numbering_of(self._path) or ""

    def waiting(self) -> Waiting:
        """How many there are, and since when."""
        numbering = self.numbering
        return (
            waiting_after(self._path, self._model.id, self._in_table(numbering)) if numbering else Waiting()
        )

    def portions(self, after: int | None) -> Iterator[Portion]:
        """Those after that number, and after all that the real table has, in portions that fit in memory."""
        numbering = self.numbering
        number = max(after or 0, self._in_table(numbering)) if numbering else 0
        while numbering and (portion := self._portion(number)):
            yield portion
            number = portion.upto

    def _in_table(self, numbering: str) -> int:
        # of the real table, also in a dry run: a clone may not tell
        return last_transaction(warehouse_path(self._settings, self._model.id), numbering) or 0

    def _portion(self, after: int) -> Portion | None:
        """What comes next; None when nothing does."""
        rows: list[list[object]] = []
        misfits: list[Misfit] = []
        upto, size = after, 0
        for intake in self._intakes(after):
            self._read(intake, rows, misfits)
            upto, size = intake.number, size + len(intake.body)
            if len(rows) + len(misfits) >= self._most_events or size >= self._most_bytes:
                break
        return Portion(upto, rows, misfits) if upto > after else None

    def _intakes(self, after: int) -> Iterator[NumberedIntake]:
        while page := page_after(self._path, self._model.id, after, most=PAGE_INTAKES):
            yield from page
            after = page[-1].number

    def _read(self, intake: NumberedIntake, rows: list[list[object]], misfits: list[Misfit]) -> None:
        """Add the events of one request, those aside that the columns have no place for any more."""
        came = orjson.loads(intake.body)
        received_at = EPOCH + datetime.timedelta(microseconds=intake.received_at)
        for event in came if isinstance(came, list) else [came]:
            reading = Reading()
            row = self._reader.read(event, reading, received_at)
            if not reading.problems:
                rows.append(row)
                continue
            problem = "; ".join(f"{each.field} {each.problem}".strip() for each in reading.problems)
            misfits.append(Misfit(intake.number, received_at, orjson.dumps(event).decode(), problem))


def forget_flushed(settings: Settings, model: Model) -> None:
    """Drop what the model's table has; a collector that runs does that by itself."""
    path = settings.state / event_path(settings).name
    if not path.exists():
        return
    with (
        contextlib.suppress(BusyError),
        held_file(settings, "a flush, which drops what is in the tables") as file,
    ):
        upto = last_transaction(warehouse_path(settings, model.id), file.numbering)
        while upto and file.forget(model.id, upto):
            pass
