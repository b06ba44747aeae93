"""The pages that say why there is nothing to see."""

from ondatra_dagster.browser import links
from ondatra_dagster.browser.elements import Html, element
from ondatra_dagster.browser.shell import Page, heading, whole_page

TITLES = {
    400: "Not understood",
    403: "Not let in",
    404: "Not here",
    405: "Not done here",
    500: "Something is wrong",
}


def refusal_page(status: int, sentence: str) -> Page:
    """A page for who is in, with the way back."""
    paragraphs = [element("p", line) for line in _begun_large(sentence).splitlines()]
    back = element("p", element("a", "To all syncs", href=links.HOME))
    body = (heading(TITLES[status]), element("div", paragraphs, back, class_="card refusal"))
    return Page(title=TITLES[status], body=body, status=status)


def door_page(status: int, sentence: str) -> Html:
    """A page for who isn't: it knows nothing of the project.

    A browser that was let in before keeps its cookie back when another site's link leads here; it shows the
    cookie when the same address is asked for from this page.
    """
    again = element("p", "Let in before? ", element("a", "Open this page again", href=""))
    body = (
        heading(TITLES[status]),
        element("div", element("p", f"{_begun_large(sentence)}."), again, class_="card refusal"),
    )
    return whole_page(Page(title=TITLES[status], body=body, status=status), project="records")


def _begun_large(sentence: str) -> str:
    """As sentences on a page begin; one that begins with a name, as sync.crm, does so as it is spelled."""
    first = sentence.split(" ", 1)[0]
    return sentence[:1].upper() + sentence[1:] if first.isalpha() else sentence
