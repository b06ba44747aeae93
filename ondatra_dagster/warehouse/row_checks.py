"""The evaluation of a model's row checks before a write: one pass for all checks, and samples of the failed rows.

project/sql/check_conditions.py parses the conditions. model_run reports the findings.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import BooleanType, NullType

from ondatra_dagster.errors import Problem, ProjectError
from ondatra_dagster.project.model import CheckType, Model, RowCheck
from ondatra_dagster.warehouse.result_of_write_and_checks import (
    MAX_SAMPLES,
    RowCheckResult,
    SampleRow,
    checks_failed_error,
)
from ondatra_dagster.warehouse.row_equality_and_hashes import column_of
from ondatra_dagster.warehouse.spark.error_messages import spark_error_message

QUERY_CHECKS = (CheckType.CONSTRAINT, CheckType.WARNING)
MAX_VALUE_LENGTH = 200  # the maximum number of characters of a value in a sample


class RowChecks:
    """The checks of one model in one run, and their results so far."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._finding_by_check: dict[str, RowCheckResult] = {}  # the result by the name of its check

    @property
    def findings(self) -> tuple[RowCheckResult, ...]:
        return tuple(self._finding_by_check.values())

    def check_query(self, rows: DataFrame) -> None:
        """Check the query's rows. Raises ChecksFailedError if a failed check prevents the write."""
        if checks := self._select_checks(QUERY_CHECKS):
            rows.persist()  # the checked rows are also written; the caller unpersists them
            self._evaluate(rows, checks)

    def check_table(self, rows: Callable[[], DataFrame]) -> None:
        """Check the table's rows as they will be after the write.

        Raises ChecksFailedError if a failed check prevents it.
        """
        if checks := self._select_checks((CheckType.AUDIT,)):
            self._evaluate(rows(), checks)

    def _evaluate(self, rows: DataFrame, checks: Sequence[RowCheck]) -> None:
        for finding in evaluate_checks(rows, checks, self._model):
            self._finding_by_check[finding.check.name] = _combine_findings(
                self._finding_by_check.get(finding.check.name), finding
            )
        if error := checks_failed_error(self._model, self.findings):
            raise error

    def _select_checks(self, words: Collection[CheckType]) -> list[RowCheck]:
        return [check for check in self._model.checks if check.check_type in words]


def _combine_findings(earlier_result: RowCheckResult | None, result: RowCheckResult) -> RowCheckResult:
    """Return a check's result for all batches of rows so far.

    For an audit this is the newest result, because an audit checks all rows of the table each time.
    """
    if earlier_result is None or result.check.check_type is CheckType.AUDIT:
        return result
    return dataclasses.replace(
        result,
        failed_rows=earlier_result.failed_rows + result.failed_rows,
        rows=(earlier_result.rows or 0) + (result.rows or 0),
        samples=(*earlier_result.samples, *result.samples)[:MAX_SAMPLES],
    )


def evaluate_checks(rows: DataFrame, checks: Sequence[RowCheck], model: Model) -> tuple[RowCheckResult, ...]:
    """Return the result of each check for these rows. Raises ProjectError for a condition that Spark can't evaluate."""
    problems = list(_condition_problems(rows, checks, model))
    if problems:
        raise ProjectError(problems)
    failure_counts = [F.count_if(_is_failing(check)) for check in checks]
    try:
        total, *counts = rows.agg(F.count(F.lit(1)), *failure_counts).collect()[0]
    except PySparkException:
        _raise_for_condition(rows, checks, model)
        raise
    return tuple(
        RowCheckResult(
            check=check,
            failed_rows=count,
            rows=total,
            samples=_sample_failing_rows(rows, check, model) if count else (),
        )
        for check, count in zip(checks, counts, strict=True)
    )


def _is_failing(check: RowCheck) -> Column:
    """Return whether a row fails the check: its condition is false. A null condition passes."""
    return ~F.coalesce(F.expr(check.sql), F.lit(True))


def _condition_problems(rows: DataFrame, checks: Sequence[RowCheck], model: Model) -> Iterator[Problem]:
    """Yield a problem for each condition that Spark can't analyze for these rows, or that isn't boolean.

    Nothing is computed.
    """
    for check in checks:
        try:
            (field,) = rows.select(F.expr(check.sql)).schema.fields
        except PySparkException as error:
            yield _condition_problem(model, check, spark_error_message(error))
            continue
        if not isinstance(field.dataType, BooleanType | NullType):
            is_no = f"{check} is {field.dataType.simpleString()}, neither true nor false"
            yield _condition_problem(model, check, is_no)


def _raise_for_condition(rows: DataFrame, checks: Sequence[RowCheck], model: Model) -> None:
    """Raise ProjectError for the check that Spark can't compute.

    If Spark can't compute the rows, raise Spark's error.
    """
    rows.write.format("noop").mode("overwrite").save()
    for check in checks:
        try:
            rows.agg(F.count_if(_is_failing(check))).collect()
        except PySparkException as error:
            raise ProjectError([_condition_problem(model, check, f"{check}: {spark_error_message(error)}")]) from None


def _condition_problem(model: Model, check: RowCheck, description: str) -> Problem:
    return Problem(file=model.file, line=check.line, description=description, remedy="correct the condition")


def _sample_failing_rows(rows: DataFrame, check: RowCheck, model: Model) -> tuple[SampleRow, ...]:
    """Return some of the rows that fail the check, with their key and the columns that the condition names."""
    names_by_casefold = {name.casefold(): name for name in rows.columns}
    shown_names = dict.fromkeys(name.casefold() for name in (*model.key_columns, *check.columns))
    names = [names_by_casefold[name] for name in shown_names if name in names_by_casefold]
    values = [
        F.substring(column_of(name).cast("string"), 1, MAX_VALUE_LENGTH).alias(f"c{index}")
        for index, name in enumerate(names)
    ]
    sample = rows.where(_is_failing(check)).select(*values).limit(MAX_SAMPLES).collect() if names else []
    return tuple(dict(zip(names, row, strict=True)) for row in sample)
