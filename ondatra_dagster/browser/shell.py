"""What is around every page: its head, the way back to the other pages, and how tables and facts look."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ondatra_dagster.browser import links
from ondatra_dagster.browser.elements import Content, Html, document, element

OK = 200
BUSY_SECONDS = 2  # after which a page looks again while something goes on
CALM_SECONDS = 15  # and while nothing does
MORE_SECONDS = 3  # without a script the whole page comes anew, which is less pleasant


class Crumb(NamedTuple):
    """A step of the way to a page."""

    title: str
    link: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one page shows, and after how long it looks again by itself; None: it doesn't change."""

    title: str
    body: Content
    crumbs: Sequence[Crumb] = ()
    live_seconds: int | None = None
    status: int = OK


def whole_page(page: Page, *, project: str, notice: str = "") -> Html:
    """The page with all that is around it; `notice` is what its reader should know beside."""
    again = (page.live_seconds or 0) + MORE_SECONDS
    refresh = element("meta", http_equiv="refresh", content=again)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{page.title} · {project}"),
        element("link", rel="icon", href="data:,"),
        element("link", rel="stylesheet", href=links.STYLE),
        element("script", src=links.SCRIPT, defer=True),
        element("noscript", refresh) if page.live_seconds else None,
    )
    main = element(
        "main",
        element("p", notice, class_="notice", role="status") if notice else None,
        page.body,
        id="main",
        tabindex="-1",
        data_live=page.live_seconds,
    )
    return document(head, element("body", _top(page, project), main))


def _top(page: Page, project: str) -> Content:
    way = [Crumb("Syncs", links.HOME), *page.crumbs]
    here = way[-1] if page.status == OK else None
    steps = [
        element(
            "li",
            element("a", crumb.title, href=crumb.link, aria_current="page" if crumb is here else None),
        )
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
                href=links.HOME,
                class_="brand",
            ),
            element("nav", element("ol", steps), aria_label="Where you are"),
        ),
    )


def heading(title: Content, *beside: Content, under: Content = None) -> Html:
    """The head of a page: its title with what stands beside, and a line under it."""
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


def facts(told: Iterable[tuple[str, Content]]) -> Html:
    """Names with their values."""
    pairs = [element("div", element("dt", name), element("dd", value)) for name, value in told]
    return element("dl", pairs, class_="facts")


class Column(NamedTuple):
    title: str
    is_number: bool = False
    class_: str | None = None


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Iterable[Content]],
    *,
    none: str,
    stacks: bool = True,
) -> Html:
    """A table, the first cell of each row being its head; in a narrow window rows stack, or it scrolls."""
    body = [_row(columns, row) for row in rows]
    if not body:
        return element("p", none, class_="none")
    head = [
        element("th", column.title, scope="col", role="columnheader", class_=_class(column))
        for column in columns
    ]
    # a table that is laid out as blocks would be none to a screen reader any more, but for its roles
    made = element(
        "table",
        element("caption", caption, class_="unseen"),
        element("thead", element("tr", head, role="row"), role="rowgroup"),
        element("tbody", body, role="rowgroup"),
        role="table",
        class_="stacks" if stacks else None,
    )
    return element("div", made, class_="scrolls", tabindex="0", role="region", aria_label=caption)


def _row(columns: Sequence[Column], row: Iterable[Content]) -> Html:
    first, *others = zip(columns, row, strict=True)
    head = element("th", first[1], scope="row", role="rowheader", class_=_class(first[0]))
    cells = [
        element("td", cell, role="cell", class_=_class(column), data_label=column.title)
        for column, cell in others
    ]
    return element("tr", head, cells, role="row")


def _class(column: Column) -> str | None:
    return " ".join(filter(None, ("number" if column.is_number else "", column.class_ or ""))) or None


def pager(*, page: int, link_of: Callable[[int], str], has_more: bool, newer: str, older: str) -> Content:
    """The ways to the pages beside."""
    if page == 1 and not has_more:
        return None
    back = element("a", f"← {newer}", href=link_of(page - 1), rel="prev") if page > 1 else element("span")
    on = element("a", f"{older} →", href=link_of(page + 1), rel="next") if has_more else element("span")
    return element("nav", back, element("span", f"page {page:,}"), on, class_="pager", aria_label="Pages")
