"""A sync's page: how it stands, its counts over runs, and the history of its runs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from ondatra_dagster.browser import charts, links
from ondatra_dagster.browser.asked import Asked
from ondatra_dagster.browser.elements import Content, Html, element
from ondatra_dagster.browser.shell import (
    BUSY_SECONDS,
    CALM_SECONDS,
    Column,
    Page,
    facts,
    heading,
    pager,
    section,
    table,
)
from ondatra_dagster.browser.standing import (
    Standing,
    counted,
    forecast_told,
    standing,
    time_taken,
)
from ondatra_dagster.browser.told import (
    NOTHING,
    age,
    ago,
    badge,
    message,
    number,
    progress_told,
    time_of,
    time_of_day,
    until,
)
from ondatra_dagster.browser.ways import counted_link, crumbs, lost_notice, ways
from ondatra_dagster.sync.guard import unit_noun
from ondatra_dagster.sync.summary import Cell
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.history import PastRun, Result
from ondatra_dagster.wording import count, moment

SHOWN = 25  # runs of a page
CHARTED = 40
FEW = 12  # runs of which each has its time below its bar
FIRST_ERRORS = 2  # that the history shows of a run; its own page has all
SERIES = {
    Cell.SUCCEEDED: "succeeded",
    Cell.REJECTED: "rejected",
    Cell.FAILED: "failed, is retried",
    Cell.INVALID: "invalid",
}
RUNS = (
    Column("Run"),
    Column("Result"),
    Column("Trigger"),
    Column("Mode"),
    Column("Versions", is_number=True),
    Column("Took", is_number=True),
    *(Column(cell.value.capitalize(), is_number=True) for cell in SERIES),
    Column("Records"),
)


def sync_page(asked: Asked) -> Page:
    """The sync that the path names."""
    sync, history = asked.sync, asked.workspace.history.required()
    of = standing(asked.workspace, sync, runs=CHARTED)
    offset = SHOWN * (asked.page - 1)
    found = history.runs(sync.id, limit=SHOWN + 1, offset=offset, with_dry=True)
    kept = frozenset(asked.workspace.tracking.runs(sync.id))
    rows = [_row(run, kept, asked.now) for run in found[:SHOWN]]
    none = "There are no older runs." if asked.page > 1 else _NONE
    runs = section(
        "Runs",
        element("div", table(f"Runs of {sync.id}, the newest first", RUNS, rows, none=none), class_="card"),
        pager(
            page=asked.page,
            link_of=lambda page: links.runs(sync.id, page=page),
            has_more=len(found) > SHOWN,
            newer="newer runs",
            older="older runs",
        ),
    )
    first = (_facts(of, asked.now), _chart(of)) if asked.page == 1 else None
    lost = lost_notice(asked.workspace, sync)
    return Page(
        title=sync.id,
        crumbs=crumbs(sync),
        body=(
            heading(sync.id, badge(of.health), ways(sync), under=_about(sync)),
            lost,
            _going_on(of),
            first,
            runs,
        ),
        live_seconds=BUSY_SECONDS if of.going_on else CALM_SECONDS,
    )


_NONE = "It has never run: “ondatra run”, or its asset in Dagster, starts it."


def _about(sync: Sync) -> Content:
    sink = element("code", sync.config.file)
    return (
        f"{sync.model.name} → {sync.config.destination} · {sync.config.object}, {sync.model.kind.name}, ",
        sink,
    )


def _going_on(of: Standing) -> Content:
    if of.going_on is None:
        return None
    link = links.run(of.sync.id, of.going_on.run_id)
    return element(
        "div", element("a", "A run goes on", href=link), ": ", progress_told(of.going_on), class_="now card"
    )


def _facts(of: Standing, now: datetime) -> Html:
    queue = of.queue
    return facts(
        [
            ("In the queue", number(queue.depth) if queue else NOTHING),
            ("Waiting for a retry", number(queue.waiting) if queue else NOTHING),
            ("In open jobs", number(queue.in_jobs) if queue else NOTHING),
            ("Oldest waits for", age(queue.oldest_since if queue else None, now)),
            ("Next retry", until(queue.next_due_at if queue else None, now)),
            ("Dead letters", _dead(of)),
            ("Last run", ago(of.last.started_at, now) if of.last else NOTHING),
        ]
    )


def _dead(of: Standing) -> Content:
    if not of.queue:
        return NOTHING
    dead = number(of.queue.dead)
    return element("a", dead, href=links.queue(of.sync.id), class_="bad") if of.queue.dead else dead


def _chart(of: Standing) -> Content:
    ended = [run for run in of.runs if run.result is not Result.RUNNING]
    if not ended:
        return None
    ended.reverse()
    shown = [_bar(run) for run in ended]
    sums = {cell: _sum([counted(run).known(cell) for run in ended]) for cell in SERIES}
    known = [f"{number(sums[cell])} {name}" for cell, name in SERIES.items() if sums[cell] is not None]
    told = ", ".join(known) or "unknown"
    units = f"{unit_noun(of.sync)}s"
    runs = count(len(ended), "run") if len(ended) > 1 else "run"
    title = f"{units.capitalize()} of the last {runs}"
    label = f"{title}: {told}. The table of runs has each."
    chart = charts.bars(shown, label=label, places=max(FEW, len(shown)), class_="chart")
    scale = f"{chart.top:,} {units}" + (" (higher bars are cut off)" if chart.is_cut else "")
    drawn = element(
        "figure",
        element("div", element("span", scale, class_="scale"), chart.drawn, class_="plot"),
        _times(ended),
        element("figcaption", _legend(sums)),
        class_="card",
    )
    return section(title, drawn, id_="counts")


def _times(ended: Sequence[PastRun]) -> Html:
    """When the runs began: each below its bar where there is room, else from when to when."""
    moments = [run.started_at for run in ended]
    if len(moments) > FEW:
        ends = [element("span", time_of(value)) for value in (moments[0], moments[-1])]
        return element("div", ends, class_="span")
    days = [moment(value).partition(" ")[0] for value in moments]
    told = [
        element("span", time_of_day(value, with_day=place == 0 or days[place - 1] != days[place]))
        for place, value in enumerate(moments)
    ]
    return element("div", [element("span")] * (FEW - len(told)), told, class_="span each")


def _sum(counts: Sequence[int | None]) -> int | None:
    """Of those that are known; None when none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _legend(sums: Mapping[Cell, int | None]) -> Html:
    entries = [
        element(
            "li",
            element("i", class_=f"swatch {cell}", aria_hidden="true"),
            f"{name} ",
            element("b", number(sums[cell])),
        )
        for cell, name in SERIES.items()
    ]
    return element("ul", entries, class_="legend")


