"""The page of a sync's records, of one run or of all runs, with filters, a search and downloads."""

import dataclasses
import logging
from collections.abc import Iterator

from starlette.responses import Response, StreamingResponse

from ondatra_dagster.app import ui_urls
from ondatra_dagster.app.ui_urls import RecordFilter
from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.errors import OndatraError, SelectionError
from ondatra_dagster.project.spelling_suggestions import suggest_correction
from ondatra_dagster.records.record_export import EXPORT_WRITERS, stream_export
from ondatra_dagster.records.record_query import RecordStage, ResultRecord, explain_status
from ondatra_dagster.records.search_result_chunks_and_reason_counts import iterate_records
from ondatra_dagster.sync.record_search import count_records, find_records
from ondatra_dagster.ui.html_builder import Content, Html, element
from ondatra_dagster.ui.page_layout import (
    Breadcrumb,
    ColumnHeader,
    Page,
    heading,
    pager,
    stage_tabs,
    sync_breadcrumbs,
    table,
)
from ondatra_dagster.ui.page_request import PageRequest
from ondatra_dagster.ui.sync_health_and_run_facts import queue_lost_notice
from ondatra_dagster.ui.value_formatting import (
    STAGE_NAMES,
    badge,
    format_number,
    format_time,
    render_payload,
    shorten_message,
)

log = logging.getLogger(__name__)

PAGE_SIZE = 50  # records on a page
SAMPLE_SIZE = 1_000  # records in the smaller download
MAX_DOWNLOAD_RECORDS = 1_000_000_000
MAX_RUN_CHOICES = 50  # runs in the list from which the user chooses
COLUMNS = (
    ColumnHeader("Identifier", class_="key"),
    ColumnHeader("Status"),
    ColumnHeader("Operation"),
    ColumnHeader("Reason", class_="reason"),
    ColumnHeader("When"),
    ColumnHeader("Payload", class_="wide"),
)
MEDIA_TYPES = {".csv": "text/csv", ".json": "application/json", ".parquet": "application/vnd.apache.parquet"}


def records_page(page_request: PageRequest) -> Page:
    """Show the requested records, newest first."""
    sync = page_request.sync
    search = page_request.build_search(limit=PAGE_SIZE + 1, offset=PAGE_SIZE * (page_request.page - 1))
    records = list(iterate_records(find_records(sync, page_request.workspace.tracking, search)))
    record_table = table(
        f"Records of {sync.id}, the newest first",
        COLUMNS,
        map(_record_row, records[:PAGE_SIZE]),
        empty_text=_empty_text(page_request),
    )
    breadcrumb = Breadcrumb("Records", ui_urls.records_url(sync.id, RecordFilter(run=page_request.run_id)))
    return Page(
        title=f"{sync.id} · records",
        breadcrumbs=sync_breadcrumbs(sync, breadcrumb, run=page_request.run_id),
        body=(
            heading("Records", _record_count(page_request), subtitle=_subtitle(page_request)),
            None if page_request.run_id else queue_lost_notice(page_request.workspace, sync),
            _search_form(page_request),
            _stage_tabs(page_request),
            _change_notice(page_request),
            _reason_notice(page_request),
            element("div", record_table, class_="card"),
            pager(
                page=page_request.page,
                build_link=lambda page: ui_urls.records_url(sync.id, page_request.record_filter, page=page),
                has_more=len(records) > PAGE_SIZE,
                newer="newer",
                older="older",
            ),
            _download_links(page_request) if records else None,
        ),
    )


def _subtitle(page_request: PageRequest) -> Content:
    if page_request.run_id:
        return ("Run ", element("code", page_request.run_id))
    return "All runs whose records are kept, and rows that are still to be sent"


def _record_count(page_request: PageRequest) -> Content:
    """Return the number of records if counting is quick, which is for one stage of one run; otherwise None."""
    if not (page_request.run_id and page_request.stage and page_request.stage.has_ended):
        return None
    record_count = count_records(
        page_request.sync, page_request.workspace.tracking, page_request.build_search(limit=None)
    )
    return element("span", format_number(record_count), class_="count")


def _search_form(page_request: PageRequest) -> Html:
    """Return the form for a search by identifier and run."""
    known_runs = sorted(page_request.workspace.tracking.list_runs(page_request.sync.id), reverse=True)
    listed_runs = (
        known_runs[:MAX_RUN_CHOICES]
        if page_request.run_id in (None, *known_runs[:MAX_RUN_CHOICES])
        else [page_request.run_id, *known_runs[:MAX_RUN_CHOICES]]
    )
    choices = [element("option", "all runs", value="", selected=page_request.run_id is None)]
    choices += [element("option", run, value=run, selected=run == page_request.run_id) for run in listed_runs]
    hidden_fields = {"status": page_request.status, "change": page_request.change, "reason": page_request.reason}
    return element(
        "form",
        [
            element("input", type="hidden", name=name, value=value)
            for name, value in hidden_fields.items()
            if value is not None
        ],
        element("label", "Identifier begins with", for_="search"),
        element(
            "input",
            id="search",
            type="search",
            name="search",
            value=page_request.prefix,
            autocomplete="off",
            spellcheck="false",
            aria_keyshortcuts="/",
        ),
        element("label", "Run", for_="run"),
        element("select", choices, id="run", name="run"),
        element("button", "Search"),
        method="get",
        action=ui_urls.records_url(page_request.sync.id, RecordFilter()),
        role="search",
        class_="search",
    )


