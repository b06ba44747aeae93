"""Small things that every page tells alike: numbers, times, states, texts of others, a JSON payload."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from ondatra_dagster.browser.elements import Content, Html, element
from ondatra_dagster.wording import duration, moment

LONGEST_MESSAGE = 2_000  # characters of what an API said; the whole is in the download
LONGEST_PAYLOAD = 40_000
LONGEST_PREVIEW = 160
NOTHING = "-"

# a state is told by its word and by a sign, so that colour is never all that tells
TONES: Mapping[str, tuple[str, str]] = {
    "ok": ("good", "✓"),
    "succeeded": ("good", "✓"),
    "running": ("busy", "▸"),
    "pending": ("calm", "•"),
    "waiting": ("warn", "◔"),
    "rejects": ("warn", "!"),
    "paused": ("calm", "‖"),
    "rejected": ("bad", "✕"),
    "failing": ("bad", "✕"),
    "failed": ("bad", "✕"),
    "crashed": ("bad", "✕"),
    "NULL": ("warn", "!"),
    "DUPLICATE": ("warn", "!"),
    "dry": ("calm", "◌"),
    "never ran": ("calm", "◌"),
}


def badge(state: str) -> Html:
    """A state in a word, a sign and a colour."""
    tone, sign = TONES.get(state, ("calm", "•"))
    return element("span", element("span", sign, aria_hidden="true"), " ", state, class_=f"badge {tone}")


def number(value: int | None) -> str:
    """1,234,567."""
    return NOTHING if value is None else f"{value:,}"


def time_of(value: datetime | None) -> Content:
    """A time of this place; the whole of it, in UTC, where one points at it."""
    if value is None:
        return NOTHING
    whole = value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return element("time", moment(value), datetime=whole, title=whole)


def took(seconds: float) -> str:
    """How long something took, as exactly as one wants to know."""
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def ago(value: datetime | None, now: datetime) -> Content:
    """How long ago, with the time itself where one points at it."""
    if value is None:
        return NOTHING
    seconds = max(0.0, (now - value).total_seconds())
    return element("time", f"{duration(seconds)} ago", datetime=value.isoformat(), title=moment(value))


def message(text: str | None) -> Content:
    """What an API or a fault said, cut where it is endless."""
    if not text:
        return None
    return (
        text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}… (cut: {len(text):,} characters)"
    )


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
