"""A sync's records, of one run or of all: filtered, searched, each with its payload, and as a file."""

import logging
from collections.abc import Iterator, Mapping

from starlette.responses import Response, StreamingResponse

from ondatra_dagster.browser import links
from ondatra_dagster.browser.asked import Asked
from ondatra_dagster.browser.elements import Content, Html, element
from ondatra_dagster.browser.payloads import payload
from ondatra_dagster.browser.shell import Column, Crumb, Page, heading, pager, table
from ondatra_dagster.browser.told import STAGE_NAMES, badge, message, number, time_of
from ondatra_dagster.browser.ways import crumbs, lost_notice
from ondatra_dagster.errors import OndatraError, SelectionError
from ondatra_dagster.project.suggestions import correction
from ondatra_dagster.sync.found_records import count_records, find_records
from ondatra_dagster.tracking.downloads import FORMATS, download
from ondatra_dagster.tracking.found import FoundRecord, Stage, why
from ondatra_dagster.tracking.parts import records_of
from ondatra_dagster.wording import count

log = logging.getLogger(__name__)

SHOWN = 50  # records of a page
SAMPLE = 1_000  # records of a download that is to be looked at
MOST = 1_000_000_000
CHOICES = 50  # runs that can be chosen from
FILTERS: Mapping[Stage | None, str] = {None: "All"} | STAGE_NAMES
COLUMNS = (
    Column("Identifier", class_="key"),
    Column("Status"),
    Column("Operation"),
    Column("Reason", class_="reason"),
    Column("When"),
    Column("Payload", class_="wide"),
)
MEDIA = {".csv": "text/csv", ".json": "application/json", ".parquet": "application/vnd.apache.parquet"}


def records_page(asked: Asked) -> Page:
    """A page of what is asked for, the newest first."""
    sync = asked.sync
    search = asked.search(limit=SHOWN + 1, offset=SHOWN * (asked.page - 1))
    found = list(records_of(find_records(sync, asked.workspace.tracking, search)))
    shown = table(
        f"Records of {sync.id}, the newest first", COLUMNS, map(_row, found[:SHOWN]), none=_nothing(asked)
    )
    return Page(
        title=f"{sync.id} · records",
        crumbs=crumbs(sync, Crumb("Records", links.records(sync.id, run=asked.run)), run=asked.run),
        body=(
            heading("Records", _count(asked), under=_of(asked)),
            None if asked.run else lost_notice(asked.workspace, sync),
            _search(asked),
            _filters(asked),
            _only_this_change(asked),
            _only_this_reason(asked),
            element("div", shown, class_="card"),
            pager(
                page=asked.page,
                link_of=lambda page: _link(asked, page=page),
                has_more=len(found) > SHOWN,
                newer="newer",
                older="older",
            ),
            _downloads(asked) if found else None,
        ),
    )


def _of(asked: Asked) -> Content:
    if asked.run:
        return ("Of run ", element("code", asked.run))
    return "Of all runs whose records are kept, and of what is still to be sent"


def _count(asked: Asked) -> Content:
    """How many there are, where that is quickly known: of what ended so in one run."""
    if not (asked.run and asked.stage and asked.stage.has_ended):
        return None
    found = count_records(asked.sync, asked.workspace.tracking, asked.search(limit=None))
    return element("span", number(found), class_="count")


def _link(asked: Asked, *, page: int = 1) -> str:
    return links.records(
        asked.sync.id,
        run=asked.run,
        status=asked.status,
        change=asked.change,
        search=asked.prefix,
        reason=asked.reason,
        page=page,
    )


def _search(asked: Asked) -> Html:
    """A form, which asks for the same again with another beginning, or of another run."""
    known = sorted(asked.workspace.tracking.runs(asked.sync.id), reverse=True)
    listed = known[:CHOICES] if asked.run in (None, *known[:CHOICES]) else [asked.run, *known[:CHOICES]]
    choices = [element("option", "all runs", value="", selected=asked.run is None)]
    choices += [element("option", run, value=run, selected=run == asked.run) for run in listed]
    hidden = {"status": asked.status, "change": asked.change, "reason": asked.reason}
    return element(
        "form",
        [
            element("input", type="hidden", name=name, value=value)
            for name, value in hidden.items()
            if value is not None
        ],
        element("label", "Identifier begins with", for_="search"),
        element(
            "input",
            id="search",
            type="search",
            name="search",
            value=asked.prefix,
            autocomplete="off",
            spellcheck="false",
            aria_keyshortcuts="/",
        ),
        element("label", "Run", for_="run"),
        element("select", choices, id="run", name="run"),
        element("button", "Search"),
        method="get",
        action=links.records(asked.sync.id),
        role="search",
        class_="search",
    )


