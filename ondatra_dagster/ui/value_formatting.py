"""The formatting of numbers, times, states, messages and payloads on every page."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from ondatra_dagster.count_time_and_size_format import format_duration, format_local_time
from ondatra_dagster.records.record_query import RecordStage
from ondatra_dagster.sync.running_progress_reader import LiveProgress
from ondatra_dagster.ui.html_builder import Content, Html, element

MAX_MESSAGE_LENGTH = 2_000  # characters of an API's message; the download has the whole message
NO_VALUE = "-"
UNREADABLE = "can't be read"

# each state has a word and a sign, so that states differ in more than the colour
BADGE_STYLES: Mapping[str, tuple[str, str]] = {
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
    "interrupted": ("warn", "!"),
    "NULL": ("warn", "!"),
    "DUPLICATE": ("warn", "!"),
    "dry": ("calm", "◌"),
    "never ran": ("calm", "◌"),
    "queue lost": ("bad", "✕"),
    UNREADABLE: ("bad", "✕"),
}

STAGE_NAMES: Mapping[RecordStage | None, str] = {
    None: "All",
    RecordStage.SUCCEEDED: "Success",
    RecordStage.REJECTED: "Rejected",
    RecordStage.INVALID: "Invalid",
    RecordStage.PENDING: "Pending",
    RecordStage.WAITING: "Waiting",
}


def badge(state: str) -> Html:
    """Return a badge for a state: its word, its sign and its colour."""
    css_class, sign = BADGE_STYLES.get(state, ("calm", "•"))
    return element("span", element("span", sign, aria_hidden="true"), " ", state, class_=f"badge {css_class}")


def format_number(value: int | None) -> str:
    """Format a number, such as 1,234,567; format None as a dash."""
    return NO_VALUE if value is None else f"{value:,}"


def format_time(value: datetime | None) -> Content:
    """Format a time as local time, with the exact time in UTC as a tooltip."""
    if value is None:
        return NO_VALUE
    exact_time = value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return element("time", format_local_time(value), datetime=exact_time, title=exact_time)


def format_time_of_day(value: datetime, *, with_day: bool) -> Content:
    """Format a local time in little space: the time of day and, if `with_day` is true, the day above it."""
    day, _, hour = format_local_time(value).partition(" ")
    exact_time = value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    content = (element("b", day) if with_day else None, " ", hour)
    return element("time", content, datetime=exact_time, title=exact_time)


def format_time_ago(value: datetime | None, now: datetime) -> Content:
    """Format how long ago a time was, with the time itself as a tooltip."""
    if value is None:
        return NO_VALUE
    seconds = max(0.0, (now - value).total_seconds())
    return element(
        "time", f"{format_duration(seconds)} ago", datetime=value.isoformat(), title=format_local_time(value)
    )


def shorten_message(text: str | None) -> Content:
    """Shorten a long message of an API or of an error; None if there is no message."""
    if not text:
        return None
    return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:MAX_MESSAGE_LENGTH]}… (cut: {len(text):,} characters)"


def format_age(start_time: float | None, now: datetime) -> str:
    """Format how long something has waited since `start_time`, which is in seconds since 1970."""
    return NO_VALUE if start_time is None else format_duration(max(0.0, now.timestamp() - start_time))


def format_due_time(due_time: float | None, now: datetime) -> Content:
    """Format the time until something is due; `due_time` is in seconds since 1970."""
    if due_time is None:
        return NO_VALUE
    remaining_seconds = due_time - now.timestamp()
    due_text = datetime.fromtimestamp(due_time, UTC).isoformat()
    return element(
        "time",
        f"in {format_duration(remaining_seconds)}" if remaining_seconds > 0 else "due",
        datetime=due_text,
        title=due_text,
    )


def render_progress(progress: LiveProgress) -> Content:
    """Render the progress of a run as a bar and in words."""
    total_count = progress.record_count + progress.pending_keys
    return (
        element("progress", value=progress.record_count, max=max(total_count, 1), aria_label="The run's progress"),
        element(
            "span",
            f"{format_count(progress.record_count, 'record')} so far,"
            f" {format_count(progress.pending_keys, 'key')} to go",
        ),
    )


def format_count(value: int, word: str) -> str:
    """Format a count with its noun, such as 1,234 rows."""
    return f"{value:,} {word if value == 1 else f'{word}s'}"


MAX_PAYLOAD_LENGTH = 40_000  # characters of a payload on a page; a download has the whole payload
MAX_PREVIEW_LENGTH = 160


def render_payload(text: str, label: str | None = None) -> Html:
    """Render a payload as one line with a label; a click on it shows the payload as indented JSON."""
    preview = text if len(text) <= MAX_PREVIEW_LENGTH else f"{text[:MAX_PREVIEW_LENGTH]}…"
    name = element("span", label, class_="label") if label else None
    summary = element("summary", name, element("code", preview))
    return element("details", summary, element("pre", _format_payload(text)), class_="payload")


def _format_payload(text: str) -> Content:
    if len(text) > MAX_PAYLOAD_LENGTH:
        return f"{text[:MAX_PAYLOAD_LENGTH]}… (cut: {len(text):,} characters; a download has all of them)"
    try:
        # numbers keep their text: 1.0 differs from 1, and some numbers have more digits than a float
        value = json.loads(text, parse_float=_NumberText, parse_int=_NumberText)
        return list(_render_json(value, ""))
    except (ValueError, RecursionError):
        return text


class _NumberText(str):
    """A number of a payload in its original text."""

    __slots__ = ()


def _render_json(value: object, indent: str) -> Iterator[Content]:
    """Yield the value as indented JSON, with markup for names, texts and numbers."""
    if isinstance(value, dict):
        names = [(element("span", _quoted(name), class_="name"), ": ", item) for name, item in value.items()]
        yield from _render_items("{", names, "}", indent)
    elif isinstance(value, list):
        yield from _render_items("[", [("", "", item) for item in value], "]", indent)
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
    for position, (name, colon, value) in enumerate(parts):
        yield ("," if position else "") + f"\n{indent}  "
        yield name
        yield colon
        yield from _render_json(value, f"{indent}  ")
    yield f"\n{indent}{end}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
