"""From a sync's pages to each other: the steps that led to one, and what is told of the same rows."""

from ondatra_dagster.browser import links
from ondatra_dagster.browser.elements import Content, Html, element
from ondatra_dagster.browser.shell import Crumb
from ondatra_dagster.browser.told import number
from ondatra_dagster.delivery.queue.unit_counts import Operation
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.sync.summary import Cell
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.found import Stage
from ondatra_dagster.tracking.history import PastRun

# what of a run's counts is counted in records; the others are of what was to be done, or is to be done again
RECORDED = {Cell.SUCCEEDED: Stage.SUCCEEDED, Cell.REJECTED: Stage.REJECTED, Cell.INVALID: Stage.INVALID}


def crumbs(sync: Sync, *here: Crumb, run: str | None = None) -> list[Crumb]:
    """The way to a page of the sync, or of one of its runs."""
    of_run = [Crumb(run, links.run(sync.id, run))] if run else []
    return [Crumb(sync.id, links.sync(sync.id)), *of_run, *here]


def ways(sync: Sync, *, run: str | None = None) -> Html:
    """To what is told of its rows, in all runs or in one."""
    told = [
        ("View records", links.records(sync.id, run=run), "button main"),
        ("Reasons", links.reasons(sync.id, run=run), "button"),
        ("Queue and dead letters", links.queue(sync.id), "button"),
    ]
    return element(
        "nav", [element("a", name, href=link, class_=look) for name, link, look in told], class_="ways",
        aria_label="Of this sync",
    )  # fmt: skip


def lost_notice(workspace: Workspace, sync: Sync) -> Content:
    """That nobody knows what waits, where the queue is gone."""
    lost = workspace.queue_seen(sync.id).lost
    return element("p", f"Nobody knows what waits: {lost}.", class_="notice") if lost else None


def counted_link(
    run: PastRun, cell: Cell, count: int | None, operation: Operation | None = None, *, has_records: bool
) -> Content:
    """A count of a run's grid, which leads to as many records where they are kept."""
    stage = RECORDED.get(cell)
    if not (stage and count and has_records):
        return number(count)
    return element(
        "a", number(count), href=links.records(run.sync_id, run=run.run_id, status=stage, change=operation)
    )
