"""The page of a run: the outcomes of its rows, the reasons of failures, and its progress."""

from collections.abc import Iterator

from ondatra_dagster.app import ui_urls
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.delivery.acknowledged_to_desired_diff import UnitKind
from ondatra_dagster.delivery.queue.change_and_outcome_counts import UnitOperation
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.sync.run_history_store import PastRun, RunResult
from ondatra_dagster.sync.run_summary import (
    CountGrid,
    GridRow,
    load_dry_run_counts,
    load_grid,
    load_undelivered_reasons,
)
from ondatra_dagster.sync.running_progress_reader import read_live_progress
from ondatra_dagster.sync.send_guards import unit_noun
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.ui.html_builder import Content, Html, element
from ondatra_dagster.ui.page_layout import (
    BUSY_REFRESH_SECONDS,
    ColumnHeader,
    Page,
    fact_list,
    heading,
    section,
    sync_breadcrumbs,
    sync_links,
    table,
)
from ondatra_dagster.ui.page_request import PageRequest
from ondatra_dagster.ui.sync_health_and_run_facts import (
    count_link,
    describe_dry_run,
    format_run_duration,
    format_versions,
)
from ondatra_dagster.ui.value_formatting import (
    NO_VALUE,
    badge,
    format_number,
    format_time,
    render_progress,
    shorten_message,
)

COUNT_MEANINGS = {
    GridRow.PLANNED: "what was in the queue for this run",
    GridRow.ATTEMPTED: "succeeded, rejected or failed",
    GridRow.SUCCEEDED: "delivered",
    GridRow.REJECTED: "rejected, or failed too often",
    GridRow.FAILED: "failed for now, and retried",
    GridRow.IN_JOBS: "the API works on them",
    GridRow.NOT_SENT: "left in the queue: paused, over @max_deletes, the API was down, or the run was ended",
    GridRow.INVALID: "rows that aren't in the table because of their key",
}
COUNT_COLUMNS = (
    *(ColumnHeader(operation.value, is_number=True) for operation in UnitOperation),
    ColumnHeader("all", is_number=True),
)


def run_page(page_request: PageRequest) -> Page:
    """Show the run that the path names."""
    workspace, sync = page_request.workspace, page_request.sync
    run = workspace.history.find_run(sync.id, page_request.path_params["run"])
    if run is None:
        return _page_without_history(workspace, sync, page_request.path_params["run"])
    live_progress = read_live_progress(sync, workspace.tracking, clock=workspace.clock)
    result = run.result.value
    is_dry = result == "dry"
    return Page(
        title=f"{sync.id} · {run.run_id}",
        breadcrumbs=sync_breadcrumbs(sync, run=run.run_id),
        body=(
            heading(
                element("span", "Run ", element("code", run.run_id)),
                badge(result),
                sync_links(sync, run=run.run_id) if not is_dry and _has_records(workspace, run) else None,
                subtitle=None if is_dry else _retention_text(workspace, run),
            ),
            element("div", render_progress(live_progress), class_="now card")
            if live_progress and result == "running"
            else None,
            _run_facts(page_request, run),
            _error_section(run, sync),
            _dry_run_section(run) if is_dry else _count_section(workspace, run) if run.counts else _crash_notice(run),
        ),
        refresh_seconds=BUSY_REFRESH_SECONDS if result == "running" else None,
    )


def _page_without_history(workspace: Workspace, sync: Sync, run_id: str) -> Page:
    """Show a run that isn't in this project's history.

    The history was lost, or the run is in the history of another project's state folder.
    """
    if run_id not in workspace.tracking.list_runs(sync.id):
        raise SelectionError(f"{sync.id} has no run {run_id!r} in its history; its page lists those that it has")
    return Page(
        title=f"{sync.id} · {run_id}",
        breadcrumbs=sync_breadcrumbs(sync, run=run_id),
        body=(
            heading(element("span", "Run ", element("code", run_id)), sync_links(sync, run=run_id)),
            element("p", "The history doesn't know this run, but its records are kept.", class_="notice"),
        ),
    )


def _has_records(workspace: Workspace, run: PastRun) -> bool:
    return run.run_id in workspace.tracking.list_runs(run.sync_id)


