"""What a sync run counts and remembers on its way, for its summary: the grid, some rows, the first errors."""

from collections.abc import Iterable, Iterator, Mapping

from ondatra_dagster.changes import ChangeType, InvalidRow
from ondatra_dagster.delivery.queue.reasons import Reason
from ondatra_dagster.delivery.queue.settle import Settled
from ondatra_dagster.delivery.queue.unit_counts import Counts, End, Operation
from ondatra_dagster.sync.reasons import Reasons
from ondatra_dagster.sync.start import Start
from ondatra_dagster.sync.summary import SAMPLES, Cell, Grid, Sample, invalid_of

ERRORS = 5  # different messages that are kept


class Tally:
    """One run's."""

    def __init__(self) -> None:
        self.grid = Grid()
        self.died = 0  # units that ran out of attempts
        self.warned = 0  # units that were delivered with a warning
        self._rejects = Reasons()
        self._warnings = Reasons()
        self._failures = Reasons()
        self._invalid: list[Sample] = []
        self._errors: dict[str, None] = {}  # in order, each once

    @property
    def rejects(self) -> tuple[Reason, ...]:
        return self._rejects.listed(SAMPLES)

    @property
    def warnings(self) -> tuple[Reason, ...]:
        return self._warnings.listed(SAMPLES)

    @property
    def failures(self) -> tuple[Reason, ...]:
        """Return why rows failed that are tried again."""
        return self._failures.listed(SAMPLES)

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(self._errors)[:ERRORS]

    def add_planned(self, counts: Mapping[Operation, int]) -> None:
        """Count what the queue holds for the run."""
        self.grid.add(Cell.PLANNED, counts)

    def close(self, in_jobs: Counts) -> None:
        """Count what wasn't sent, all that was being over."""
        self.grid.close(in_jobs)

    def add_settled(self, settled: Settled) -> None:
        """What became of a batch."""
        self.grid.add_ends({end: settled.counts(end) for end in End})
        self.died += settled.died
        self.warned += sum(said.units for said in settled.warned)
        for reasons, ended in (
            (self._rejects, settled.rejects),
            (self._warnings, settled.warned),
            (self._failures, settled.failures),
        ):
            for said in ended:
                reasons.add(said.key, said.message, units=said.units)
        for error in sorted(settled.errors):
            self.add_error(error)

    def add_invalid(self, rows: int) -> None:
        """So many were newly set aside."""
        self.grid.add(Cell.INVALID, {Operation.INSERT: rows})

    def add_error(self, message: str) -> None:
        self._errors.setdefault(message)

    def watched(self, rows: Iterable[InvalidRow]) -> Iterator[InvalidRow]:
        """The rows that were set aside, the first of them remembered as they pass."""
        for row in rows:
            if len(self._invalid) < SAMPLES:
                self._invalid.append(Sample(row.key, ChangeType.INSERT, row.reason))
            yield row

    def set_aside(self, start: Start) -> tuple[Sample, ...]:
        """Some of the rows that are set aside: new ones first, then those that earlier runs have seen."""
        if not start.source.set_aside:
            return ()
        past = start.ports.history.runs(start.sync.id, limit=2)
        known = [sample for run in past for sample in invalid_of(run)]
        return tuple(dict.fromkeys([*self._invalid, *known]))[:SAMPLES]
