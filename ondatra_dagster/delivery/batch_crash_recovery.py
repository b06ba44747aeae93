"""The recovery of batches that a crashed process left frozen, without rows that crash it each time."""

import logging
from collections.abc import Sequence

from ondatra_dagster.delivery.push.push_interface import PushResult
from ondatra_dagster.delivery.queue.claimed_batches import Batch, group_by_key, record_crash, split_batch
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.delivery.response_journal import JournalPool
from ondatra_dagster.delivery.row_outcome import RowOutcome, Verdict

log = logging.getLogger(__name__)

CRASHES_BEFORE_SPLIT = 3


def restore_crashed_batches(queue: Queue, frozen: Sequence[Batch], journals: JournalPool) -> list[Batch]:
    """Return the batches as they were; split one after its third crash, so that the unit at fault is alone."""
    restored = []
    for batch in frozen:
        journal = journals.find_journal(batch.batch_key)
        # a batch is claimed before its turn comes: only its journal tells whether push has seen it
        begun = journal.push_starts[batch.id] if journal else 0
        if journal and begun > batch.push_starts:
            restored += _split_repeatedly_crashed(
                queue, record_crash(queue, batch, answered=journal.response_count, begun=begun)
            )
        else:
            restored.append(batch)
    return restored


def _split_repeatedly_crashed(queue: Queue, batch: Batch) -> list[Batch]:
    if has_crashed_too_often(batch) and len(group_by_key(batch.units)) > 1:
        log.warning("batch=%d ended its process %d times; its keys go out one by one", batch.number, batch.crash_count)
        return split_batch(queue, batch)
    return [batch]


def has_crashed_too_often(batch: Batch) -> bool:
    return batch.crash_count >= CRASHES_BEFORE_SPLIT


def reject_crashing_rows(batch: Batch) -> PushResult:
    """Return the rejection of a unit that alone crashed the process so often; push doesn't get it again."""
    why = f"this row alone ended the process {batch.crash_count} times; mend the push function, then replay it"
    # it may have been taken before the process ended
    return PushResult(dict.fromkeys(batch.result_keys, RowOutcome(Verdict.REJECT, why)), unanswered_calls=1)