def _filters(asked: Asked) -> Html:
    ways = [
        element(
            "a",
            name,
            href=links.records(
                asked.sync.id, run=asked.run, status=stage, change=asked.change, search=asked.prefix
            ),
            aria_current="true" if stage == asked.stage else None,
        )
        for stage, name in FILTERS.items()
    ]
    stage = None if asked.stage is Stage.PENDING else asked.stage  # nothing is said of it yet
    reasons = links.reasons(asked.sync.id, run=asked.run, status=stage)
    grouped = element("a", "Group by reason", href=reasons, class_="aside")
    return element("nav", ways, grouped, class_="tabs", aria_label="Status")


def _only_this_change(asked: Asked) -> Content:
    if asked.change is None:
        return None
    back = links.records(
        asked.sync.id, run=asked.run, status=asked.status, search=asked.prefix, reason=asked.reason
    )
    shown = (f"Only {asked.change}s ", element("a", "show all changes", href=back))
    return element("p", shown, class_="notice")


def _only_this_reason(asked: Asked) -> Content:
    if asked.reason is None:
        return None
    back = links.records(
        asked.sync.id, run=asked.run, status=asked.status, change=asked.change, search=asked.prefix
    )
    return element(
        "p",
        ("Only with the reason “", message(asked.reason), "” ") if asked.reason else "Only without a reason ",
        element("a", "show all reasons", href=back),
        class_="notice",
    )


def _nothing(asked: Asked) -> str:
    if asked.page > 1:
        return "There are no more records."
    if not asked.workspace.tracking.runs(asked.sync.id):
        return f"{asked.sync.id} has no records yet."
    if asked.run and asked.stage and not asked.stage.has_ended:
        return "Nothing of it waits: what a run leaves is shown with the newest run, or without a run."
    if asked.run and not (asked.stage or asked.change or asked.prefix or asked.reason is not None):
        return "No row ended in this run."
    if asked.prefix and asked.sync.identifiers_are:
        return f"No record is like that; identifiers of {asked.sync.id} are {asked.sync.identifiers_are}."
    return "No record is like that."


def _row(record: FoundRecord) -> Iterator[Content]:
    yield element("code", record.identifier or "(none)")
    yield badge(record.status)
    yield record.operation
    yield (
        element("small", f"tried {count(record.attempts, 'time')}") if record.attempts else None,
        message(why(record.status, record.status_message)),
    )
    yield _when(record)
    yield payload(record.payload)


def _when(record: FoundRecord) -> Content:
    if record.next_try_at:
        return ("again ", time_of(record.next_try_at))
    return time_of(record.batch_ended_at)


def _downloads(asked: Asked) -> Html:
    """What was found as files, all of it or enough to look at."""
    told: list[Content] = []
    for name, limit in (("All that was found", None), (f"The newest {SAMPLE:,}", SAMPLE)):
        files = [
            element("a", ending[1:].upper(), href=_file(asked, ending, limit), download=True)
            for ending in FORMATS
        ]
        told += [element("dt", name), element("dd", files)]
    return element("dl", told, class_="downloads", aria_label="Downloads")


def _file(asked: Asked, ending: str, limit: int | None) -> str:
    return links.downloads(
        asked.sync.id,
        ending,
        run=asked.run,
        status=asked.status,
        change=asked.change,
        search=asked.prefix,
        reason=asked.reason,
        limit=limit,
    )


def records_file(asked: Asked) -> Response:
    """What is asked for as a file, sent on as it is found."""
    ending = f".{asked.path['ending']}"
    if ending not in FORMATS:
        known = [known[1:] for known in FORMATS]
        raise SelectionError(
            f"records can't be had as {ending[1:]!r}; {correction(ending[1:], known, plural='formats')}"
        )
    sync = asked.sync
    found = find_records(sync, asked.workspace.tracking, asked.search(limit=asked.number("limit", most=MOST)))
    pieces = download(found, ending)
    first = next(pieces)  # before anything is said: a fault can still be told on a page
    name = "-".join(filter(None, (sync.id, asked.run, asked.status, asked.change)))
    headers = {"Content-Disposition": f'attachment; filename="{name}{ending}"'}
    return StreamingResponse(_sent(first, pieces), media_type=MEDIA[ending], headers=headers)


def _sent(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces. A fault among them ends the connection, so that half a file isn't taken for the whole."""
    try:
        yield first
        yield from pieces
    except OndatraError as error:
        log.warning("a download was cut off: %s", error)  # nobody above has a page left to say it on
        raise
