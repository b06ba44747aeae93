"""Small things that every page tells alike: numbers, times, states, what others said."""

from collections.abc import Mapping
from datetime import UTC, datetime

from ondatra_dagster.browser.elements import Content, Html, element
from ondatra_dagster.sync.progress import Progress
from ondatra_dagster.tracking.found import Stage
from ondatra_dagster.wording import duration, moment

LONGEST_MESSAGE = 2_000  # characters of what an API said; the whole is in the download
NOTHING = "-"
UNREAD = "can't be read"

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
    "interrupted": ("warn", "!"),
    "NULL": ("warn", "!"),
    "DUPLICATE": ("warn", "!"),
    "dry": ("calm", "◌"),
    "never ran": ("calm", "◌"),
    "queue lost": ("bad", "✕"),
    UNREAD: ("bad", "✕"),
}

STAGE_NAMES = {
    Stage.SUCCEEDED: "Success",
    Stage.REJECTED: "Rejected",
    Stage.INVALID: "Invalid",
    Stage.PENDING: "Pending",
    Stage.WAITING: "Waiting",
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


def time_of_day(value: datetime, *, with_day: bool) -> Content:
    """The same in little room: the hour, and the day on a line above it where it isn't known."""
    day, _, hour = moment(value).partition(" ")
    whole = value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    told = (element("b", day) if with_day else None, " ", hour)
    return element("time", told, datetime=whole, title=whole)


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


def age(since: float | None, now: datetime) -> str:
    """For how long something waits; `since` is in seconds since 1970."""
    return NOTHING if since is None else duration(max(0.0, now.timestamp() - since))


def until(due: float | None, now: datetime) -> Content:
    """When something falls due."""
    if due is None:
        return NOTHING
    left = due - now.timestamp()
    when = datetime.fromtimestamp(due, UTC).isoformat()
    return element("time", f"in {duration(left)}" if left > 0 else "due", datetime=when, title=when)


def progress_told(going_on: Progress) -> Content:
    """How far it has come, as a bar and in words."""
    whole = going_on.records + going_on.keys
    return (
        element("progress", value=going_on.records, max=max(whole, 1), aria_label="How far the run has come"),
        element(
            "span", f"{count_of(going_on.records, 'record')} so far, {count_of(going_on.keys, 'key')} to go"
        ),
    )


def count_of(value: int, word: str) -> str:
    """1,234 rows."""
    return f"{value:,} {word if value == 1 else f'{word}s'}"
