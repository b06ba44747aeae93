"""The call of finalize(). It is pending until no unit of the sync waits any more.

The sums for the call are in the queue's file. The transaction that settles rows adds to these sums.
"""

import uuid
from pathlib import Path
from typing import NamedTuple

import orjson

from ondatra_dagster.delivery.push.push_interface import BatchSink
from ondatra_dagster.delivery.queue.change_and_outcome_counts import UnitOutcome
from ondatra_dagster.delivery.queue.queue_database import PENDING_FINALIZE, Queue
from ondatra_dagster.delivery.queue.settle_batch import SettledBatch
from ondatra_dagster.delivery.response_journal import ResponseJournal, read_batch_key
from ondatra_dagster.errors import PushContractError


class PendingFinalize(NamedTuple):
    """The numbers for the next call of finalize(), and the key of its journal."""

    succeeded: int
    failed: int  # units that were rejected, or that failed too often
    journal_key: str  # the key of the call's journal, a new one after each failed call


def schedule_finalize(queue: Queue, settled_batch: SettledBatch) -> None:
    """Add a settled batch to the sums for the pending call of finalize(), in the caller's transaction."""
    counts = settled_batch.counts
    succeeded_count, failed_count = counts[UnitOutcome.SUCCEEDED].total(), counts[UnitOutcome.REJECTED].total()
    add_finalize_counts(queue, succeeded=succeeded_count, failed=failed_count)


def add_finalize_counts(queue: Queue, *, succeeded: int, failed: int) -> None:
    """Add units that have ended to the pending call's sums, in the caller's transaction."""
    old_call = load_pending_finalize(queue) or PendingFinalize(0, 0, _new_journal_key())
    succeeded, failed = old_call.succeeded + succeeded, old_call.failed + failed
    _store_pending_finalize(queue, old_call._replace(succeeded=succeeded, failed=failed))


def load_pending_finalize(queue: Queue) -> PendingFinalize | None:
    text = queue.read_meta(PENDING_FINALIZE)
    return PendingFinalize(*orjson.loads(text)) if text else None


def _store_pending_finalize(queue: Queue, finalize_call: PendingFinalize | None) -> None:
    queue.write_meta(PENDING_FINALIZE, orjson.dumps(tuple(finalize_call)).decode() if finalize_call else "")


def renew_pending_finalize(queue: Queue, *, journal: Path) -> None:
    """Give the pending call of a queue that was lost a new journal key, unless the call's journal still exists."""
    pending_call = load_pending_finalize(queue)
    path = _journal_path(journal)
    if pending_call and not (path.exists() and read_batch_key(path) == pending_call.journal_key):
        _store_pending_finalize(queue, pending_call._replace(journal_key=_new_journal_key()))


def _journal_path(journal: Path) -> Path:
    return journal.with_name(f"{journal.name}-finalize")


def _new_journal_key() -> str:
    return uuid.uuid4().hex


def call_finalize(queue: Queue, push: BatchSink, *, journal: Path) -> str | None:
    """Call finalize() if a call is pending.

    If the call fails, it stays pending: return the reason. Otherwise return None.
    """
    pending_call = load_pending_finalize(queue)
    if pending_call is None:
        return None
    calls = ResponseJournal.open(_journal_path(journal), pending_call.journal_key)
    columns = queue.layouts[max(queue.layouts)].columns if queue.layouts else ()
    try:
        push.finalize(pending_call.succeeded, pending_call.failed, columns=columns, journal=calls)
    except PushContractError as error:
        # the next attempt makes all HTTP calls again, so it must not get the responses of this attempt
        _store_pending_finalize(queue, pending_call._replace(journal_key=_new_journal_key()))
        calls.discard()
        return str(error)
    _store_pending_finalize(queue, None)
    calls.discard()
    return None


def clear_pending_finalize(queue: Queue) -> None:
    """Delete the pending call, because the push function's file no longer has a finalize()."""
    if load_pending_finalize(queue):
        _store_pending_finalize(queue, None)
