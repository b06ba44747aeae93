"""Judges a model's checks before anything is written: one pass for all of them, and samples where one fails.

What a condition may say is in project/sql/conditions.py, what becomes of a finding in model_run.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import BooleanType, NullType

from ondatra_dagster.errors import Problem, ProjectError
from ondatra_dagster.project.finding import SAMPLES, Finding, Row, refusal
from ondatra_dagster.project.model import CheckWord, Model, RowCheck
from ondatra_dagster.warehouse.comparison import column_of
from ondatra_dagster.warehouse.spark_errors import said_by

OF_THE_QUERY = (CheckWord.CONSTRAINT, CheckWord.WARNING)
LONGEST = 200  # letters of a value in a sample


class RowChecks:
    """The checks of one model in one run, and what they found so far."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._found: dict[str, Finding] = {}  # by the check's name

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(self._found.values())

    def judge_query(self, rows: DataFrame) -> None:
        """Judge what the query gave; raises ChecksFailedError when nothing may be written."""
        if checks := self._checks(OF_THE_QUERY):
            rows.persist()  # what is checked is what is written; who gave the rows lets go of them
            self._judge(rows, checks)

    def judge_table(self, rows: Callable[[], DataFrame]) -> None:
        """Judge the table as it would be; raises ChecksFailedError when nothing may be written."""
        if checks := self._checks((CheckWord.AUDIT,)):
            self._judge(rows(), checks)

    def _judge(self, rows: DataFrame, checks: Sequence[RowCheck]) -> None:
        for finding in judge(rows, checks, self._model):
            self._found[finding.check.name] = _together(self._found.get(finding.check.name), finding)
        if refused := refusal(self._model, self.findings):
            raise refused

    def _checks(self, words: Collection[CheckWord]) -> list[RowCheck]:
        return [check for check in self._model.checks if check.word in words]


def _together(before: Finding | None, now: Finding) -> Finding:
    """What a check finds among rows that come in portions; an audit looks at all of them each time."""
    if before is None or now.check.word is CheckWord.AUDIT:
        return now
    return dataclasses.replace(
        now,
        failed=before.failed + now.failed,
        rows=(before.rows or 0) + (now.rows or 0),
        samples=(*before.samples, *now.samples)[:SAMPLES],
    )


def judge(rows: DataFrame, checks: Sequence[RowCheck], model: Model) -> tuple[Finding, ...]:
    """What each check finds among the rows; raises ProjectError for a condition that Spark can't take."""
    problems = list(_problems(rows, checks, model))
    if problems:
        raise ProjectError(problems)
    failed = [F.count_if(_fails(check)) for check in checks]
    try:
        total, *counts = rows.agg(F.count(F.lit(1)), *failed).collect()[0]
    except PySparkException:
        _blame(rows, checks, model)
        raise
    return tuple(
        Finding(check=check, failed=count, rows=total, samples=_samples(rows, check, model) if count else ())
        for check, count in zip(checks, counts, strict=True)
    )


def _fails(check: RowCheck) -> Column:
    """Whether a row fails: neither true nor null."""
    return ~F.coalesce(F.expr(check.sql), F.lit(True))


def _problems(rows: DataFrame, checks: Sequence[RowCheck], model: Model) -> Iterator[Problem]:
    """The conditions that Spark can't make sense of for these rows; nothing is computed."""
    for check in checks:
        try:
            (field,) = rows.select(F.expr(check.sql)).schema.fields
        except PySparkException as error:
            yield _problem(model, check, said_by(error))
            continue
        if not isinstance(field.dataType, BooleanType | NullType):
            is_no = f"{check} is {field.dataType.simpleString()}, neither true nor false"
            yield _problem(model, check, is_no)


def _blame(rows: DataFrame, checks: Sequence[RowCheck], model: Model) -> None:
    """Raise ProjectError for the check that can't be computed; nothing when the rows themselves can't."""
    rows.write.format("noop").mode("overwrite").save()
    for check in checks:
        try:
            rows.agg(F.count_if(_fails(check))).collect()
        except PySparkException as error:
            raise ProjectError([_problem(model, check, f"{check}: {said_by(error)}")]) from None


def _problem(model: Model, check: RowCheck, what: str) -> Problem:
    return Problem(file=model.file, line=check.line, what=what, remedy="correct the condition")


def _samples(rows: DataFrame, check: RowCheck, model: Model) -> tuple[Row, ...]:
    """Some of the rows that fail, with their key and the columns that the condition names."""
    spelled = {name.casefold(): name for name in rows.columns}
    wanted = dict.fromkeys(name.casefold() for name in (*model.key_columns, *check.columns))
    names = [spelled[name] for name in wanted if name in spelled]
    shown = [
        F.substring(column_of(name).cast("string"), 1, LONGEST).alias(f"c{place}")
        for place, name in enumerate(names)
    ]
    found = rows.where(_fails(check)).select(*shown).limit(SAMPLES).collect() if names else []
    return tuple(dict(zip(names, row, strict=True)) for row in found)
