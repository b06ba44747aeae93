"""What a dead owner left frozen: the batches as they were, less those that end the process each time."""

import logging
from collections.abc import Sequence

from ondatra_dagster.delivery.journals import Journals
from ondatra_dagster.delivery.outcome import Outcome, Verdict
from ondatra_dagster.delivery.push.push_port import Pushed
from ondatra_dagster.delivery.queue.claim import Batch, by_key, note_crash, split
from ondatra_dagster.delivery.queue.tables import Queue

log = logging.getLogger(__name__)

CRASHES_BEFORE_SPLIT = 3


def revive(queue: Queue, frozen: Sequence[Batch], journals: Journals) -> list[Batch]:
    """The batches as they were; after its third crash one by its units, so that the one at fault is alone."""
    revived = []
    for batch in frozen:
        journal = journals.known(batch.seed)
        # a batch is claimed before its turn comes: only its journal tells whether push has seen it
        begun = journal.begun[batch.id] if journal else 0
        if journal and begun > batch.begun:
            revived += _after_crash(queue, note_crash(queue, batch, answered=journal.answered, begun=begun))
        else:
            revived.append(batch)
    return revived


def _after_crash(queue: Queue, batch: Batch) -> list[Batch]:
    if is_given_up(batch) and len(by_key(batch.units)) > 1:
        log.warning(
            "batch=%d ended its process %d times; its keys go out one by one", batch.number, batch.crashes
        )
        return split(queue, batch)
    return [batch]


def is_given_up(batch: Batch) -> bool:
    return batch.crashes >= CRASHES_BEFORE_SPLIT


def give_up(batch: Batch) -> Pushed:
    """A unit that alone ended the process so often isn't handed to push again."""
    why = f"this row alone ended the process {batch.crashes} times; mend the push function, then replay it"
    # it may have been taken before the process ended
    return Pushed(dict.fromkeys(batch.result_keys, Outcome(Verdict.REJECT, why)), unanswered=1)
