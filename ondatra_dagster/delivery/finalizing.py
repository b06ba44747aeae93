"""finalize(): called once when nothing of a sync waits any more, and owed until then.

The sums are in the queue's file, each part of them since the transaction that settled its rows.
"""

import uuid
from pathlib import Path
from typing import NamedTuple

import orjson

from ondatra_dagster.changes import Column
from ondatra_dagster.delivery.journal import Journal, seed_at
from ondatra_dagster.delivery.push.push_port import Push
from ondatra_dagster.delivery.queue.settle import Settled
from ondatra_dagster.delivery.queue.tables import OWED, Queue
from ondatra_dagster.errors import PushContractError


class Owed(NamedTuple):
    """What finalize() is to be told."""

    succeeded: int
    failed: int  # rejected, or tried too often
    seed: str  # of the journal of its call: another one after each failure


def owe(queue: Queue, settled: Settled) -> None:
    """A batch has ended, so finalize() is to be called some time; the caller has the transaction."""
    owe_units(queue, succeeded=settled.succeeded.total(), failed=settled.rejected.total())


def owe_units(queue: Queue, *, succeeded: int, failed: int) -> None:
    """So many units more have ended; the caller has the transaction."""
    before = owed(queue) or Owed(0, 0, _new_seed())
    succeeded, failed = before.succeeded + succeeded, before.failed + failed
    _keep(queue, before._replace(succeeded=succeeded, failed=failed))


def owed(queue: Queue) -> Owed | None:
    text = queue.meta(OWED)
    return Owed(*orjson.loads(text)) if text else None


def _keep(queue: Queue, owed: Owed | None) -> None:
    queue.set_meta(OWED, orjson.dumps(tuple(owed)).decode() if owed else "")


def renew_debt(queue: Queue, *, journal: Path) -> None:
    """What a lost queue owed is told by a call of its own, unless the journal of the one before is left."""
    debt = owed(queue)
    if debt and not _is_of(_journal(journal), debt.seed):
        _keep(queue, debt._replace(seed=_new_seed()))


def _is_of(journal: Path, seed: str) -> bool:
    return journal.exists() and seed_at(journal) == seed


def _journal(journal: Path) -> Path:
    return journal.with_name(f"{journal.name}-finalize")


def _new_seed() -> str:
    return uuid.uuid4().hex


def finalize(queue: Queue, push: Push, *, journal: Path) -> str | None:
    """Call finalize() when it is owed; why it failed, and is owed on, or None."""
    debt = owed(queue)
    if debt is None:
        return None
    calls = Journal.open(_journal(journal), debt.seed)
    try:
        push.finalize(debt.succeeded, debt.failed, columns=_columns(queue), journal=calls)
    except PushContractError as error:
        # the next go makes its calls anew: what they were answered now is no answer to them
        _keep(queue, debt._replace(seed=_new_seed()))
        calls.discard()
        return str(error)
    _keep(queue, None)
    calls.discard()
    return None


def forget_debt(queue: Queue) -> None:
    """The file has no finalize() any more."""
    if owed(queue):
        _keep(queue, None)


def _columns(queue: Queue) -> tuple[Column, ...]:
    return queue.layouts[max(queue.layouts)].columns if queue.layouts else ()
