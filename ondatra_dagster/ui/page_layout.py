"""The layout of every page: its head, breadcrumbs, tables, tabs and facts."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ondatra_dagster.app import ui_urls
from ondatra_dagster.records.record_query import RecordStage
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.ui.html_builder import Content, Html, document, element
from ondatra_dagster.ui.value_formatting import STAGE_NAMES

STATUS_OK = 200
BUSY_REFRESH_SECONDS = 2  # after this time a page refreshes while a run is in progress
IDLE_REFRESH_SECONDS = 15  # and while none is
NO_SCRIPT_EXTRA_SECONDS = 3  # without a script the whole page reloads, which is less pleasant


class Breadcrumb(NamedTuple):
    """A breadcrumb: a title and a link."""

    title: str
    link: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page's content and refresh interval; None: the page doesn't refresh."""

    title: str
    body: Content
    breadcrumbs: Sequence[Breadcrumb] = ()
    refresh_seconds: int | None = None
    status: int = STATUS_OK


def render_page(page: Page, *, project: str, notice: str = "") -> Html:
    """Render the page with its layout; `notice` is a message for the user above the page."""
    again = (page.refresh_seconds or 0) + NO_SCRIPT_EXTRA_SECONDS
    refresh = element("meta", http_equiv="refresh", content=again)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{page.title} · {project}"),
        element("link", rel="icon", href="data:,"),
        element("link", rel="stylesheet", href=ui_urls.STYLE_URL),
        element("script", src=ui_urls.SCRIPT_URL, defer=True),
        element("noscript", refresh) if page.refresh_seconds else None,
    )
    main = element(
        "main",
        element("p", notice, class_="notice", role="status") if notice else None,
        page.body,
        id="main",
        tabindex="-1",
        data_live=page.refresh_seconds,
    )
    return document(head, element("body", _page_header(page, project), main))


def _page_header(page: Page, project: str) -> Content:
    way = [Breadcrumb("Syncs", ui_urls.HOME_URL), *page.breadcrumbs]
    here = way[-1] if page.status == STATUS_OK else None
    steps = [
        element("li", element("a", crumb.title, href=crumb.link, aria_current="page" if crumb is here else None))
        for crumb in way
    ]
    return (
        element("a", "Skip to the content", href="#main", class_="skip"),
        element(
            "header",
            element(
                "a",
                element("b", "ondatra"),
                element("span", project, class_="project"),
                href=ui_urls.HOME_URL,
                class_="brand",
            ),
            element("nav", element("ol", steps), aria_label="Where you are"),
        ),
    )


def heading(title: Content, *beside: Content, under: Content = None) -> Html:
    """Return the head of a page: its title, the content next to it, and a line under it."""
    return element(
        "div",
        element("div", element("h1", title), beside, class_="title"),
        element("p", under, class_="under") if under else None,
        class_="heading",
    )


def section(title: str, *content: Content, beside: Content = None, id_: str | None = None) -> Html:
    name = id_ or "".join(letter if letter.isalnum() else "-" for letter in title.lower())
    head = element("div", element("h2", title, id=name), beside, class_="section-head")
    return element("section", head, content, aria_labelledby=name)


def fact_list(told: Iterable[tuple[str, Content]]) -> Html:
    """Return a list of names with their values."""
    pairs = [element("div", element("dt", name), element("dd", value)) for name, value in told]
    return element("dl", pairs, class_="facts")


class ColumnHeader(NamedTuple):
    title: str
    is_number: bool = False
    class_: str | None = None


def table(
    caption: str, columns: Sequence[ColumnHeader], rows: Iterable[Iterable[Content]], *, none: str, stacks: bool = True
) -> Html:
    """Return a table. The first cell of a row is its head. In a narrow window its rows stack, or it scrolls."""
    body = [_table_row(columns, row) for row in rows]
    if not body:
        return element("p", none, class_="none")
    head = [
        element("th", column.title, scope="col", role="columnheader", class_=_column_class(column))
        for column in columns
    ]
    # a screen reader needs the roles: without them, a table with block layout isn't a table for it
    made = element(
        "table",
        element("caption", caption, class_="unseen"),
        element("thead", element("tr", head, role="row"), role="rowgroup"),
        element("tbody", body, role="rowgroup"),
        role="table",
        class_="stacks" if stacks else None,
    )
    return element("div", made, class_="scrolls", tabindex="0", role="region", aria_label=caption)


def _table_row(columns: Sequence[ColumnHeader], row: Iterable[Content]) -> Html:
    first, *others = zip(columns, row, strict=True)
    head = element("th", first[1], scope="row", role="rowheader", class_=_column_class(first[0]))
    cells = [
        element("td", cell, role="cell", class_=_column_class(column), data_label=column.title)
        for column, cell in others
    ]
    return element("tr", head, cells, role="row")


def _column_class(column: ColumnHeader) -> str | None:
    return " ".join(filter(None, ("number" if column.is_number else "", column.class_ or ""))) or None


def pager(*, page: int, link_of: Callable[[int], str], has_more: bool, newer: str, older: str) -> Content:
    """Return the links to the previous and the next page."""
    if page == 1 and not has_more:
        return None
    back = element("a", f"← {newer}", href=link_of(page - 1), rel="prev") if page > 1 else element("span")
    on = element("a", f"{older} →", href=link_of(page + 1), rel="next") if has_more else element("span")
    return element("nav", back, element("span", f"page {page:,}"), on, class_="pager", aria_label="Pages")


def stage_tabs(
    stages: Iterable[RecordStage | None],
    shown: RecordStage | None,
    *,
    link_of: Callable[[RecordStage | None], str],
    other_view: tuple[str, str],
) -> Html:
    """Return the tabs that choose a stage of records (None: all), and the link to another view of the same."""
    tabs = [
        element("a", STAGE_NAMES[stage], href=link_of(stage), aria_current="true" if stage is shown else None)
        for stage in stages
    ]
    name, link = other_view
    return element("nav", tabs, element("a", name, href=link, class_="aside"), class_="tabs", aria_label="Status")


def sync_breadcrumbs(sync: Sync, *here: Breadcrumb, run: str | None = None) -> list[Breadcrumb]:
    """Return the breadcrumbs of a page of the sync, or of one of its runs."""
    of_run = [Breadcrumb(run, ui_urls.run_path(sync.id, run))] if run else []
    return [Breadcrumb(sync.id, ui_urls.sync_path(sync.id)), *of_run, *here]


def sync_links(sync: Sync, *, run: str | None = None) -> Html:
    """Return the links to the sync's records, reasons and queue, for all runs or for one."""
    told = [
        ("View records", ui_urls.records_url(sync.id, ui_urls.RecordFilter(run=run)), "button main"),
        ("Reasons", ui_urls.reasons_url(sync.id, run=run), "button"),
        ("Queue and dead letters", ui_urls.queue_url(sync.id), "button"),
    ]
    return element(
        "nav", [element("a", name, href=link, class_=look) for name, link, look in told], class_="ways",
        aria_label="Of this sync",
    )  # fmt: skip
