"""The results of a model's write and of its row checks, as counts and samples. This module doesn't load Spark.

model_run.py writes the rows, and row_checks.py checks them.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.errors import ChecksFailedError
from ondatra_dagster.project.model import CheckType, Model, RowCheck
from ondatra_dagster.row_changes import Column

MAX_SAMPLES = 20  # the maximum number of failed rows that are kept
MAX_SHOWN_SAMPLES = 3  # the maximum number of failed rows that a message shows
SampleRow = Mapping[str, str | None]  # the row's key, and the columns that the condition names


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowCheckResult:
    """The number of rows that fail a check, and samples of these rows."""

    check: RowCheck
    failed_rows: int
    rows: int | None = None  # rows that were checked; None if the check didn't run this time
    samples: Sequence[SampleRow] = ()

    @property
    def blocks_write(self) -> bool:
        """Return whether these failed rows prevent the write."""
        return bool(self.failed_rows) and self.check.check_type is not CheckType.WARNING

    def __str__(self) -> str:
        verb = "fails" if self.failed_rows == 1 else "fail"
        if not self.failed_rows:
            return f"no row fails {self.check}"
        if self.rows is None:
            return f"{format_count(self.failed_rows, 'row')} {verb} {self.check}"
        return f"{self.failed_rows} of {format_count(self.rows, 'row')} {verb} {self.check}"


def count_warnings(findings: Iterable[RowCheckResult]) -> dict[str, int]:
    """Return the warnings to remember: the name of each failed check → the number of its failed rows."""
    return {finding.check.name: finding.failed_rows for finding in findings if finding.failed_rows}


def checks_failed_error(model: Model, findings: Iterable[RowCheckResult]) -> ChecksFailedError | None:
    """Return the error that prevents the write; None if no failed check prevents it."""
    findings = tuple(findings)
    messages = [_format_failure(model, finding) for finding in findings if finding.blocks_write]
    return ChecksFailedError("\n".join(messages), findings) if messages else None


def _format_failure(model: Model, check_result: RowCheckResult) -> str:
    samples = "; ".join(map(_format_sample, check_result.samples[:MAX_SHOWN_SAMPLES]))
    ending = "; …" if check_result.failed_rows > MAX_SHOWN_SAMPLES else ""
    sample_list = f" ({samples}{ending})" if samples else ""
    remedy = "nothing was written; correct the rows at their source, or the check"
    return f"{model.file}:{check_result.check.line}: {check_result}{sample_list}; {remedy}"


def _format_sample(row: SampleRow) -> str:
    return ", ".join(f"{name} {'null' if value is None else value}" for name, value in row.items())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InvalidRowSample:
    """An invalid row, which the write kept out of the table."""

    key: tuple[str | None, ...]
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelWriteResult:
    """The counts of one write, the table's state after it, and the results of the model's checks."""

    has_changes: bool  # False: no row of the table changed
    table_id: str
    version: int  # the version of the last commit that changed rows
    rows: int  # rows in the table after the write
    # the versions of the inputs that were read; newer than planned if another run wrote first
    inputs: Mapping[str, str]
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    # reason → number of rows that this write kept out
    invalid_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    invalid_samples: Sequence[InvalidRowSample] = ()
    columns: tuple[Column, ...] = ()
    findings: tuple[RowCheckResult, ...] = ()  # one result for each of the model's checks
