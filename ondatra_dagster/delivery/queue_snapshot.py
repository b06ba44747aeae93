"""A snapshot of a sync's queue: how far the run got, and every key that isn't settled.

A new queue can go on from it when the queue file is lost. The tracking store keeps it.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

NOTHING_ENQUEUED = -1


class SnapshotUnit(NamedTuple):
    """One delivery key that is pending, waiting, frozen, dead or in an open job."""

    key: str
    version: int  # of its newest change
    state: str
    acknowledged: str | None  # what the API last acknowledged, as the queue spells it
    maybe_sent: str | None  # what went out without an answer
    desired: str
    attempts: int
    due_at: float | None
    message: str | None
    job_ref: str | None
    belongs_to: str = ""  # of a row by its rowid: the key's value, the partition's
    is_context: int = 0
    key_renewals: int = 0
    set_at: float | None = None  # the moment at which due_at was set


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """Where one sync run ended."""

    sync_id: str
    run_id: str
    table_id: str
    watermark: int  # the table's version up to which changes were enqueued, or NOTHING_ENQUEUED
    invalid_watermark: int
    base_url: str
    written_at: datetime
    units: Iterable[SnapshotUnit]
    state_id: str = ""  # of the state folder that left it; the tracking store fills it in
    known_since: str = ""  # the run after which the records are about what this base_url's API holds
    layouts: Mapping[int, str]  # layout id → JSON text of its columns: what base and target texts refer to
    queue_metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)  # what else the queue's file says
