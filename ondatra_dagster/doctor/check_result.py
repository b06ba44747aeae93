"""The result of one check of `ondatra doctor`."""

import dataclasses
import enum


class CheckLevel(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"  # worth a look, and no run fails for it
    FAILED = "failed"  # a run, or a part of one, fails for it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check, and the remedy."""

    level: CheckLevel
    what: str
    remedy: str = ""  # empty where nothing is to be done

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}" if self.remedy else self.what


def ok_result(what: str) -> CheckResult:
    return CheckResult(level=CheckLevel.OK, what=what)


def warning_result(what: str, remedy: str = "") -> CheckResult:
    return CheckResult(level=CheckLevel.WARNING, what=what, remedy=remedy)


def failed_result(what: str, remedy: str = "") -> CheckResult:
    return CheckResult(level=CheckLevel.FAILED, what=what, remedy=remedy)
