"""HTML, made of elements. Here is the one place that escapes, and nothing gets onto a page but through it."""

import html
from collections.abc import Iterable
from typing import TypeAlias

VOID = frozenset({"br", "hr", "input", "link", "meta"})  # they have no end tag


class Html:
    """HTML that was made here. Its text isn't a str, so that a str is never taken for it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def encode(self) -> bytes:
        """For the wire; half a character that a fault has left becomes a question mark."""
        return self._text.encode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"Html({len(self._text)} characters)"


Content: TypeAlias = "Html | str | int | Iterable[Content] | None"
Attribute: TypeAlias = str | int | float | bool | None


def element(name: str, /, *content: Content, **attributes: Attribute) -> Html:
    """The element; text is escaped, None is nothing.

    An attribute that is None or False is left out, one that is True stands alone. `class_` is class, and
    `aria_label` is aria-label.
    """
    start = f"<{name}{''.join(_attribute(*each) for each in attributes.items())}>"
    return Html(start if name in VOID else f"{start}{_text(content)}</{name}>")


def document(head: Content, body: Content) -> Html:
    """A whole page."""
    return Html(f'<!doctype html>\n<html lang="en">{_text((head, body))}</html>\n')


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    shown = name.rstrip("_").replace("_", "-")
    return f" {shown}" if value is True else f' {shown}="{html.escape(str(value))}"'


def _text(content: Content) -> str:
    if content is None:
        return ""
    if isinstance(content, Html):
        return content._text  # noqa: SLF001 - of this module
    if isinstance(content, str):
        return html.escape(content)
    if isinstance(content, int):
        return str(content)
    return "".join(map(_text, content))
