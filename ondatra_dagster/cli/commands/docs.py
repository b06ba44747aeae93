"""The command `ondatra docs`, which shows the documentation. The package contains the pages."""

from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable

import click

from ondatra_dagster.cli.output import print_json, print_table
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.spelling_suggestions import suggest_correction

SUFFIX = ".md"


@click.command("docs")
@click.argument("page", metavar="[PAGE]", required=False)
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per page.")
def command(page: str | None, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Show a page of the documentation, or list the pages.

    PAGE is a name from that list: tutorial, models, push-functions.
    """
    pages = documentation_pages()
    if page is None:
        _print_page_list(pages, as_json=as_json)
        return 0
    name = page.removeprefix("docs/").removesuffix(SUFFIX)
    if name not in pages:
        raise SelectionError(f"there is no page {page!r}; {suggest_correction(name, pages, plural='pages')}")
    text = pages[name].read_text(encoding="utf-8")
    if as_json:
        print_json({"page": name, "text": text})
    else:
        click.echo_via_pager(text.removesuffix("\n"))
    return 0


def documentation_pages() -> dict[str, Traversable]:
    """Return the documentation pages by name. In the repository, the pages are links to the files of docs/."""
    return dict(sorted(_pages_of(resources.files("ondatra_dagster") / "docs")))


def _pages_of(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _pages_of(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            yield prefix + entry.name.removesuffix(SUFFIX), entry


def _print_page_list(pages: Mapping[str, Traversable], *, as_json: bool) -> None:
    titles = {name: _page_title(file.read_text(encoding="utf-8")) for name, file in pages.items()}
    if as_json:
        for name, title in titles.items():
            print_json({"page": name, "title": title})
    else:
        print_table(["page", "title"], titles.items())


def _page_title(text: str) -> str:
    return next(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))
