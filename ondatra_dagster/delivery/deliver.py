"""One sync's batches, one after the other, from claim to settle, until nothing is left that may go.

What push does with a batch is a port; so is what the caller does after each. Batches that a dead owner left
frozen go first, just as they were. A batch is settled and the next one claimed in one transaction.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ondatra_dagster.changes import Layout
from ondatra_dagster.delivery.backoff import wait_seconds
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.outcome import Outcome, ResultKey, Verdict
from ondatra_dagster.delivery.queue.claim import (
    Batch,
    claim,
    forgive,
    frozen_batches,
    make_due,
    note_crash,
    push_text,
    split,
    start,
)
from ondatra_dagster.delivery.queue.settle import Settled, settle
from ondatra_dagster.delivery.queue.settled import Attempt
from ondatra_dagster.delivery.queue.tables import Queue

log = logging.getLogger(__name__)

CRASHES_BEFORE_SPLIT = 3
OUTAGES_BEFORE_STOP = 3


class Pushed(NamedTuple):
    """What came of handing a batch to push."""

    outcomes: Mapping[ResultKey, Outcome]
    calls: int = 0
    unanswered: int = 0  # calls of which at some try nobody answered
    is_outage: bool = False  # every call ended without an answer, or with 408, 429 or 5xx


class Push(Protocol):
    """Hands one batch to the user's push, answering from the journal what was answered before."""

    def __call__(
        self, *, number: int, layout: Layout, text: str, keys: Sequence[ResultKey], journal: Journal
    ) -> Pushed:
        """The outcome of each of the `keys`, whatever happens."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How batches are made and how often their rows are tried."""

    run_id: str
    batch_size: int
    max_attempts: int
    journal: Path


@dataclasses.dataclass(slots=True)
class Delivery:
    """How far it went."""

    batches: int = 0
    is_outage: bool = False  # the API was given up on for this run


def deliver(
    queue: Queue,
    push: Push,
    course: Course,
    *,
    clock: Callable[[], float],
    on_settled: Callable[[Batch, Settled], None],
    may_go_on: Callable[[], bool] = lambda: True,
    wait: Callable[[int], float] = wait_seconds,
) -> Delivery:
    """Send all that may go now."""
    delivery = Delivery()
    outages = 0
    frozen = frozen_batches(queue)
    with contextlib.closing(Journal.open(course.journal, frozen[0].seed if frozen else "")) as journal:
        batches = _batches(queue, _revived(queue, frozen, journal), course, clock)
        batch = next(batches, None) if may_go_on() else None
        while batch:
            journal.turn_to(batch.seed)
            with _unless_interrupted(queue, batch):
                pushed, attempt = _send(queue, batch, push, course, clock, journal)
            delivery.batches += 1
            outages = outages + 1 if pushed.is_outage else 0
            goes_on = outages < OUTAGES_BEFORE_STOP and may_go_on()
            # one commit for both: on a slow disk it costs more than all else that is done here
            with queue.store.immediate():
                settled = settle(queue, batch, pushed.outcomes, attempt, wait=wait)
                following = next(batches, None) if goes_on else None
            on_settled(batch, settled)
            batch = following
    delivery.is_outage = outages > 0
    return delivery


@contextlib.contextmanager
def _unless_interrupted(queue: Queue, batch: Batch) -> Iterator[None]:
    """Ctrl-C and a polite end leave the batch frozen, but aren't the batch's fault."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        forgive(queue, batch)
        raise


def _batches(
    queue: Queue, revived: list[Batch], course: Course, clock: Callable[[], float]
) -> Iterator[Batch]:
    yield from revived
    number = max((batch.number for batch in revived), default=0)
    make_due(queue, clock())
    while batch := claim(queue, size=course.batch_size, number=number + 1):
        number = batch.number
        yield batch


def _revived(queue: Queue, frozen: Sequence[Batch], journal: Journal) -> list[Batch]:
    """The batches as they were; after its third crash one by its units, so that the one at fault is alone."""
    revived = []
    for batch in frozen:
        # the journal tells whether push has seen it: a batch is claimed before the last one's records are out
        has_begun = batch.is_started and batch.seed == journal.seed and journal.is_rerun
        revived += _after_crash(queue, batch, journal) if has_begun else [batch]
    return revived


def _after_crash(queue: Queue, frozen: Batch, journal: Journal) -> list[Batch]:
    batch = note_crash(queue, frozen, answered=journal.answered)
    if batch.crashes >= CRASHES_BEFORE_SPLIT and len(batch.units) > 1:
        log.warning(
            "batch=%d ended its process %d times; its keys go out one by one", batch.number, batch.crashes
        )
        return split(queue, batch)
    return [batch]


def _send(
    queue: Queue,
    batch: Batch,
    push: Push,
    course: Course,
    clock: Callable[[], float],
    journal: Journal,
) -> tuple[Pushed, Attempt]:
    """What push made of the batch."""
    layout, text = push_text(batch, queue.layouts)
    keys = [row.result_key for row in batch.rows()]
    if not batch.is_started:
        start(queue, batch)
    started_at = clock()
    if batch.crashes >= CRASHES_BEFORE_SPLIT:
        pushed = _give_up(keys, batch)
    else:
        pushed = push(number=batch.number, layout=layout, text=text, keys=keys, journal=journal)
    attempt = Attempt(
        run_id=course.run_id,
        started_at=started_at,
        ended_at=clock(),
        max_attempts=course.max_attempts,
        calls=pushed.calls,
        unanswered=pushed.unanswered,
        is_outage=pushed.is_outage,
    )
    if batch.is_part:
        # before it is settled: after a crash in between, the next part must not take these answers for its
        journal.note_settled()
    return pushed, attempt


def _give_up(keys: list[ResultKey], batch: Batch) -> Pushed:
    """A unit that alone ended the process so often isn't handed to push again."""
    why = f"this row alone ended the process {batch.crashes} times; mend the push function, then replay it"
    # it may have been taken before the process ended
    return Pushed({key: Outcome(Verdict.REJECT, why) for key in keys}, unanswered=1)
