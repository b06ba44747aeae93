"""What push() says of a row, as values. What the queue makes of it belongs to the queue."""

import dataclasses
import enum
from typing import NamedTuple, Self, TypeAlias

from ondatra_dagster.wording import count

ResultKey: TypeAlias = str  # "rowid:change_type": the name under which push() returns a row's status

NO_ROW: ResultKey = ""  # in place of one in a batch without rows: a mirror of nothing

LONGEST = 2_000  # characters of a message: it is kept with each row of its batch
_SHOWN = 200  # characters of a status that isn't one
_STATUSES = "'ok', 'warn: …', 'error: …' or 'reject: …'"


def _short(status: object) -> str:
    text = repr(status)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def cut(message: str) -> str:
    """The message as it is kept; secrets have to be masked before: a part of one isn't found any more."""
    if len(message) <= LONGEST:
        return message
    return f"{message[:LONGEST]}… (cut: it has {len(message):,} characters)"


class Verdict(enum.StrEnum):
    OK = "ok"  # delivered: leaves the queue
    WARN = "warn"  # delivered, worth a log line
    ERROR = "error"  # try again later
    REJECT = "reject"  # never again: dead letter


_DELIVERED = (Verdict.OK, Verdict.WARN)


class Strays(NamedTuple):
    """Keys that push() returned and the batch doesn't have."""

    number: int
    shown: tuple[str, ...]  # the first of them, as they are written in Python, without secrets


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """A row's verdict and why."""

    verdict: Verdict
    message: str = ""
    stated: bool = True  # push() itself gave the row this verdict; else it is ours

    @property
    def is_delivered(self) -> bool:
        return self.verdict in _DELIVERED

    @classmethod
    def parse(cls, status: object) -> Self:
        """An outcome, whatever push() answered: what isn't a status is an error to retry, and says so."""
        word, _, message = str(status).partition(":")
        try:
            return cls(Verdict(word.strip()), cut(message.strip()))
        except ValueError:
            return cls.unstated(
                f"push() returned {_short(status)} for this row; it should return {_STATUSES}"
            )

    @classmethod
    def missing(cls, key: ResultKey) -> Self:
        """Return the outcome of a row that push() said nothing of."""
        return cls.unstated(f"push() returned no status for {key!r}; it should return {_STATUSES}")

    @classmethod
    def misnamed(cls, strays: Strays, example: ResultKey) -> Self:
        """Return the outcome of rows without a status, where push() returned other keys: one message for all.

        It shows how the keys are wrong, and `example` how one of the batch looks.
        """
        more = f" and {count(strays.number - 1, 'more key')}" if strays.number > 1 else ""
        are_no_rows = "are no rows" if strays.number > 1 else "is no row"
        return cls.unstated(
            f"push() returned {strays.shown[0]}{more}, which {are_no_rows} of this batch; a key is the text"
            f' "rowid:change_type", such as {example!r}'
        )

    @classmethod
    def unstated(cls, message: str) -> Self:
        """An error that push() didn't declare."""
        return cls(Verdict.ERROR, message, stated=False)


DELIVERED = Outcome(Verdict.OK)  # what nearly every row's is
