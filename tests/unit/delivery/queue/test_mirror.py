"""Base → target against a model of a destination: it ends as a mirror of the table.

The table, its change feed and the API are plain Python here; the queue and its file are the real ones.
"""

import dataclasses
import os
import random
from pathlib import Path

import orjson
import pytest
from support.tables import LAYOUT, Table, histories

from ondatra_dagster.delivery.deliver import Course, deliver
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.outcome import Outcome, Verdict
from ondatra_dagster.delivery.push_port import Parcel, Pushed
from ondatra_dagster.delivery.queue.claim import Batch
from ondatra_dagster.delivery.queue.enqueue import enqueue
from ondatra_dagster.delivery.queue.letters import hasten, replay
from ondatra_dagster.delivery.queue.settle import Settled
from ondatra_dagster.delivery.queue.tables import Queue, open_queue
from ondatra_dagster.delivery.target import Shape

KEYS = "abcdef"
HISTORIES = int(os.environ.get("ONDATRA_TEST_HISTORIES", "5"))


class KilledError(Exception):
    """The process ends here, as far as the queue can tell."""


@dataclasses.dataclass
class Destination:
    """An API that keeps each key's values, and fails as it is told to."""

    random: random.Random
    faults: bool = True
    holds: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    outdated: list[str] = dataclasses.field(default_factory=list)
    newest: dict[str, int] = dataclasses.field(default_factory=dict)
    answered: dict[tuple[str, str], Verdict] = dataclasses.field(
        default_factory=dict
    )  # what a journal would know of a batch's calls
    under_way: set[tuple[str, str]] = dataclasses.field(default_factory=set)  # calls that a kill cut off

    def __call__(self, parcel: Parcel, journal: Journal) -> Pushed:
        assert parcel.layout == LAYOUT
        rows = orjson.loads(parcel.text)["rows"]
        if self._happens(0.05):
            raise KilledError
        outcomes = {}
        unanswered = 0
        for key in dict.fromkeys(row[0] for row in rows):
            mine = [row for row in rows if row[0] == key]
            verdict, is_answered = self._call(journal.seed, key, mine)
            unanswered += not is_answered
            for row in mine:
                outcomes[f"{row[2]}:{row[3]}"] = Outcome(verdict)
        assert set(parcel.keys) == set(outcomes)
        if self._happens(0.05):
            raise KilledError
        return Pushed(outcomes, calls=len(rows), unanswered=unanswered)

    def _call(self, seed: str, key: str, rows: list[list[object]]) -> tuple[Verdict, bool]:
        """A call's verdict, and whether that is all there is to know of it."""
        call = seed, repr(rows)
        if call in self.answered:
            return self.answered[call], True
        verdict, is_applied, is_answered = self._fault()
        if is_applied:
            self._apply(key, rows)
        if self._happens(0.03):
            self.under_way.add(call)
            raise KilledError
        if is_answered:
            self.answered[call] = verdict
        # a call that was cut off and fails now may have been taken the first time
        return verdict, is_answered and (verdict is Verdict.OK or call not in self.under_way)

    def _happens(self, probability: float) -> bool:
        return self.faults and self.random.random() < probability

    def _fault(self) -> tuple[Verdict, bool, bool]:
        if self._happens(0.2):
            return Verdict.ERROR, False, True
        if self._happens(0.2):
            return Verdict.ERROR, self.random.random() < 0.5, False  # no answer: it may have been taken
        if self._happens(0.2):
            return Verdict.REJECT, False, True
        return Verdict.OK, True, True

    def _apply(self, key: str, rows: list[list[object]]) -> None:
        values = sorted(row[1] for row in rows if row[3] in ("insert", "update_postimage"))
        if not values:
            self.holds.pop(key, None)
            return
        if min(values) < self.newest.get(key, 0):
            self.outdated.append(f"{key}: {values} after {self.newest[key]}")
        self.newest[key] = min(values)
        self.holds[key] = values


def one_run(
    path: Path, table: Table, destination: Destination, batch_size: int, chance: random.Random
) -> bool:
    """Whether the run came to its end."""
    with open_queue(path, shape=table.shape) as queue:
        try:
            enqueue(queue, table.segment(queue.watermark), now=1.0)
            if chance.random() < 0.5:
                hasten(queue)
            if chance.random() < 0.3:
                replay(queue, now=1.0)
            send(queue, destination, batch_size)
        except KilledError:
            return False
    return True


def send(queue: Queue, destination: Destination, batch_size: int) -> None:
    course = Course(
        run_id="run", batch_size=batch_size, max_attempts=3, journal=queue.store.path.with_suffix(".journal")
    )

    def settled(batch: Batch, settled: Settled) -> None:
        """Nothing to add."""

    deliver(queue, destination, course, clock=lambda: 1.0, on_settled=settled)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
@pytest.mark.parametrize("shape", [Shape.ROW, Shape.GROUP])
def test_any_history_ends_as_a_mirror(shape: Shape, batch_size: int, tmp_path: Path) -> None:
    """What the users pay for: errors, rejects, silence and kills leave no difference behind."""
    for seed in range(HISTORIES):
        chance = random.Random(f"{seed} {shape} {batch_size}")
        path = tmp_path / f"{seed}.sqlite"
        table, destination = Table(shape), Destination(chance)
        for key, values in histories(shape, chance, keys=KEYS, steps=24):
            table.write(key, values)
            if chance.random() < 0.6:
                one_run(path, table, destination, batch_size, chance)
        destination.faults = False
        with open_queue(path, shape=shape) as queue:
            enqueue(queue, table.segment(queue.watermark), now=1.0)
            # a frozen batch ends as its journal says, or is given up: what is left then goes by itself
            for _ in range(3):
                hasten(queue)
                replay(queue, now=1.0)
                send(queue, destination, batch_size)
            assert [] == queue.store.rows("select * from unit"), f"seed {seed}"
            assert [] == queue.store.rows("select * from batch"), f"seed {seed}"
        assert table.content() == destination.holds, f"seed {seed}"
        assert [] == destination.outdated, f"seed {seed}"
