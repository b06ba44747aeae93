"""A run's page: what became of how many rows, why some didn't arrive, and how far it is while it goes on."""

from collections.abc import Iterator

from ondatra_dagster.browser import links
from ondatra_dagster.browser.asked import Asked
from ondatra_dagster.browser.elements import Content, Html, element
from ondatra_dagster.browser.pages.sync import versions
from ondatra_dagster.browser.shell import BUSY_SECONDS, Column, Page, facts, heading, section, table
from ondatra_dagster.browser.standing import counted, forecast_told, time_taken
from ondatra_dagster.browser.told import NOTHING, badge, message, number, progress_told, time_of
from ondatra_dagster.browser.ways import counted_link, crumbs, ways
from ondatra_dagster.delivery.queue.unit_counts import Operation
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.sync.forecast import numbers_of
from ondatra_dagster.sync.guard import unit_noun
from ondatra_dagster.sync.progress import Progress, progress
from ondatra_dagster.sync.summary import Cell, Grid, undelivered_reasons
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import PastRun, Result
from ondatra_dagster.wording import count

MEANINGS = {
    Cell.PLANNED: "what the queue held for this run",
    Cell.ATTEMPTED: "succeeded, rejected or failed",
    Cell.SUCCEEDED: "delivered",
    Cell.REJECTED: "refused, or tried too often",
    Cell.FAILED: "not now: they are retried",
    Cell.IN_JOBS: "the API works on them",
    Cell.NOT_SENT: "left in the queue: paused, over @max_deletes, the API was down, or the run was ended",
    Cell.INVALID: "rows kept out of the table for their key",
}
COUNTS = (
    *(Column(operation.value, is_number=True) for operation in Operation),
    Column("all", is_number=True),
)


def run_page(asked: Asked) -> Page:
    """The run that the path names."""
    workspace, sync = asked.workspace, asked.sync
    run = workspace.history.run(sync.id, asked.path["run"])
    if run is None:
        return _of_records_only(workspace, sync, asked.path["run"])
    going_on = progress(sync, workspace.tracking, clock=workspace.clock)
    result = run.result.value
    is_dry = result == "dry"
    return Page(
        title=f"{sync.id} · {run.run_id}",
        crumbs=crumbs(sync, run=run.run_id),
        body=(
            heading(
                element("span", "Run ", element("code", run.run_id)),
                badge(result),
                None if is_dry else _ways(workspace, run),
                under=None if is_dry else _retention(workspace, run),
            ),
            _going_on(going_on) if going_on and result == "running" else None,
            _facts(asked, run),
            _errors(run, sync),
            _forecast(run) if is_dry else _grid(workspace, run) if run.counts else _uncounted(run),
        ),
        live_seconds=BUSY_SECONDS if result == "running" else None,
    )


def _of_records_only(workspace: Workspace, sync: Sync, run_id: str) -> Page:
    """A run that the history doesn't know: it was lost, or this project's isn't the one that ran it."""
    if run_id not in workspace.tracking.runs(sync.id):
        raise SelectionError(
            f"{sync.id} has no run {run_id!r} in its history; its page lists those that it has"
        )
    return Page(
        title=f"{sync.id} · {run_id}",
        crumbs=crumbs(sync, run=run_id),
        body=(
            heading(element("span", "Run ", element("code", run_id)), ways(sync, run=run_id)),
            element("p", "The history doesn't know this run, but its records are kept.", class_="notice"),
        ),
    )


def _has_records(workspace: Workspace, run: PastRun) -> bool:
    return run.run_id in workspace.tracking.runs(run.sync_id)


def _ways(workspace: Workspace, run: PastRun) -> Content:
    return ways(workspace.syncs[run.sync_id], run=run.run_id) if _has_records(workspace, run) else None


