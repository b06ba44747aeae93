"""The first page: every sync of the project, with its health and its last runs."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from ondatra_dagster.app import ui_urls
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.errors import StateError
from ondatra_dagster.sync.run_history_store import RunResult
from ondatra_dagster.sync.run_summary import GridRow, load_grid
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.ui import bar_charts
from ondatra_dagster.ui.html_builder import Content, element
from ondatra_dagster.ui.page_layout import (
    BUSY_REFRESH_SECONDS,
    IDLE_REFRESH_SECONDS,
    ColumnHeader,
    Page,
    heading,
    table,
)
from ondatra_dagster.ui.page_request import PageRequest
from ondatra_dagster.ui.sync_health_and_run_facts import Health, SyncStatus, dead_letter_link, read_sync_status
from ondatra_dagster.ui.value_formatting import (
    NO_VALUE,
    UNREADABLE,
    badge,
    format_age,
    format_due_time,
    format_number,
    format_time_ago,
    shorten_message,
)

SPARKLINE_RUNS = 12
UNHEALTHY_STATES = (Health.FAILING, Health.QUEUE_LOST, Health.REJECTS)
MIN_SPARKLINE_HEIGHT = 8  # 8 of 100 units, because these bars are only 25 pixels high
COLUMNS = (
    ColumnHeader("Sync"),
    ColumnHeader("Health"),
    ColumnHeader("In queue", is_number=True),
    ColumnHeader("Oldest", is_number=True),
    ColumnHeader("Next retry", is_number=True),
    ColumnHeader("Dead", is_number=True),
    ColumnHeader("Last run"),
    ColumnHeader("Result"),
    ColumnHeader("Last runs", class_="spark"),
)


def sync_list_page(page_request: PageRequest) -> Page:
    """Show all syncs of the project on one page."""
    syncs_with_status = [(sync, _read_status(page_request, sync)) for sync in page_request.workspace.syncs.values()]
    statuses = [status for _, status in syncs_with_status if isinstance(status, SyncStatus)]
    rows = [
        _sync_row(status, page_request.now) if isinstance(status, SyncStatus) else _unreadable_row(sync, status)
        for sync, status in syncs_with_status
    ]
    return Page(
        title="Syncs",
        body=(
            heading("Syncs", subtitle=_summary_text(statuses, unread=len(syncs_with_status) - len(statuses))),
            _sinks_notice(page_request.workspace.settings.sinks),
            _history_notice(page_request.workspace),
            element("div", table("Every sync and its state", COLUMNS, rows, empty_text=_NO_SYNCS_TEXT), class_="card"),
        ),
        refresh_seconds=BUSY_REFRESH_SECONDS if any(status.progress for status in statuses) else IDLE_REFRESH_SECONDS,
    )


_NO_SYNCS_TEXT = "No model of this project has a sink yet: a model's header line “-- @sink: NAME” makes it a sync."


def _sinks_notice(sinks: str) -> Content:
    """Return a notice if the setting `sinks` stops all sending; None otherwise."""
    if sinks == "on":
        return None
    return element("p", f"The setting sinks is {sinks}: nothing is sent.", class_="notice")


def _history_notice(workspace: Workspace) -> Content:
    """Return a notice that says why the page shows no runs, if the history can't be read; None otherwise."""
    try:
        workspace.history.as_required().list_runs(limit=1)
    except StateError as error:
        return element("p", f"No past runs are shown: {error}", class_="notice")
    return None


def _read_status(page_request: PageRequest, sync: Sync) -> SyncStatus | str:
    """Return the status of a sync, or the error if it can't be read, so that the other syncs are still shown."""
    try:
        return read_sync_status(page_request.workspace, sync, runs=SPARKLINE_RUNS)
    except StateError as error:
        return str(error)


def _unreadable_row(sync: Sync, error: str) -> Iterator[Content]:
    yield _sync_name(sync)
    yield (badge(UNREADABLE), element("small", shorten_message(error), class_="error"))
    yield from [NO_VALUE] * (len(COLUMNS) - 2)


def _sync_name(sync: Sync) -> Content:
    return (
        element("a", sync.id, href=ui_urls.sync_path(sync.id), class_="strong"),
        element("small", f"{sync.push_config.destination} · {sync.push_config.object}"),
    )


def _summary_text(statuses: Sequence[SyncStatus], *, unread: int) -> str:
    unhealthy_count = unread + sum(status.health in UNHEALTHY_STATES for status in statuses)
    unknown_count = unread + sum(status.queue_lost_message is not None for status in statuses)
    waiting_keys = sum(status.queue.depth for status in statuses if status.queue)
    phrases = [format_count(unread + len(statuses), "sync")]
    phrases.append(f"{unhealthy_count} with a problem" if unhealthy_count else "none with a problem")
    if waiting_keys or not unknown_count:
        phrases.append(f"{format_count(waiting_keys, 'key')} to be delivered" if waiting_keys else "nothing waits")
    if unknown_count:
        phrases.append(f"{format_count(unknown_count, 'sync')} with unknown pending rows")
    return " · ".join(phrases)


def _sync_row(status: SyncStatus, now: datetime) -> Iterator[Content]:
    sync, queue, last_run = status.sync, status.queue, status.last_run
    yield _sync_name(sync)
    progress = status.progress and f"{status.progress.record_count:,} records, {status.progress.pending_keys:,} to go"
    yield (
        badge(status.health),
        element("small", progress) if progress else None,
        element("small", status.queue_lost_message, class_="error") if status.queue_lost_message else None,
    )
    yield format_number(queue.depth if queue else None)
    yield format_age(queue.oldest_since if queue else None, now)
    yield format_due_time(queue.next_due_at if queue else None, now)
    yield dead_letter_link(status)
    yield (
        element("a", format_time_ago(last_run.started_at, now), href=ui_urls.run_path(sync.id, last_run.run_id))
        if last_run
        else NO_VALUE
    )
    yield badge(last_run.result.value) if last_run else NO_VALUE
    yield _sparkline(status)


def _sparkline(status: SyncStatus) -> Content:
    """Draw one bar for each run: its delivered rows, and its rows that were rejected or failed."""
    if not status.runs:
        return NO_VALUE
    bars = []
    for run in reversed(status.runs):
        grid = load_grid(run)
        succeeded_count = grid.total(GridRow.SUCCEEDED)
        undelivered_count = grid.total(GridRow.REJECTED) + grid.total(GridRow.FAILED)
        bars.append(
            bar_charts.Bar(
                {"succeeded": succeeded_count, "rejected": undelivered_count},
                f"{run.run_id}: {succeeded_count:,} arrived, {undelivered_count:,} didn't",
            )
        )
    succeeded_runs = sum(run.result is RunResult.SUCCEEDED for run in status.runs)
    label = f"{succeeded_runs} of the last {format_count(len(status.runs), 'run')} succeeded"
    chart = bar_charts.draw_bars(
        bars, label=label, places=SPARKLINE_RUNS, class_="sparkline", min_height=MIN_SPARKLINE_HEIGHT
    )
    return chart.svg
