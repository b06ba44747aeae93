"""What whole syncs meet in random lives: records that can't be kept, rows that are set aside, jobs."""

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from support.books import MortalStore
from support.destinations import Destination, KilledError
from support.kind_tables import KindTable
from support.tables import Table

from ondatra_dagster.changes import ChangeType, InvalidRow, Segment
from ondatra_dagster.delivery.frontier import Frontier
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.outcome import NO_ROW, Outcome
from ondatra_dagster.delivery.push.push_port import Parcel, Pushed
from ondatra_dagster.errors import StateError
from ondatra_dagster.store.state_id import StateId, take_state_id
from ondatra_dagster.sync.ports import SourceState
from ondatra_dagster.tracking.metadata import RunMetadata

End = tuple[str, str, int]  # the run that recorded it, the delivery key, the version


class FullDiskError(StateError):
    """There is no room for what has to be written."""


class DeadlyStore(MortalStore):
    """Processes end now and then at any of its files, and not those of records alone; or it is full."""

    state_folder: Path

    @property
    def state(self) -> StateId:  # type: ignore[override]
        return take_state_id(self.state_folder)  # a life may go on in another one

    def finish_run(self, sync_id: str, run_id: str, metadata: RunMetadata) -> None:
        self._may_die()
        super().finish_run(sync_id, run_id, metadata)

    def write_frontier(self, frontier: Frontier) -> None:
        self._may_die()
        super().write_frontier(frontier)

    def _may_die(self) -> None:
        if self.faults and self.chance.random() < 0.08:
            raise self.chance.choice([KilledError, FullDiskError])


@dataclasses.dataclass
class AsideFeed:
    """A table's feed, and beside it rows that were set aside, each in a version of its own."""

    table: Table | KindTable
    rows: list[InvalidRow] = dataclasses.field(default_factory=list)

    def segments(self, after: int | None, upto: int) -> Iterator[Segment]:
        return self.table.segments(after, upto)

    def invalid(self, after: int, upto: int) -> Iterator[InvalidRow]:
        yield from (row for row in self.rows if after < row.version <= upto)

    def set_one_aside(self) -> None:
        version = len(self.rows)
        self.rows.append(InvalidRow("", "NULL", version, version + 1, '{"id":null}'))

    def source(self) -> SourceState:
        there = len(self.rows)
        return dataclasses.replace(self.table.source(), invalid_version=there - 1, set_aside=there)


@dataclasses.dataclass
class Works:
    """An API that makes jobs of batches: it does them at once, and says what came of them when asked."""

    destination: Destination
    chance: random.Random
    recorded: Callable[[], frozenset[End]]  # what the records tell now
    ended: frozenset[End] = frozenset()  # what they told when the run began
    numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)  # threads ask at once
    outcomes: dict[str, dict[str, Outcome]] = dataclasses.field(default_factory=dict)  # by job
    ended_before: dict[str, frozenset[End]] = dataclasses.field(default_factory=dict)
    on_gone: Callable[[str], None] = lambda key: None  # of a key that a job has deleted

    def __call__(self, parcel: Parcel, journal: Journal) -> Pushed:
        pushed = self.destination(parcel, journal)
        if pushed.unanswered:
            return pushed
        job = f'"J-{next(self.numbers)}"'
        self.outcomes[job], self.ended_before[job] = dict(pushed.outcomes), self.recorded()
        return Pushed({}, calls=1, job=job, is_open=True)

    def poll(self, parcel: Parcel, job: str) -> Pushed:
        ended = {end[1:] for end in self.ended - self.ended_before[job]}
        if told := ended & {(unit.key, unit.version) for unit in parcel.units}:
            self.destination.store.wrongs.append(f"{told} asked about once more")
        if self.destination.faults and self.chance.random() < 0.1:
            raise KilledError
        if self.destination.faults and self.chance.random() < 0.4:
            return Pushed({}, calls=1, is_open=True)
        known = self.outcomes[job]
        for unit in parcel.units:
            went = [key for key in unit.result_keys if key.endswith(f":{ChangeType.DELETE}")]
            if went == unit.result_keys and all(known[key].is_delivered for key in went):
                self.on_gone(unit.key)
        return Pushed({key: known[key] for key in (*parcel.keys, NO_ROW) if key in known}, calls=1)
