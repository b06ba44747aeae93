"""What is kept of a row that ended, from its settling to its file, and of the attempt in which it did."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from ondatra_dagster.delivery.queue.digests import SETTLED_COLUMNS, check_row
from ondatra_dagster.delivery.queue.tables import Queue
from ondatra_dagster.store.database import Store

ADD_SETTLED = """
insert into settled (run_id, type, count, started_at, ended_at, rows, digest)
values (?1, ?2, ?3, ?4, ?5, ?6, row_digest(?1, ?2, ?3, ?4, ?5, ?6, null))
"""

SETTLED = f"id, digest, {', '.join(SETTLED_COLUMNS)}"  # what read_pack() reads

UPDATED = "records_updated"
DELETED = "records_deleted"
INVALID = "records_invalid"

KEPT_ROWS = 10_000  # are kept together; a file of records takes in some of these packs, each whole

SUCCEEDED = "succeeded"
REJECTED = "rejected"


class SettledRow(NamedTuple):
    """One row that ended, as the queue keeps it until it is published."""

    key: str
    rowid: int
    change_type: str
    version: int
    status: str
    message: str | None
    layout: int
    payload: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is known of one batch's way through push, beside the outcomes."""

    run_id: str
    started_at: float
    ended_at: float
    max_attempts: int
    calls: int = 0  # that the batch made
    unanswered: int = 0  # of which at some try nobody answered
    is_outage: bool = False  # all of them ended without an answer, or with 408, 429 or 5xx
    is_answered: bool = True  # an API that stores answers by idempotency key may have stored one


def keep_settled(queue: Queue, kind: str, rows: list[SettledRow], attempt: Attempt) -> None:
    """Keep rows that ended until they are published; the caller has the transaction."""
    for begin in range(0, len(rows), KEPT_ROWS):
        part = rows[begin : begin + KEPT_ROWS]
        text = orjson.dumps([tuple(row) for row in part])  # orjson refuses named tuples
        values = (attempt.run_id, kind, len(part), attempt.started_at, attempt.ended_at, text)
        queue.store.run(ADD_SETTLED, values)


def read_pack(store: Store, row: Sequence[Any]) -> Iterator[SettledRow]:
    """Return the rows of a pack that SETTLED selects; StateError unless they are as they were kept."""
    number, digest, *values = row
    check_row(store, "settled", number, values, digest)
    *_, text, _ = values
    yield from read_settled(text)


def read_settled(text: bytes) -> Iterator[SettledRow]:
    for fields in orjson.loads(text):
        yield SettledRow(*fields)