def _stage_tabs(page_request: PageRequest) -> Html:
    record_filter = dataclasses.replace(page_request.record_filter, reason=None)
    stage = (
        None if page_request.stage is RecordStage.PENDING else page_request.stage
    )  # a pending record has no reason yet
    return stage_tabs(
        STAGE_NAMES,
        page_request.stage,
        build_link=lambda stage: ui_urls.records_url(
            page_request.sync.id, dataclasses.replace(record_filter, status=stage)
        ),
        other_view=(
            "Group by reason",
            ui_urls.reasons_url(page_request.sync.id, run=page_request.run_id, status=stage),
        ),
    )


def _change_notice(page_request: PageRequest) -> Content:
    if page_request.change is None:
        return None
    all_changes_url = ui_urls.records_url(
        page_request.sync.id, dataclasses.replace(page_request.record_filter, change=None)
    )
    content = (f"Only {page_request.change}s ", element("a", "show all changes", href=all_changes_url))
    return element("p", content, class_="notice")


def _reason_notice(page_request: PageRequest) -> Content:
    if page_request.reason is None:
        return None
    all_reasons_url = ui_urls.records_url(
        page_request.sync.id, dataclasses.replace(page_request.record_filter, reason=None)
    )
    return element(
        "p",
        ("Only with the reason “", shorten_message(page_request.reason), "” ")
        if page_request.reason
        else "Only without a reason ",
        element("a", "show all reasons", href=all_reasons_url),
        class_="notice",
    )


def _empty_text(page_request: PageRequest) -> str:
    if page_request.page > 1:
        return "There are no more records."
    if not page_request.workspace.tracking.list_runs(page_request.sync.id):
        return f"{page_request.sync.id} has no records yet."
    if page_request.run_id and page_request.stage and not page_request.stage.has_ended:
        return "Nothing of this run is pending: pending rows are listed with the newest run, or without a run."
    if page_request.run_id and not (
        page_request.stage or page_request.change or page_request.prefix or page_request.reason is not None
    ):
        return "No row ended in this run."
    if page_request.prefix and page_request.sync.identifier_hint:
        return f"No record matches; identifiers of {page_request.sync.id} are {page_request.sync.identifier_hint}."
    return "No record matches."


def _record_row(record: ResultRecord) -> Iterator[Content]:
    yield element("code", record.identifier or "(none)")
    yield badge(record.status)
    yield record.operation
    yield (
        element("small", f"tried {format_count(record.attempts, 'time')}") if record.attempts else None,
        shorten_message(explain_status(record.status, record.status_message)),
    )
    yield ("retry ", format_time(record.next_try_at)) if record.next_try_at else format_time(record.batch_ended_at)
    yield render_payload(record.payload)


def _download_links(page_request: PageRequest) -> Html:
    """Return the links that download the records as files: all matching records, or the newest ones."""
    entries: list[Content] = []
    for name, limit in (("All matching records", None), (f"The newest {SAMPLE_SIZE:,}", SAMPLE_SIZE)):
        files = [
            element(
                "a",
                suffix[1:].upper(),
                href=ui_urls.download_url(page_request.sync.id, suffix, page_request.record_filter, limit=limit),
                download=True,
            )
            for suffix in EXPORT_WRITERS
        ]
        entries += [element("dt", name), element("dd", files)]
    return element("dl", entries, class_="downloads", aria_label="Downloads")


def download_records(page_request: PageRequest) -> Response:
    """Stream the requested records as a file in the requested format."""
    suffix = f".{page_request.path_params['ending']}"
    if suffix not in EXPORT_WRITERS:
        format_names = [ending[1:] for ending in EXPORT_WRITERS]
        raise SelectionError(
            f"records have no format {suffix[1:]!r}; {suggest_correction(suffix[1:], format_names, plural='formats')}"
        )
    sync = page_request.sync
    record_chunks = find_records(
        sync,
        page_request.workspace.tracking,
        page_request.build_search(limit=page_request.get_number("limit", maximum=MAX_DOWNLOAD_RECORDS)),
    )
    chunks = stream_export(record_chunks, suffix)
    first_chunk = next(chunks)  # read before the response begins, because an error can still be shown on a page
    name = "-".join(filter(None, (sync.id, page_request.run_id, page_request.status, page_request.change)))
    headers = {"Content-Disposition": f'attachment; filename="{name}{suffix}"'}
    return StreamingResponse(_stream_chunks(first_chunk, chunks), media_type=MEDIA_TYPES[suffix], headers=headers)


def _stream_chunks(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks. An error breaks the connection, so that half a file isn't mistaken for a whole file."""
    try:
        yield first
        yield from pieces
    except OndatraError as error:
        log.warning("a download was cut off: %s", error)  # the response has begun, so no page can show the error
        raise
