"""The result of one check of `ondatra doctor`."""

import dataclasses
import enum


class Level(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"  # worth a look, and no run fails for it
    FAILED = "failed"  # a run, or a part of one, fails for it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What was found, and what to do about it."""

    level: Level
    what: str
    remedy: str = ""  # empty where nothing is to be done

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}" if self.remedy else self.what


def ok(what: str) -> CheckResult:
    return CheckResult(level=Level.OK, what=what)


def warning(what: str, remedy: str = "") -> CheckResult:
    return CheckResult(level=Level.WARNING, what=what, remedy=remedy)


def failed(what: str, remedy: str = "") -> CheckResult:
    return CheckResult(level=Level.FAILED, what=what, remedy=remedy)
