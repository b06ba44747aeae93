"""The page of a sync: its status, a chart of its counts over runs, and its run history."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from ondatra_dagster.app import ui_urls
from ondatra_dagster.count_time_and_size_format import format_count, format_local_time
from ondatra_dagster.sync.run_history_store import PastRun, RunResult
from ondatra_dagster.sync.run_summary import GridRow, load_grid
from ondatra_dagster.sync.send_guards import unit_noun
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.ui import bar_charts
from ondatra_dagster.ui.html_builder import Content, Html, element
from ondatra_dagster.ui.page_layout import (
    BUSY_REFRESH_SECONDS,
    IDLE_REFRESH_SECONDS,
    ColumnHeader,
    Page,
    fact_list,
    heading,
    pager,
    section,
    sync_breadcrumbs,
    sync_links,
    table,
)
from ondatra_dagster.ui.page_request import PageRequest
from ondatra_dagster.ui.sync_health_and_run_facts import (
    SyncStatus,
    count_link,
    dead_letter_link,
    describe_dry_run,
    format_run_duration,
    format_versions,
    queue_lost_notice,
    read_sync_status,
)
from ondatra_dagster.ui.value_formatting import (
    NO_VALUE,
    badge,
    format_age,
    format_due_time,
    format_number,
    format_time,
    format_time_ago,
    format_time_of_day,
    render_progress,
    shorten_message,
)

PAGE_SIZE = 25  # runs on a page
CHART_RUNS = 40
MAX_LABELLED_BARS = 12  # up to this number of runs, each bar has the time of its run below it
MAX_SHOWN_ERRORS = 2  # errors of a run in the table of runs; the run's own page shows all
CHART_SERIES = {
    GridRow.SUCCEEDED: "succeeded",
    GridRow.REJECTED: "rejected",
    GridRow.FAILED: "failed, is retried",
    GridRow.INVALID: "invalid",
}
RUN_COLUMNS = (
    ColumnHeader("Run"),
    ColumnHeader("Result"),
    ColumnHeader("Trigger"),
    ColumnHeader("Mode"),
    ColumnHeader("Versions", is_number=True),
    ColumnHeader("Took", is_number=True),
    *(ColumnHeader(cell.value.capitalize(), is_number=True) for cell in CHART_SERIES),
    ColumnHeader("Records"),
)


def sync_page(page_request: PageRequest) -> Page:
    """Show the sync that the path names."""
    sync, history = page_request.sync, page_request.workspace.history.as_required()
    sync_status = read_sync_status(page_request.workspace, sync, runs=CHART_RUNS)
    offset = PAGE_SIZE * (page_request.page - 1)
    past_runs = history.list_runs(sync.id, limit=PAGE_SIZE + 1, offset=offset, with_dry=True)
    runs_with_records = frozenset(page_request.workspace.tracking.list_runs(sync.id))
    rows = [_run_row(run, runs_with_records, page_request.now) for run in past_runs[:PAGE_SIZE]]
    empty_text = "There are no older runs." if page_request.page > 1 else _NO_RUNS_TEXT
    runs = section(
        "Runs",
        element(
            "div",
            table(f"Runs of {sync.id}, the newest first", RUN_COLUMNS, rows, empty_text=empty_text),
            class_="card",
        ),
        pager(
            page=page_request.page,
            build_link=lambda page: ui_urls.runs_url(sync.id, page=page),
            has_more=len(past_runs) > PAGE_SIZE,
            newer="newer runs",
            older="older runs",
        ),
    )
    overview = (
        (_status_facts(sync_status, page_request.now), _runs_chart(sync_status)) if page_request.page == 1 else None
    )
    lost_notice = queue_lost_notice(page_request.workspace, sync)
    return Page(
        title=sync.id,
        breadcrumbs=sync_breadcrumbs(sync),
        body=(
            heading(sync.id, badge(sync_status.health), sync_links(sync), subtitle=_subtitle(sync)),
            lost_notice,
            _progress_card(sync_status),
            overview,
            runs,
        ),
        refresh_seconds=BUSY_REFRESH_SECONDS if sync_status.progress else IDLE_REFRESH_SECONDS,
    )


_NO_RUNS_TEXT = "It has never run: “ondatra run”, or its asset in Dagster, starts it."


def _subtitle(sync: Sync) -> Content:
    sink = element("code", sync.push_config.file)
    return (
        f"{sync.model.name} → {sync.push_config.destination} · {sync.push_config.object}, {sync.model.kind.name}, ",
        sink,
    )


def _progress_card(status: SyncStatus) -> Content:
    if status.progress is None:
        return None
    link = ui_urls.run_path(status.sync.id, status.progress.run_id)
    return element(
        "div", element("a", "A run is active", href=link), ": ", render_progress(status.progress), class_="now card"
    )


def _status_facts(status: SyncStatus, now: datetime) -> Html:
    queue = status.queue
    return fact_list(
        [
            ("In the queue", format_number(queue.depth) if queue else NO_VALUE),
            ("Waiting for a retry", format_number(queue.waiting_units) if queue else NO_VALUE),
            ("In open jobs", format_number(queue.units_in_jobs) if queue else NO_VALUE),
            ("Oldest has waited", format_age(queue.oldest_since if queue else None, now)),
            ("Next retry", format_due_time(queue.next_due_at if queue else None, now)),
            ("Dead letters", dead_letter_link(status)),
            ("Last run", format_time_ago(status.last_run.started_at, now) if status.last_run else NO_VALUE),
        ]
    )


def _runs_chart(status: SyncStatus) -> Content:
    ended_runs = [run for run in status.runs if run.result is not RunResult.RUNNING]
    if not ended_runs:
        return None
    ended_runs.reverse()
    bars = [_run_bar(run) for run in ended_runs]
    sums = {cell: _sum_known([load_grid(run).known_total(cell) for run in ended_runs]) for cell in CHART_SERIES}
    known_sums = [
        f"{format_number(sums[cell])} {name}" for cell, name in CHART_SERIES.items() if sums[cell] is not None
    ]
    sums_text = ", ".join(known_sums) or "unknown"
    units = f"{unit_noun(status.sync)}s"
    runs = format_count(len(ended_runs), "run") if len(ended_runs) > 1 else "run"
    title = f"{units.capitalize()} of the last {runs}"
    label = f"{title}: {sums_text}. The table of runs has each."
    chart = bar_charts.draw_bars(bars, label=label, places=max(MAX_LABELLED_BARS, len(bars)), class_="chart")
    scale = f"{chart.max_value:,} {units}" + (" (higher bars are cut off)" if chart.has_cut_bars else "")
    figure = element(
        "figure",
        element("div", element("span", scale, class_="scale"), chart.svg, class_="plot"),
        _chart_times(ended_runs),
        element("figcaption", _chart_legend(sums)),
        class_="card",
    )
    return section(title, figure, id_="counts")


def _chart_times(ended_runs: Sequence[PastRun]) -> Html:
    """Return the start times below the chart: of each run if there is room, else of the first and the last."""
    start_times = [run.started_at for run in ended_runs]
    if len(start_times) > MAX_LABELLED_BARS:
        end_labels = [element("span", format_time(value)) for value in (start_times[0], start_times[-1])]
        return element("div", end_labels, class_="span")
    days = [format_local_time(value).partition(" ")[0] for value in start_times]
    labels = [
        element("span", format_time_of_day(value, with_day=position == 0 or days[position - 1] != days[position]))
        for position, value in enumerate(start_times)
    ]
    return element("div", [element("span")] * (MAX_LABELLED_BARS - len(labels)), labels, class_="span each")


def _sum_known(counts: Sequence[int | None]) -> int | None:
    """Return the sum of the known counts; None if all counts are unknown."""
    known_counts = [count for count in counts if count is not None]
    return sum(known_counts) if known_counts else None


def _chart_legend(sums: Mapping[GridRow, int | None]) -> Html:
    entries = [
        element(
            "li",
            element("i", class_=f"swatch {cell}", aria_hidden="true"),
            f"{name} ",
            element("b", format_number(sums[cell])),
        )
        for cell, name in CHART_SERIES.items()
    ]
    return element("ul", entries, class_="legend")


def _run_bar(run: PastRun) -> bar_charts.Bar:
    grid = load_grid(run)
    counts = {cell.value: grid.total(cell) for cell in CHART_SERIES}
    counts_text = ", ".join(f"{counts[cell.value]:,} {cell.value}" for cell in CHART_SERIES if counts[cell.value])
    title = f"{run.run_id}: {counts_text or 'nothing sent'}"
    return bar_charts.Bar(counts, title, ui_urls.run_path(run.sync_id, run.run_id))


def _run_row(run: PastRun, run_ids: Collection[str], now: datetime) -> Iterator[Content]:
    grid, result = load_grid(run), run.result.value
    yield (
        element("a", format_time(run.started_at), href=ui_urls.run_path(run.sync_id, run.run_id), class_="strong"),
        element("small", element("code", run.run_id)),
        [element("small", shorten_message(error), class_="error") for error in run.first_errors[:MAX_SHOWN_ERRORS]],
    )
    yield (badge(result), element("small", describe_dry_run(run)) if result == "dry" else None)
    yield run.trigger
    yield (run.mode.value, element("small", run.reason))
    yield format_versions(run)
    yield format_run_duration(run, now)
    has_counts = result != "dry" and bool(run.counts)
    has_records = run.run_id in run_ids and result != "dry"
    for cell in CHART_SERIES:
        yield (count_link(run, cell, grid.known_total(cell), has_records=has_records) if has_counts else NO_VALUE)
    records = ui_urls.records_url(run.sync_id, ui_urls.RecordFilter(run=run.run_id))
    yield element("a", "view", href=records) if has_records else NO_VALUE