def _bar(run: PastRun) -> charts.Bar:
    grid = counted(run)
    parts = {cell.value: grid.count(cell) for cell in SERIES}
    told = ", ".join(f"{parts[cell.value]:,} {cell.value}" for cell in SERIES if parts[cell.value])
    title = f"{run.run_id}: {told or 'nothing sent'}"
    return charts.Bar(parts, title, links.run(run.sync_id, run.run_id))


def _row(run: PastRun, kept: Collection[str], now: datetime) -> Iterator[Content]:
    grid, result = counted(run), run.result.value
    yield (
        element("a", time_of(run.started_at), href=links.run(run.sync_id, run.run_id), class_="strong"),
        element("small", element("code", run.run_id)),
        _first_errors(run),
    )
    yield (badge(result), element("small", forecast_told(run)) if result == "dry" else None)
    yield run.trigger
    yield (run.mode.value, element("small", run.reason))
    yield versions(run)
    yield time_taken(run, now)
    is_counted = result != "dry" and bool(run.counts)
    has_records = run.run_id in kept and result != "dry"
    for cell in SERIES:
        yield counted_link(run, cell, grid.known(cell), has_records=has_records) if is_counted else NOTHING
    yield element("a", "view", href=links.records(run.sync_id, run=run.run_id)) if has_records else NOTHING


def versions(run: PastRun) -> str:
    """From the version that had arrived before to the one that it brought over."""
    old, new = (
        NOTHING if version is None or version < 0 else str(version)
        for version in (run.version_from, run.version_to)
    )
    return f"{old} → {new}"


def _first_errors(run: PastRun) -> Content:
    shown: Sequence[str] = run.first_errors[:FIRST_ERRORS]
    return [element("small", message(error), class_="error") for error in shown]
