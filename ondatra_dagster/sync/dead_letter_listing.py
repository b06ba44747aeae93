"""The list of a sync's dead letters, for commands and pages that only read the queue."""

from collections.abc import Iterator
from datetime import datetime

from ondatra_dagster.delivery.queue import dead_letter_reading_and_replay
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import (
    DeadLetter,
    FailureReason,
    read_dead_letter_reasons,
)
from ondatra_dagster.delivery.queue.queue_database import open_for_reading, read_unit_kind
from ondatra_dagster.sync.sync_definition import Sync


def list_dead_letters(
    sync: Sync,
    *,
    limit: int | None = None,
    since: datetime | None = None,
    offset: int = 0,
    most_rows: int | None = None,
) -> Iterator[DeadLetter]:
    """Yield the dead letters that died at or after `since`, oldest first.

    Skip the first `offset` of them, and yield at most `limit`. Each dead letter contains at most `most_rows`
    of the rows that its replay would send.
    """
    with open_for_reading(sync.queue_file) as store:
        shape = read_unit_kind(store) if store else None
        if store and shape:
            yield from dead_letter_reading_and_replay.read_dead_letters(
                store, shape, limit=limit, since=since, offset=offset, most_rows=most_rows
            )


def list_dead_letter_reasons(sync: Sync, *, limit: int) -> tuple[FailureReason, ...]:
    """Return the reasons of the dead letters, most frequent first."""
    with open_for_reading(sync.queue_file) as store:
        shape = read_unit_kind(store) if store else None
        return read_dead_letter_reasons(store, shape, limit=limit) if store and shape else ()


def describe_refusal(letter: DeadLetter) -> str | None:
    """Return a phrase that says at which attempt the API refused the unit.

    Return None if the API didn't refuse the unit, but the unit failed too often.
    """
    if not letter.is_rejected:
        return None
    return "refused at once" if letter.attempts == 1 else f"refused at attempt {letter.attempts}"


def format_unit_name(letter: DeadLetter, sync: Sync) -> str:
    """Return the dead letter's key for messages, or a fixed text for a whole table, which has no key."""
    return "(the whole table)" if not letter.key and sync.is_whole_table else letter.key
