"""A builder of HTML elements. It escapes all text, and all content of a page is built with it."""

import html
from collections.abc import Iterable
from typing import TypeAlias

VOID_ELEMENTS = frozenset({"br", "hr", "input", "link", "meta"})  # they have no end tag


class Html:
    """A fragment of HTML whose text is escaped. It isn't a str, so that a str is never taken for HTML."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def encode(self) -> bytes:
        """Encode as UTF-8; a lone surrogate becomes a question mark."""
        return self._text.encode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"Html({len(self._text)} characters)"


Content: TypeAlias = "Html | str | int | Iterable[Content] | None"
Attribute: TypeAlias = str | int | float | bool | None


def element(name: str, /, *content: Content, **attributes: Attribute) -> Html:
    """Return the element. Text is escaped, and None adds nothing.

    An attribute that is None or False is left out; one that is True has no value. `class_` is class, and `aria_label`
    is aria-label.
    """
    start_tag = f"<{name}{''.join(_render_attribute(*attribute) for attribute in attributes.items())}>"
    return Html(start_tag if name in VOID_ELEMENTS else f"{start_tag}{_render(content)}</{name}>")


def document(head: Content, body: Content) -> Html:
    """Return a whole HTML document."""
    return Html(f'<!doctype html>\n<html lang="en">{_render((head, body))}</html>\n')


def _render_attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    attribute_name = name.rstrip("_").replace("_", "-")
    return f" {attribute_name}" if value is True else f' {attribute_name}="{html.escape(str(value))}"'


def _render(content: Content) -> str:
    if content is None:
        return ""
    if isinstance(content, Html):
        return content._text  # noqa: SLF001 - of this module
    if isinstance(content, str):
        return html.escape(content)
    if isinstance(content, int):
        return str(content)
    return "".join(map(_render, content))