def _retention(workspace: Workspace, run: PastRun) -> Content:
    """Where its records are, or why they are there no more."""
    if _has_records(workspace, run):
        return (
            "Its records are in ",
            element("code", workspace.tracking.run_address(run.sync_id, run.run_id)),
        )
    days = workspace.settings.tracking_retention_days
    kept = f" Records are kept for {count(days, 'day')}." if days else ""
    return f"The records of this run are gone: its counts are what is left.{kept}"


def _going_on(going_on: Progress) -> Html:
    return element("div", progress_told(going_on), class_="now card")


def _facts(asked: Asked, run: PastRun) -> Html:
    dagster = asked.workspace.settings.dagster_url
    return facts(
        [
            ("Started", time_of(run.started_at)),
            ("Took", time_taken(run, asked.now)),
            ("Trigger", run.trigger),
            ("Mode", (run.mode.value, element("small", run.reason))),
            ("Versions", versions(run)),
            ("Model", run.model),
            (
                "Dagster run",
                element(
                    "a",
                    element("code", run.dagster_run_id[:8]),
                    href=links.dagster_run(dagster, run.dagster_run_id),
                    rel="noreferrer",
                )
                if run.dagster_run_id
                else NOTHING,
            ),
        ]
    )


def _errors(run: PastRun, sync: Sync) -> Content:
    """Show why rows weren't delivered, with how many and which; then errors that are of no row."""
    reasons = undelivered_reasons(run)
    of_rows = tuple(reason.message for reason in reasons)
    others = [error for error in run.first_errors if not any(each.startswith(error) for each in of_rows)]
    noun = unit_noun(sync)
    items = [
        *(
            element("li", element("strong", f"{reason.describe_units(noun)}: "), message(reason.message))
            for reason in reasons
        ),
        *(element("li", message(error)) for error in others),
    ]
    return section("Errors", element("ul", items, class_="errors card")) if items else None


def _uncounted(run: PastRun) -> Content:
    """Of a run that was killed before it could say what it did."""
    if run.result is not Result.CRASHED:
        return None
    told = "Its process ended without a word. What it delivered is among its records; the next run counts it."
    return element("p", told, class_="notice")


def _grid(workspace: Workspace, run: PastRun) -> Html:
    """Counts of what has records lead to just these."""
    grid, has_records = counted(run), _has_records(workspace, run)
    is_whole = grid.counted.issuperset(Cell)
    sync = workspace.syncs[run.sync_id]
    noun = f"{unit_noun(sync)}s"
    rows = (count_rows(run, cell, grid, sync=sync, has_records=has_records) for cell in Cell)
    head = (Column(noun.capitalize()), *COUNTS)
    shown = table(f"What became of how many {noun}", head, rows, none="", stacks=False)
    left_out = None if is_whole else element("p", _CUT_OFF, class_="notice")
    return section(f"What became of the {noun}", left_out, element("div", shown, class_="card grid"))


_CUT_OFF = "Its process ended before it had planned anything: what it would have sent is unknown."


def count_rows(
    run: PastRun, cell: Cell, grid: Grid, *, sync: Sync, has_records: bool = False
) -> Iterator[Content]:
    """Yield the columns of one row of the counts; those that have records lead to them."""
    yield (
        element("span", cell.value.replace("_", " "), class_="strong"),
        element("small", MEANINGS[cell]),
    )
    # the records of rows that are replaced are inserts and deletes, whatever the unit is
    has_own_records = sync.shape in (Shape.ROW, Shape.VERSION) and not sync.model.kind.replaces_rows
    for operation in Operation:
        link_to = operation if has_own_records else None
        yield counted_link(run, cell, grid.known(cell, operation), link_to, has_records=has_records)
    yield counted_link(run, cell, grid.known(cell), has_records=has_records)


def _forecast(run: PastRun) -> Html:
    told = [(name.replace("_", " "), number(value)) for name, value in numbers_of(run).items()]
    return section(f"A dry run: {forecast_told(run)}", facts(told), id_="forecast")
