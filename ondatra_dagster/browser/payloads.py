"""A row's payload as people read it: JSON over several lines, which opens without a script."""

import json
from collections.abc import Iterator, Sequence

from ondatra_dagster.browser.elements import Content, Html, element

LONGEST_PAYLOAD = 40_000  # characters; a download has all of them
LONGEST_PREVIEW = 160


def payload(text: str, label: str | None = None) -> Html:
    """A payload that opens: on one line, with a word on what it is, and as readable JSON below."""
    preview = text if len(text) <= LONGEST_PREVIEW else f"{text[:LONGEST_PREVIEW]}…"
    name = element("span", label, class_="label") if label else None
    summary = element("summary", name, element("code", preview))
    return element("details", summary, element("pre", _shown(text)), class_="payload")


def _shown(text: str) -> Content:
    if len(text) > LONGEST_PAYLOAD:
        return f"{text[:LONGEST_PAYLOAD]}… (cut: {len(text):,} characters; a download has all of them)"
    try:
        # numbers stay as they are written: 1.0 is no 1, and some have more digits than a float
        value = json.loads(text, parse_float=_Number, parse_int=_Number)
        return list(_json(value, ""))
    except (ValueError, RecursionError):
        return text


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _json(value: object, indent: str) -> Iterator[Content]:
    """The value over several lines, names and texts told apart."""
    if isinstance(value, dict):
        names = [(element("span", _quoted(name), class_="name"), ": ", each) for name, each in value.items()]
        yield from _several("{", names, "}", indent)
    elif isinstance(value, list):
        yield from _several("[", [("", "", each) for each in value], "]", indent)
    elif isinstance(value, _Number):
        yield element("span", str(value), class_="number")
    elif isinstance(value, str):
        yield element("span", _quoted(value), class_="text")
    else:
        yield element("span", json.dumps(value), class_="word")


def _several(
    start: str, parts: Sequence[tuple[Content, str, object]], end: str, indent: str
) -> Iterator[Content]:
    if not parts:
        yield start + end
        return
    yield start
    for place, (name, colon, value) in enumerate(parts):
        yield ("," if place else "") + f"\n{indent}  "
        yield name
        yield colon
        yield from _json(value, f"{indent}  ")
    yield f"\n{indent}{end}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
