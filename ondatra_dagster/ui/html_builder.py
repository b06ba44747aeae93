"""A builder of HTML elements, with which all content of a page is built. It escapes all text."""

import html
from collections.abc import Iterable
from typing import TypeAlias

VOID_ELEMENTS = frozenset({"br", "hr", "input", "link", "meta"})  # elements without an end tag


class Html:
    """A fragment of HTML whose text is escaped. It isn't a str, so that no str can be mistaken for HTML."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def encode(self) -> bytes:
        """Encode the fragment as UTF-8; a lone surrogate becomes a question mark."""
        return self._text.encode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"Html({len(self._text)} characters)"


Content: TypeAlias = "Html | str | int | Iterable[Content] | None"
Attribute: TypeAlias = str | int | float | bool | None


def element(name: str, /, *content: Content, **attributes: Attribute) -> Html:
    """Return an HTML element. Text in its content is escaped, and None adds nothing.

    An attribute that is None or False is left out; an attribute that is True has no value. The parameter
    `class_` sets the attribute class, and `aria_label` sets aria-label.
    """
    start_tag = f"<{name}{''.join(_render_attribute(*attribute) for attribute in attributes.items())}>"
    return Html(start_tag if name in VOID_ELEMENTS else f"{start_tag}{_render(content)}</{name}>")


def document(head: Content, body: Content) -> Html:
    """Return a whole HTML document with this head and body."""
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
