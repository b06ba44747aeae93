"""The page of a sync's queue and dead letters: the pending rows, and the rows that a replay would send."""

from collections.abc import Iterator
from datetime import datetime

import orjson

from ondatra_dagster.app import ui_urls
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import DeadLetter
from ondatra_dagster.delivery.queue.queue_status import QueueStatus
from ondatra_dagster.records.record_query import RecordStage
from ondatra_dagster.sync.dead_letter_listing import describe_refusal, format_unit_name, list_dead_letters
from ondatra_dagster.sync.send_guards import find_hold_reason
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.ui.html_builder import Content, Html, element
from ondatra_dagster.ui.page_layout import (
    Breadcrumb,
    ColumnHeader,
    Page,
    fact_list,
    heading,
    pager,
    section,
    sync_breadcrumbs,
    table,
)
from ondatra_dagster.ui.page_request import PageRequest
from ondatra_dagster.ui.sync_health_and_run_facts import queue_lost_notice
from ondatra_dagster.ui.value_formatting import (
    format_age,
    format_count,
    format_due_time,
    format_number,
    format_time,
    render_payload,
    shorten_message,
)

PAGE_SIZE = 25
MAX_SHOWN_ROWS = 10  # rows shown of one dead letter, which may contain a whole table
COLUMNS = (
    ColumnHeader("Key", class_="key"),
    ColumnHeader("Died"),
    ColumnHeader("Attempts", is_number=True),
    ColumnHeader("Error", class_="reason"),
    ColumnHeader("A replay would send", class_="wide"),
)


def queue_page(page_request: PageRequest) -> Page:
    """Show the queue and the dead letters of the sync that the path names."""
    sync = page_request.sync
    lost_notice = queue_lost_notice(page_request.workspace, sync)
    queue = page_request.workspace.queue(sync.id) if lost_notice is None else None
    dead_letters = list(
        list_dead_letters(
            sync, limit=PAGE_SIZE + 1, offset=PAGE_SIZE * (page_request.page - 1), most_rows=MAX_SHOWN_ROWS
        )
    )
    hold_reason = find_hold_reason(sync, page_request.workspace.settings)
    return Page(
        title=f"{sync.id} · queue",
        breadcrumbs=sync_breadcrumbs(sync, Breadcrumb("Queue", ui_urls.queue_url(sync.id))),
        body=(
            heading("Queue and dead letters", subtitle=sync.id),
            element("p", f"Held: {hold_reason}.", class_="notice") if hold_reason else None,
            lost_notice or _queue_facts(sync, queue, page_request.now),
            section(
                "Dead letters",
                _replay_hint(sync) if dead_letters else None,
                element(
                    "div",
                    table(
                        f"Dead letters of {sync.id}, the oldest first",
                        COLUMNS,
                        (_dead_letter_row(dead_letter, sync) for dead_letter in dead_letters[:PAGE_SIZE]),
                        empty_text=_empty_text(page=page_request.page, is_lost=lost_notice is not None),
                    ),
                    class_="card",
                ),
                pager(
                    page=page_request.page,
                    build_link=lambda page: ui_urls.queue_url(sync.id, page=page),
                    has_more=len(dead_letters) > PAGE_SIZE,
                    newer="older ones",
                    older="later ones",
                ),
                side_content=element("span", format_number(queue.dead_units), class_="count") if queue else None,
            ),
        ),
    )


def _empty_text(*, page: int, is_lost: bool) -> str:
    if is_lost:
        return "The dead letters are unknown."
    return "There are no more dead letters." if page > 1 else "There are no dead letters."


def _queue_facts(sync: Sync, queue: QueueStatus | None, now: datetime) -> Html:
    if queue is None:
        return element("p", "There is no queue yet: the sync has never run.", class_="none")
    return fact_list(
        [
            ("Pending", _stage_count_link(sync, RecordStage.PENDING, queue.pending_units)),
            ("Waiting", _stage_count_link(sync, RecordStage.WAITING, queue.waiting_units)),
            ("Due now", format_number(queue.due_units)),
            ("In open jobs", format_number(queue.units_in_jobs)),
            ("Oldest has waited", format_age(queue.oldest_since, now)),
            ("Next retry", format_due_time(queue.next_due_at, now)),
            ("Enqueued up to version", format_number(queue.watermark) if queue.watermark >= 0 else "none yet"),
        ]
    )


def _stage_count_link(sync: Sync, stage: RecordStage, count: int) -> Content:
    records = ui_urls.records_url(sync.id, ui_urls.RecordFilter(status=stage))
    return element("a", format_number(count), href=records) if count else format_number(count)


def _replay_hint(sync: Sync) -> Html:
    return element(
        "p",
        "Correct the rows at their source, or send them unchanged: ",
        element("code", f"ondatra replay {sync.id}"),
        " sends what is shown here, with fresh attempts. This page changes nothing.",
        class_="under",
    )


def _dead_letter_row(letter: DeadLetter, sync: Sync) -> Iterator[Content]:
    yield element("code", format_unit_name(letter, sync) or "(none)")
    yield format_time(letter.died_at)
    yield describe_refusal(letter) or format_number(letter.attempts)
    yield shorten_message(letter.error)
    yield _replay_payloads(letter)


def _replay_payloads(letter: DeadLetter) -> Content:
    if not letter.row_count:
        return "its content, which has no rows" if letter.weight else "nothing: it is up to date"
    payloads = [render_payload(orjson.dumps(row).decode(), change.value) for change, row in letter.rows_to_send]
    hidden_rows = letter.row_count - len(letter.rows_to_send)
    more_note = f"… and {format_count(hidden_rows, 'row')} more, {format_number(letter.row_count)} in all"
    return (payloads, element("small", more_note) if hidden_rows else None)
