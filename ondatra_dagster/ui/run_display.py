"""The display of a run's counts, duration and versions on several pages."""

from datetime import datetime

from ondatra_dagster.delivery.queue.change_counts import UnitOperation
from ondatra_dagster.records.record_query import RecordStage
from ondatra_dagster.sync.run_history import PastRun, RunResult
from ondatra_dagster.sync.run_summary import CountGrid, GridRow, load_expected_changes, load_grid
from ondatra_dagster.text_format import format_elapsed
from ondatra_dagster.ui import page_urls
from ondatra_dagster.ui.html_builder import Content, element
from ondatra_dagster.ui.value_formatting import NO_VALUE, format_number

# what of a run's counts is counted in records; the others are of what was to be done, or is to be done again
RECORD_STAGES = {
    GridRow.SUCCEEDED: RecordStage.SUCCEEDED,
    GridRow.REJECTED: RecordStage.REJECTED,
    GridRow.INVALID: RecordStage.INVALID,
}


def count_link(
    run: PastRun, cell: GridRow, count: int | None, operation: UnitOperation | None = None, *, has_records: bool
) -> Content:
    """Return a count of a run's grid, as a link to its records if they are kept."""
    stage = RECORD_STAGES.get(cell)
    if not (stage and count and has_records):
        return format_number(count)
    return element(
        "a",
        format_number(count),
        href=page_urls.records_url(run.sync_id, page_urls.RecordFilter(run=run.run_id, status=stage, change=operation)),
    )


def read_run_counts(run: PastRun) -> CountGrid:
    """Read the run's counts; for a dry run, the expected ones."""
    return load_grid(run.counts.get("grid", {}))  # type: ignore[arg-type]  # as RunSummary.to_json() wrote it


def describe_dry_run(run: PastRun) -> str:
    """Describe the changes that a dry run expected at the destination."""
    expected = load_expected_changes(run)
    if expected is None:
        return ""
    moves = ((expected.creates, "to create"), (expected.updates, "to update"), (expected.deletes, "to delete"))
    return ", ".join(f"{count:,} {word}" for count, word in moves if count) or "nothing would change"


def format_run_duration(run: PastRun, now: datetime) -> str:
    """Return how long it took, or has taken by now; the end of a crashed run is unknown."""
    until = now if run.result is RunResult.RUNNING else run.ended_at
    return format_elapsed(max(0.0, (until - run.started_at).total_seconds())) if until else NO_VALUE


def format_versions(run: PastRun) -> str:
    """Format the version that was delivered before the run, and the one that it delivered."""
    old, new = (
        NO_VALUE if version is None or version < 0 else str(version) for version in (run.version_from, run.version_to)
    )
    return f"{old} → {new}"
