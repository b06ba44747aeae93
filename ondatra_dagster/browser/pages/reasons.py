"""Why rows didn't arrive: rejects, or what was set aside, grouped by what was said of them."""

import dataclasses
from collections.abc import Iterator

from ondatra_dagster.browser import links
from ondatra_dagster.browser.asked import Asked
from ondatra_dagster.browser.elements import Content, Html, element
from ondatra_dagster.browser.shell import Column, Crumb, Page, heading, table
from ondatra_dagster.browser.told import STAGE_NAMES, badge, count_of, message, number
from ondatra_dagster.browser.ways import crumbs, lost_notice
from ondatra_dagster.sync.found_records import find_records
from ondatra_dagster.tracking.found import Stage, why
from ondatra_dagster.tracking.reasons import Reason, Reasons, reasons_of

SHOWN = 100
LONGEST_LINKED = 4_000  # characters of a reason that an address can take
FILTERS = (Stage.REJECTED, Stage.INVALID, Stage.WAITING, Stage.SUCCEEDED)
COLUMNS = (
    Column("Reason", class_="reason wide"),
    Column("Status"),
    Column("Records", is_number=True),
    Column("Share", is_number=True),
    Column("For example", class_="key"),
    Column("Look"),
)


def reasons_page(asked: Asked) -> Page:
    """Of a run, or of all runs whose records are kept; the most frequent reason first."""
    sync, stage = asked.sync, asked.stage or Stage.REJECTED
    search = dataclasses.replace(asked.search(limit=None), stage=stage, message=None, with_payload=False)
    found = reasons_of(find_records(sync, asked.workspace.tracking, search))
    rows = [_row(asked, stage, reason, found) for reason in found.listed[:SHOWN]]
    shown = table(f"Why records of {sync.id} ended so", COLUMNS, rows, none="No record ended so.")
    return Page(
        title=f"{sync.id} · reasons",
        crumbs=crumbs(sync, Crumb("Reasons", links.reasons(sync.id, run=asked.run)), run=asked.run),
        body=(
            heading("Reasons", under=_of(asked, found)),
            lost_notice(asked.workspace, sync) if stage is Stage.WAITING and not asked.run else None,
            _filters(asked, stage),
            element("div", shown, class_="card"),
            _left_out(found),
        ),
    )


def _of(asked: Asked, found: Reasons) -> Content:
    counted = f"{count_of(found.records, 'record')}, grouped by what was said of them; of "
    return (counted, ("run ", element("code", asked.run)) if asked.run else "all runs whose records are kept")


def _filters(asked: Asked, stage: Stage) -> Html:
    ways = [
        element(
            "a",
            STAGE_NAMES[each],
            href=links.reasons(asked.sync.id, run=asked.run, status=each),
            aria_current="true" if each is stage else None,
        )
        for each in FILTERS
    ]
    records = links.records(asked.sync.id, run=asked.run, status=stage)
    return element(
        "nav",
        ways,
        element("a", "One by one", href=records, class_="aside"),
        class_="tabs",
        aria_label="Status",
    )


def _row(asked: Asked, stage: Stage, reason: Reason, found: Reasons) -> Iterator[Content]:
    yield message(why(reason.status, reason.message)) or element("span", "no reason was given", class_="soft")
    yield badge(reason.status)
    yield number(reason.records)
    yield f"{100 * reason.records / found.records:.1f} %"
    yield element("code", reason.example or "(none)")
    said = reason.message or ""
    link = links.records(
        asked.sync.id,
        run=asked.run,
        status=reason.status if stage is Stage.INVALID else stage,
        reason=said if len(said) <= LONGEST_LINKED else None,
    )
    yield element("a", "its records", href=link)


def _left_out(found: Reasons) -> Content:
    left_out = sum(reason.records for reason in found.listed[SHOWN:]) + found.others
    if not left_out:
        return None
    return element("p", f"{count_of(left_out, 'record')} more, with still other reasons.", class_="none")
