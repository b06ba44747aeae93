"""The first page: every sync of the project, how it stands, and how its last runs went."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from ondatra_dagster.browser import charts, links
from ondatra_dagster.browser.asked import Asked
from ondatra_dagster.browser.elements import Content, element
from ondatra_dagster.browser.shell import BUSY_SECONDS, CALM_SECONDS, Column, Page, heading, table
from ondatra_dagster.browser.standing import Health, Standing, counted, standing
from ondatra_dagster.browser.told import NOTHING, UNREAD, age, ago, badge, message, number, until
from ondatra_dagster.errors import StateError
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.sync.summary import Cell
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import Result
from ondatra_dagster.wording import count

LAST_RUNS = 12
TROUBLED = (Health.FAILING, Health.LOST, Health.REJECTS)
LEAST = 8  # of a hundred: the bars are 25 pixels high
COLUMNS = (
    Column("Sync"),
    Column("Health"),
    Column("In queue", is_number=True),
    Column("Oldest", is_number=True),
    Column("Next retry", is_number=True),
    Column("Dead", is_number=True),
    Column("Last run"),
    Column("Result"),
    Column("Last runs", class_="spark"),
)


def syncs_page(asked: Asked) -> Page:
    """All syncs on one screen."""
    looked = [_look(asked, sync) for sync in asked.workspace.syncs.values()]
    found = [each for each in looked if isinstance(each, Standing)]
    rows = [_row(each, asked.now) if isinstance(each, Standing) else _unread_row(each) for each in looked]
    return Page(
        title="Syncs",
        body=(
            heading("Syncs", under=_summed_up(found, unread=len(looked) - len(found))),
            _held(asked.workspace.settings.sinks),
            _unreadable_history(asked.workspace),
            element("div", table("Every sync, and how it stands", COLUMNS, rows, none=_NONE), class_="card"),
        ),
        live_seconds=BUSY_SECONDS if any(each.going_on for each in found) else CALM_SECONDS,
    )


_NONE = "No model of this project has a sink yet: a model's header line “-- @sink: NAME” makes it a sync."


def _held(sinks: str) -> Content:
    """Why nothing is sent at all."""
    if sinks == "on":
        return None
    return element("p", f"The setting sinks is {sinks}: nothing is sent.", class_="notice")


def _unreadable_history(workspace: Workspace) -> Content:
    """Say why the page shows no runs, where the history can't be read."""
    try:
        workspace.history.required().runs(limit=1)
    except StateError as error:
        return element("p", f"No past runs are shown: {error}", class_="notice")
    return None


class _Unread(NamedTuple):
    """A sync of which a file can't be read."""

    sync: Sync
    why: str


def _look(asked: Asked, sync: Sync) -> Standing | _Unread:
    """How the sync stands; one that can't be looked at hides no other."""
    try:
        return standing(asked.workspace, sync, runs=LAST_RUNS)
    except StateError as error:
        return _Unread(sync, str(error))


def _unread_row(unread: _Unread) -> Iterator[Content]:
    yield _name(unread.sync)
    yield (badge(UNREAD), element("small", message(unread.why), class_="error"))
    yield from [NOTHING] * (len(COLUMNS) - 2)


def _name(sync: Sync) -> Content:
    return (
        element("a", sync.id, href=links.sync(sync.id), class_="strong"),
        element("small", f"{sync.config.destination} · {sync.config.object}"),
    )


def _summed_up(found: Sequence[Standing], *, unread: int) -> str:
    troubled = unread + sum(each.health in TROUBLED for each in found)
    unknown = unread + sum(each.lost is not None for each in found)
    waiting = sum(each.queue.depth for each in found if each.queue)
    told = [count(unread + len(found), "sync")]
    told.append(f"{troubled} to look at" if troubled else "none to look at")
    if waiting or not unknown:
        told.append(f"{count(waiting, 'key')} to be delivered" if waiting else "nothing waits")
    if unknown:
        told.append(f"of {count(unknown, 'sync')} nobody knows what waits")
    return " · ".join(told)


def _row(of: Standing, now: datetime) -> Iterator[Content]:
    sync, queue, last = of.sync, of.queue, of.last
    yield _name(sync)
    yield (badge(of.health), _progress(of), _lost(of))
    yield number(queue.depth if queue else None)
    yield age(queue.oldest_since if queue else None, now)
    yield until(queue.next_due_at if queue else None, now)
    yield _dead(of)
    yield (element("a", ago(last.started_at, now), href=links.run(sync.id, last.run_id)) if last else NOTHING)
    yield badge(last.result.value) if last else NOTHING
    yield _last_runs(of)


def _progress(of: Standing) -> Content:
    if of.going_on is None:
        return None
    return element("small", f"{of.going_on.records:,} records, {of.going_on.keys:,} to go")


def _lost(of: Standing) -> Content:
    return element("small", of.lost, class_="error") if of.lost else None


def _dead(of: Standing) -> Content:
    if not (of.queue and of.queue.dead):
        return number(0 if of.queue else None)
    return element("a", number(of.queue.dead), href=links.queue(of.sync.id), class_="bad")


def _last_runs(of: Standing) -> Content:
    """A bar a run: how many rows were attempted, and whether some didn't arrive."""
    if not of.runs:
        return NOTHING
    bars = []
    for run in reversed(of.runs):
        grid = counted(run)
        good = grid.count(Cell.SUCCEEDED)
        bad = grid.count(Cell.REJECTED) + grid.count(Cell.FAILED)
        bars.append(
            charts.Bar(
                {"succeeded": good, "rejected": bad}, f"{run.run_id}: {good:,} arrived, {bad:,} didn't"
            )
        )
    well = sum(run.result is Result.SUCCEEDED for run in of.runs)
    label = f"{well} of the last {count(len(of.runs), 'run')} succeeded"
    drawn = charts.bars(bars, label=label, places=LAST_RUNS, class_="sparkline", least=LEAST)
    return drawn.drawn
