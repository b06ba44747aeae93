"""The guards that keep a run from sending: a pause, dry sinks, and deletes that the user has to allow."""

from collections.abc import Callable, Iterator

from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.queue_database import Queue
from ondatra_dagster.delivery.queue.removal_count import (
    RemovalCount,
    RemovalUnit,
    allow_removals,
    count_removals,
    read_table_size,
    write_table_size,
)
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.private_files import make_state_folder_private
from ondatra_dagster.storage.sqlite_database import SqliteStore
from ondatra_dagster.sync.run_context import Feed, SourceState
from ondatra_dagster.sync.sync_definition import Sync


def check_removals(
    queue: Queue, sync: Sync, source: SourceState, feed: Feed, *, is_allowed: bool
) -> RemovalCount | None:
    """Return the count of queued removals that weren't allowed before; None if the model sets no limit.

    With `is_allowed`, these removals are allowed, for this run and each later attempt.
    """
    if sync.limits.max_deletes is None:
        return None
    removal_count = count_removals(
        queue.store, choose_measure(sync), size=lambda: _read_table_size(queue, sync, source, feed)
    )
    if is_allowed:
        allow_removals(queue)
    return removal_count._replace(is_allowed=is_allowed)


def read_removals(store: SqliteStore, sync: Sync, *, rows: Callable[[], int | None]) -> RemovalCount | None:
    """Return the count of queued removals without a write to the queue; None if the model sets no limit.

    `rows` returns the number of rows of the model's table.
    """
    if sync.limits.max_deletes is None:
        return None
    return count_removals(
        store, choose_measure(sync), size=lambda: read_table_size(store) if sync.model.kind.delivers_groups else rows()
    )


def choose_measure(sync: Sync) -> RemovalUnit:
    """Return the unit in which the sync's removals are counted: key, group or row."""
    kind = sync.model.kind
    if kind.replaces_rows:
        return RemovalUnit("row", counts_shrinkage=True, is_mirror=sync.unit_shape is UnitKind.MIRROR)
    return RemovalUnit("group" if kind.delivers_groups else "key" if kind.delivers_by_key else "row")


def unit_noun(sync: Sync) -> str:
    """Return the word for a unit of the sync in messages: group or row."""
    return "group" if sync.model.kind.delivers_groups else "row"


def count_table_units(queue: Queue, sync: Sync, source: SourceState, feed: Feed) -> int | None:
    """Return how many units the table has; None if unknown. A count of groups may have to read the table."""
    return _read_table_size(queue, sync, source, feed) if sync.model.kind.delivers_groups else source.row_count


def _read_table_size(queue: Queue, sync: Sync, source: SourceState, feed: Feed) -> int:
    """Return how many keys, groups or rows the table has. If unknown, count them and store the number."""
    if source.row_count is not None and not sync.model.kind.delivers_groups:
        return source.row_count
    size = read_table_size(queue.store)
    if size is None:
        size = sum(_iterate_key_marks(feed, source.version))
        write_table_size(queue, size)
    return size


def _iterate_key_marks(feed: Feed, version: int) -> Iterator[int]:
    """Yield the number 1 for each delivery key of the table at this version."""
    previous_key = None
    for segment in feed.segments(None, version):
        for page in segment.pages:
            for change in page.changes:
                if change.key != previous_key:
                    yield 1
                previous_key = change.key


def find_hold_reason(sync: Sync, settings: Settings) -> str | None:
    """Return the reason why the sync may send nothing now; None if it may send."""
    if settings.sinks == "dry":
        return "sinks are dry, nothing was sent"
    if sync.pause_file.exists():
        return f"{sync.id} is paused; `ondatra resume {sync.id}` continues it"
    return None


def pause_sync(sync: Sync) -> None:
    """Pause the sync: its changes are still enqueued, but not sent."""
    make_state_folder_private(sync.state_folder)
    with explain_file_errors(sync.pause_file):
        sync.pause_file.parent.mkdir(mode=0o700, exist_ok=True)
        sync.pause_file.touch(mode=0o600)


def resume_sync(sync: Sync) -> bool:
    """End the sync's pause; return whether the sync was paused."""
    with explain_file_errors(sync.pause_file):
        was_paused = sync.pause_file.exists()
        sync.pause_file.unlink(missing_ok=True)
    return was_paused
