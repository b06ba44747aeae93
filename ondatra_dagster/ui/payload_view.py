"""The view of a row's payload: indented JSON, which opens without a script."""

import json
from collections.abc import Iterator, Sequence

from ondatra_dagster.ui.html_builder import Content, Html, element

MAX_PAYLOAD_LENGTH = 40_000  # characters; a download has all of them
MAX_PREVIEW_LENGTH = 160


def render_payload(text: str, label: str | None = None) -> Html:
    """Render a payload as one line with a label, which opens to indented JSON."""
    preview = text if len(text) <= MAX_PREVIEW_LENGTH else f"{text[:MAX_PREVIEW_LENGTH]}…"
    name = element("span", label, class_="label") if label else None
    summary = element("summary", name, element("code", preview))
    return element("details", summary, element("pre", _format_payload(text)), class_="payload")


def _format_payload(text: str) -> Content:
    if len(text) > MAX_PAYLOAD_LENGTH:
        return f"{text[:MAX_PAYLOAD_LENGTH]}… (cut: {len(text):,} characters; a download has all of them)"
    try:
        # numbers stay as they are written: 1.0 is no 1, and some have more digits than a float
        value = json.loads(text, parse_float=_NumberText, parse_int=_NumberText)
        return list(_render_json(value, ""))
    except (ValueError, RecursionError):
        return text


class _NumberText(str):
    """A number as it was written."""

    __slots__ = ()


def _render_json(value: object, indent: str) -> Iterator[Content]:
    """The value over several lines, names and texts told apart."""
    if isinstance(value, dict):
        names = [(element("span", _quoted(name), class_="name"), ": ", each) for name, each in value.items()]
        yield from _render_items("{", names, "}", indent)
    elif isinstance(value, list):
        yield from _render_items("[", [("", "", each) for each in value], "]", indent)
    elif isinstance(value, _NumberText):
        yield element("span", str(value), class_="number")
    elif isinstance(value, str):
        yield element("span", _quoted(value), class_="text")
    else:
        yield element("span", json.dumps(value), class_="word")


def _render_items(start: str, parts: Sequence[tuple[Content, str, object]], end: str, indent: str) -> Iterator[Content]:
    if not parts:
        yield start + end
        return
    yield start
    for place, (name, colon, value) in enumerate(parts):
        yield ("," if place else "") + f"\n{indent}  "
        yield name
        yield colon
        yield from _render_json(value, f"{indent}  ")
    yield f"\n{indent}{end}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
