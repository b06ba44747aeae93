"""The outcome of a row, as push() gives it: a verdict and a message."""

import dataclasses
import enum
from typing import Self, TypeAlias

from ondatra_dagster.count_time_and_size_format import format_count

ResultKey: TypeAlias = str  # "rowid:change_type": the key under which push() returns a row's status


NO_ROW_KEY: ResultKey = ""  # the key of the only outcome in a batch without rows: an empty mirror


MAX_MESSAGE_LENGTH = 2_000  # characters of a message, which is stored with each row of its batch


_MAX_STATUS_LENGTH = 200  # characters of an invalid status


_STATUSES = "'ok', 'warn: …', 'error: …' or 'reject: …'"


def _shorten_status(status: object) -> str:
    text = repr(status)
    return text if len(text) <= _MAX_STATUS_LENGTH else f"{text[:_MAX_STATUS_LENGTH]}…"


def truncate_message(message: str) -> str:
    """Return the message, cut for storage. Mask its secrets before that, because a part of a secret isn't found."""
    if len(message) <= MAX_MESSAGE_LENGTH:
        return message
    return f"{message[:MAX_MESSAGE_LENGTH]}… (cut: it has {len(message):,} characters)"


class Verdict(enum.StrEnum):
    OK = "ok"  # delivered: leaves the queue
    WARN = "warn"  # delivered, worth a log line
    ERROR = "error"  # retried later
    REJECT = "reject"  # not retried: a dead letter


_DELIVERED_VERDICTS = (Verdict.OK, Verdict.WARN)


@dataclasses.dataclass(frozen=True, slots=True)
class RowOutcome:
    """A row's verdict and its reason."""

    verdict: Verdict
    message: str = ""
    is_from_push: bool = True  # push() itself gave the row this verdict; otherwise ondatra did

    @property
    def is_delivered(self) -> bool:
        return self.verdict in _DELIVERED_VERDICTS

    @classmethod
    def parse_status(cls, status: object) -> Self:
        """Return the outcome for a status from push(); an invalid status is an error, which is retried."""
        word, _, message = str(status).partition(":")
        try:
            return cls(Verdict(word.strip()), truncate_message(message.strip()))
        except ValueError:
            return cls.implicit_error(
                f"push() returned {_shorten_status(status)} for this row; it should return {_STATUSES}"
            )

    @classmethod
    def for_missing_status(cls, key: ResultKey) -> Self:
        """Return the outcome of a row for which push() returned no status."""
        return cls.implicit_error(f"push() returned no status for {key!r}; it should return {_STATUSES}")

    @classmethod
    def for_unknown_keys(cls, unknown_count: int, unknown: str, example: ResultKey) -> Self:
        """Return one outcome for all rows without a status, if push() returned unknown keys.

        Its message shows one of the `unknown` keys, and as `example` a key of the batch.
        """
        more = f" and {format_count(unknown_count - 1, 'more key')}" if unknown_count > 1 else ""
        are_no_rows = "are not rows" if unknown_count > 1 else "is not a row"
        return cls.implicit_error(
            f"push() returned {unknown}{more}, which {are_no_rows} of this batch; a key is the string"
            f' "rowid:change_type", such as {example!r}'
        )

    @classmethod
    def implicit_error(cls, message: str) -> Self:
        """Return an error that push() didn't declare."""
        return cls(Verdict.ERROR, message, is_from_push=False)


DELIVERED_OUTCOME = RowOutcome(Verdict.OK)  # the outcome of nearly every row
