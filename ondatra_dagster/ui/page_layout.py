"""The layout of every page: its head, breadcrumbs, tables, tabs and lists of facts."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ondatra_dagster.app import ui_urls
from ondatra_dagster.records.record_query import RecordStage
from ondatra_dagster.sync.sync_definition import Sync
from ondatra_dagster.ui.html_builder import Content, Html, document, element
from ondatra_dagster.ui.value_formatting import STAGE_NAMES

STATUS_OK = 200
BUSY_REFRESH_SECONDS = 2  # a page refreshes after this time while a run is in progress
IDLE_REFRESH_SECONDS = 15  # a page refreshes after this time while no run is in progress
NO_SCRIPT_EXTRA_SECONDS = 3  # a browser without scripts reloads the whole page, so it waits longer


class Breadcrumb(NamedTuple):
    """A breadcrumb: a title and a link."""

    title: str
    link: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page's content and its refresh interval; with None, the page doesn't refresh."""

    title: str
    body: Content
    breadcrumbs: Sequence[Breadcrumb] = ()
    refresh_seconds: int | None = None
    status: int = STATUS_OK


def render_page(page: Page, *, project: str, notice: str = "") -> Html:
    """Render the page with its layout; `notice` is a message for the user at the top of the page."""
    reload_seconds = (page.refresh_seconds or 0) + NO_SCRIPT_EXTRA_SECONDS
    refresh = element("meta", http_equiv="refresh", content=reload_seconds)
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
    breadcrumbs = [Breadcrumb("Syncs", ui_urls.HOME_URL), *page.breadcrumbs]
    current_breadcrumb = breadcrumbs[-1] if page.status == STATUS_OK else None
    steps = [
        element(
            "li",
            element(
                "a",
                breadcrumb.title,
                href=breadcrumb.link,
                aria_current="page" if breadcrumb is current_breadcrumb else None,
            ),
        )
        for breadcrumb in breadcrumbs
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


def heading(title: Content, *side_content: Content, subtitle: Content = None) -> Html:
    """Return the heading of a page: its title, the content next to the title, and a line below it."""
    return element(
        "div",
        element("div", element("h1", title), side_content, class_="title"),
        element("p", subtitle, class_="under") if subtitle else None,
        class_="heading",
    )


def section(title: str, *content: Content, side_content: Content = None, id_: str | None = None) -> Html:
    name = id_ or "".join(character if character.isalnum() else "-" for character in title.lower())
    header = element("div", element("h2", title, id=name), side_content, class_="section-head")
    return element("section", header, content, aria_labelledby=name)


def fact_list(facts: Iterable[tuple[str, Content]]) -> Html:
    """Return a list of facts, each with a name and a value."""
    pairs = [element("div", element("dt", name), element("dd", value)) for name, value in facts]
    return element("dl", pairs, class_="facts")


class ColumnHeader(NamedTuple):
    title: str
    is_number: bool = False
    class_: str | None = None


def table(
    caption: str,
    columns: Sequence[ColumnHeader],
    rows: Iterable[Iterable[Content]],
    *,
    empty_text: str,
    stacks: bool = True,
) -> Html:
    """Return a table. The first cell of each row is the row's header.

    In a narrow window, the rows are stacked if `stacks` is true; otherwise the table scrolls.
    """
    body = [_table_row(columns, row) for row in rows]
    if not body:
        return element("p", empty_text, class_="none")
    header_cells = [
        element("th", column.title, scope="col", role="columnheader", class_=_column_class(column))
        for column in columns
    ]
    # the roles are for screen readers, which don't see a table with block layout as a table otherwise
    table_element = element(
        "table",
        element("caption", caption, class_="unseen"),
        element("thead", element("tr", header_cells, role="row"), role="rowgroup"),
        element("tbody", body, role="rowgroup"),
        role="table",
        class_="stacks" if stacks else None,
    )
    return element("div", table_element, class_="scrolls", tabindex="0", role="region", aria_label=caption)


def _table_row(columns: Sequence[ColumnHeader], row: Iterable[Content]) -> Html:
    first_cell, *other_cells = zip(columns, row, strict=True)
    row_header = element("th", first_cell[1], scope="row", role="rowheader", class_=_column_class(first_cell[0]))
    cells = [
        element("td", cell, role="cell", class_=_column_class(column), data_label=column.title)
        for column, cell in other_cells
    ]
    return element("tr", row_header, cells, role="row")


def _column_class(column: ColumnHeader) -> str | None:
    return " ".join(filter(None, ("number" if column.is_number else "", column.class_ or ""))) or None


def pager(*, page: int, build_link: Callable[[int], str], has_more: bool, newer: str, older: str) -> Content:
    """Return the links to the previous and the next page; None if there is only one page."""
    if page == 1 and not has_more:
        return None
    previous_link = element("a", f"← {newer}", href=build_link(page - 1), rel="prev") if page > 1 else element("span")
    next_link = element("a", f"{older} →", href=build_link(page + 1), rel="next") if has_more else element("span")
    return element(
        "nav", previous_link, element("span", f"page {page:,}"), next_link, class_="pager", aria_label="Pages"
    )


def stage_tabs(
    stages: Iterable[RecordStage | None],
    current_stage: RecordStage | None,
    *,
    build_link: Callable[[RecordStage | None], str],
    other_view: tuple[str, str],
) -> Html:
    """Return the tabs that choose a stage of records (None: all), and the link to another view of these records."""
    tabs = [
        element(
            "a", STAGE_NAMES[stage], href=build_link(stage), aria_current="true" if stage is current_stage else None
        )
        for stage in stages
    ]
    name, link = other_view
    return element("nav", tabs, element("a", name, href=link, class_="aside"), class_="tabs", aria_label="Status")


def sync_breadcrumbs(sync: Sync, *page_breadcrumbs: Breadcrumb, run: str | None = None) -> list[Breadcrumb]:
    """Return the breadcrumbs of a page that shows the sync or, with `run`, one of its runs."""
    run_breadcrumbs = [Breadcrumb(run, ui_urls.run_path(sync.id, run))] if run else []
    return [Breadcrumb(sync.id, ui_urls.sync_path(sync.id)), *run_breadcrumbs, *page_breadcrumbs]


def sync_links(sync: Sync, *, run: str | None = None) -> Html:
    """Return the links to the sync's records, failure reasons and queue; `run` limits the first two to one run."""
    links = [
        ("View records", ui_urls.records_url(sync.id, ui_urls.RecordFilter(run=run)), "button main"),
        ("Reasons", ui_urls.reasons_url(sync.id, run=run), "button"),
        ("Queue and dead letters", ui_urls.queue_url(sync.id), "button"),
    ]
    return element(
        "nav", [element("a", name, href=link, class_=css_class) for name, link, css_class in links], class_="ways",
        aria_label="Pages of this sync",
    )  # fmt: skip
