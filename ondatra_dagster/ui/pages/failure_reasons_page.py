"""The page of the reasons why rows weren't delivered, with the number of records for each reason."""

import dataclasses
from collections.abc import Iterator

from ondatra_dagster.app import ui_urls
from ondatra_dagster.records.record_query import RecordStage, explain_status
from ondatra_dagster.records.search_result_chunks_and_reason_counts import ReasonCount, ReasonCounts, count_reasons
from ondatra_dagster.sync.record_search import find_records
from ondatra_dagster.ui.html_builder import Content, Html, element
from ondatra_dagster.ui.page_layout import Breadcrumb, ColumnHeader, Page, heading, stage_tabs, sync_breadcrumbs, table
from ondatra_dagster.ui.page_request import PageRequest
from ondatra_dagster.ui.sync_health_and_run_facts import queue_lost_notice
from ondatra_dagster.ui.value_formatting import badge, format_count, format_number, shorten_message

MAX_SHOWN_REASONS = 100
MAX_LINKED_LENGTH = 4_000  # characters of a reason that fit into an address
STAGE_FILTERS = (RecordStage.REJECTED, RecordStage.INVALID, RecordStage.WAITING, RecordStage.SUCCEEDED)
COLUMNS = (
    ColumnHeader("Reason", class_="reason wide"),
    ColumnHeader("Status"),
    ColumnHeader("Records", is_number=True),
    ColumnHeader("Share", is_number=True),
    ColumnHeader("For example", class_="key"),
    ColumnHeader("Look"),
)


def failure_reasons_page(page_request: PageRequest) -> Page:
    """Show the reasons of one run, or of all runs with records, most frequent reason first."""
    sync, stage = page_request.sync, page_request.stage or RecordStage.REJECTED
    search = dataclasses.replace(page_request.build_search(limit=None), stage=stage, message=None, with_payload=False)
    reason_counts = count_reasons(find_records(sync, page_request.workspace.tracking, search))
    rows = [
        _reason_row(page_request, stage, reason, reason_counts)
        for reason in reason_counts.most_frequent[:MAX_SHOWN_REASONS]
    ]
    reason_table = table(f"Why records of {sync.id} ended so", COLUMNS, rows, empty_text="No record has this status.")
    return Page(
        title=f"{sync.id} · reasons",
        breadcrumbs=sync_breadcrumbs(
            sync, Breadcrumb("Reasons", ui_urls.reasons_url(sync.id, run=page_request.run_id)), run=page_request.run_id
        ),
        body=(
            heading("Reasons", subtitle=_subtitle(page_request, reason_counts)),
            queue_lost_notice(page_request.workspace, sync)
            if stage is RecordStage.WAITING and not page_request.run_id
            else None,
            _stage_tabs(page_request, stage),
            element("div", reason_table, class_="card"),
            _other_reasons_note(reason_counts),
        ),
    )


def _subtitle(page_request: PageRequest, reason_counts: ReasonCounts) -> Content:
    count_text = f"{format_count(reason_counts.records, 'record')}, grouped by reason, of "
    return (
        count_text,
        ("run ", element("code", page_request.run_id)) if page_request.run_id else "all runs whose records are kept",
    )


def _stage_tabs(page_request: PageRequest, stage: RecordStage) -> Html:
    records = ui_urls.RecordFilter(run=page_request.run_id, status=stage)
    return stage_tabs(
        STAGE_FILTERS,
        stage,
        build_link=lambda tab_stage: ui_urls.reasons_url(
            page_request.sync.id, run=page_request.run_id, status=tab_stage
        ),
        other_view=("Single records", ui_urls.records_url(page_request.sync.id, records)),
    )


def _reason_row(
    page_request: PageRequest, stage: RecordStage, reason: ReasonCount, reason_counts: ReasonCounts
) -> Iterator[Content]:
    yield shorten_message(explain_status(reason.status, reason.message)) or element(
        "span", "no reason was given", class_="soft"
    )
    yield badge(reason.status)
    yield format_number(reason.records)
    yield f"{100 * reason.records / reason_counts.records:.1f} %"
    yield element("code", reason.example or "(none)")
    message = reason.message or ""
    link = ui_urls.records_url(
        page_request.sync.id,
        ui_urls.RecordFilter(
            run=page_request.run_id,
            status=reason.status if stage is RecordStage.INVALID else stage,
            reason=message if len(message) <= MAX_LINKED_LENGTH else None,
        ),
    )
    yield element("a", "its records", href=link)


def _other_reasons_note(reason_counts: ReasonCounts) -> Content:
    hidden_records = (
        sum(reason.records for reason in reason_counts.most_frequent[MAX_SHOWN_REASONS:]) + reason_counts.other_records
    )
    if not hidden_records:
        return None
    return element("p", f"{format_count(hidden_records, 'record')} more, with other reasons.", class_="none")
