"""What a check found among the rows that it looked at; how it is judged: warehouse/row_checks.py."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from ondatra_dagster.errors import ChecksFailedError
from ondatra_dagster.project.model import CheckWord, Model, RowCheck
from ondatra_dagster.wording import count

SAMPLES = 20  # rows that are kept of those that fail
TOLD = 3  # of them, how many a sentence has room for
Row = Mapping[str, str | None]  # its key, and the columns that the condition names


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """How many rows fail a check, and some of them."""

    check: RowCheck
    failed: int
    rows: int | None = None  # that were looked at; None when nobody looked now
    samples: Sequence[Row] = ()

    @property
    def refuses(self) -> bool:
        """Whether nothing may be written for it."""
        return bool(self.failed) and self.check.word is not CheckWord.WARNING

    def __str__(self) -> str:
        verb = "fails" if self.failed == 1 else "fail"
        if not self.failed:
            return f"no row fails {self.check}"
        if self.rows is None:
            return f"{count(self.failed, 'row')} {verb} {self.check}"
        return f"{self.failed} of {count(self.rows, 'row')} {verb} {self.check}"


def warned(findings: Iterable[Finding]) -> dict[str, int]:
    """The warnings to remember: check → how many rows fail it."""
    return {finding.check.name: finding.failed for finding in findings if finding.failed}


def refusal(model: Model, findings: Iterable[Finding]) -> ChecksFailedError | None:
    """The error for which nothing is written; None when all may be."""
    findings = tuple(findings)
    told = [_told(model, finding) for finding in findings if finding.refuses]
    return ChecksFailedError("\n".join(told), findings) if told else None


def _told(model: Model, finding: Finding) -> str:
    some = "; ".join(map(_shown, finding.samples[:TOLD]))
    more = "; …" if finding.failed > TOLD else ""
    which = f" ({some}{more})" if some else ""
    remedy = "nothing was written; mend the rows where they come from, or the check"
    return f"{model.file}:{finding.check.line}: {finding}{which}; {remedy}"


def _shown(row: Row) -> str:
    return ", ".join(f"{name} {'null' if value is None else value}" for name, value in row.items())