def _retention_text(workspace: Workspace, run: PastRun) -> Content:
    """Return the text that says where the run's records are, or that they were removed."""
    if _has_records(workspace, run):
        return ("Its records are in ", element("code", workspace.tracking.run_address(run.sync_id, run.run_id)))
    days = workspace.settings.tracking_retention_days
    retention_note = f" Records are kept for {format_count(days, 'day')}." if days else ""
    return f"The records of this run were removed; only its counts are left.{retention_note}"


def _run_facts(page_request: PageRequest, run: PastRun) -> Html:
    dagster = page_request.workspace.settings.dagster_url
    return fact_list(
        [
            ("Started", format_time(run.started_at)),
            ("Took", format_run_duration(run, page_request.now)),
            ("Trigger", run.trigger),
            ("Mode", (run.mode.value, element("small", run.reason))),
            ("Versions", format_versions(run)),
            ("Model", run.model),
            (
                "Dagster run",
                element(
                    "a",
                    element("code", run.dagster_run_id[:8]),
                    href=ui_urls.dagster_run_url(dagster, run.dagster_run_id),
                    rel="noreferrer",
                )
                if run.dagster_run_id
                else NO_VALUE,
            ),
        ]
    )


def _error_section(run: PastRun, sync: Sync) -> Content:
    """Return the section with the reasons why rows weren't delivered, then the errors that concern no row."""
    reasons = load_undelivered_reasons(run)
    row_messages = tuple(reason.message for reason in reasons)
    other_errors = [
        error for error in run.first_errors if not any(message.startswith(error) for message in row_messages)
    ]
    noun = unit_noun(sync)
    items = [
        *(
            element("li", element("strong", f"{reason.describe_units(noun)}: "), shorten_message(reason.message))
            for reason in reasons
        ),
        *(element("li", shorten_message(error)) for error in other_errors),
    ]
    return section("Errors", element("ul", items, class_="errors card")) if items else None


def _crash_notice(run: PastRun) -> Content:
    """Return a notice for a run that was killed before it stored its counts; None for other runs."""
    if run.result is not RunResult.CRASHED:
        return None
    notice = "Its process ended unexpectedly. Its deliveries are among its records; the next run counts them."
    return element("p", notice, class_="notice")


def _count_section(workspace: Workspace, run: PastRun) -> Html:
    """Return the table of the run's counts. A count links to its records if they are kept."""
    grid, has_records = load_grid(run), _has_records(workspace, run)
    is_complete = grid.known_rows.issuperset(GridRow)
    sync = workspace.syncs[run.sync_id]
    noun = f"{unit_noun(sync)}s"
    rows = (count_cells(run, cell, grid, sync=sync, has_records=has_records) for cell in GridRow)
    header = (ColumnHeader(noun.capitalize()), *COUNT_COLUMNS)
    count_table = table(f"Counts of {noun}", header, rows, empty_text="", stacks=False)
    incomplete_notice = None if is_complete else element("p", _INCOMPLETE_NOTICE, class_="notice")
    return section(f"Outcomes of the {noun}", incomplete_notice, element("div", count_table, class_="card grid"))


_INCOMPLETE_NOTICE = "Its process ended before it had a plan: the rows that it would have sent are unknown."


def count_cells(
    run: PastRun, cell: GridRow, grid: CountGrid, *, sync: Sync, has_records: bool = False
) -> Iterator[Content]:
    """Yield the cells of one row in the count table; a count links to its records if they are kept."""
    yield (element("span", cell.value.replace("_", " "), class_="strong"), element("small", COUNT_MEANINGS[cell]))
    # kinds that replace rows have records of inserts and deletes, whatever the unit is
    has_own_records = sync.unit_shape in (UnitKind.ROW, UnitKind.VERSION) and not sync.model.kind.replaces_rows
    for operation in UnitOperation:
        link_to = operation if has_own_records else None
        yield count_link(run, cell, grid.known_total(cell, operation), link_to, has_records=has_records)
    yield count_link(run, cell, grid.known_total(cell), has_records=has_records)


def _dry_run_section(run: PastRun) -> Html:
    facts = [(name.replace("_", " "), format_number(value)) for name, value in load_dry_run_counts(run).items()]
    return section(f"A dry run: {describe_dry_run(run)}", fact_list(facts), id_="forecast")
