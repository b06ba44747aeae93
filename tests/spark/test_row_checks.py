"""The findings of @constraint, @warning and @audit in real rows; when a check refuses, nothing is written."""

from pathlib import Path
from typing import Any

import pytest
from support.spark.model_tables import QUERY_KINDS, ModelTables, build_model, values_query

from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.errors import ChecksFailedError, ProjectError
from ondatra_dagster.planning.find_table_and_columns import invalid_table_path
from ondatra_dagster.project.model import CheckType, Model
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.project.sql.check_conditions import build_row_checks, read_condition
from ondatra_dagster.warehouse.result_of_write_and_checks import ModelWriteResult

pytestmark = pytest.mark.spark

KEPT = values_query("1, 10", "2, 20", "3, 30", columns="id, amount")  # 2 doesn't change, 3 is removed in some kinds
CHANGED = values_query("1, 11", "2, 20", "4, 40", columns="id, amount")
BAD = values_query("1, -11", "2, 20", "4, null", columns="id, amount")


def a_checked_model(kind: str, sql: str, **checks: str) -> Model:
    conditions = [(CheckType(word), read_condition(text), 2) for word, text in checks.items()]
    return build_model(kind, sql, checks=tuple(build_row_checks(conditions)))


def run(model_tables: ModelTables, kind: str, sql: str, **checks: str) -> ModelWriteResult:
    return model_tables.write(a_checked_model(kind, sql, **checks))


def refused(model_tables: ModelTables, kind: str, sql: str, **checks: str) -> ChecksFailedError:
    with pytest.raises(ChecksFailedError) as caught:
        run(model_tables, kind, sql, **checks)
    return caught.value


def log_versions(model_tables: ModelTables) -> list[int | None]:
    """Return the newest commits of the table and of its table of invalid rows; None means no table."""
    path = model_tables.path(build_model("table", ""))
    states = [read_table_state(table_path) for table_path in (path, invalid_table_path(path))]
    return [state and state.log_version for state in states]


def found(written: ModelWriteResult) -> dict[str, tuple[int, int | None]]:
    return {finding.check.name: (finding.failed_rows, finding.rows) for finding in written.findings}


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_a_failed_constraint_writes_nothing(model_tables: ModelTables, kind: str) -> None:
    """This holds for the first run, when there is no table yet, and for later ones."""
    refused(model_tables, kind, BAD, constraint="amount >= 0")
    assert [None, None] == log_versions(model_tables)
    run(model_tables, kind, KEPT, constraint="amount >= 0")
    before = log_versions(model_tables)
    error = refused(model_tables, kind, BAD, constraint="amount >= 0")
    assert before == log_versions(model_tables)
    shown = "id 1, " if KINDS[kind].needs_key else ""
    remedy = "nothing was written; correct the rows at their source, or the check"
    expected = f"models/mart/things.sql:2: 1 of 3 rows fails @constraint amount >= 0 ({shown}amount -11); {remedy}"
    assert expected == str(error)


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_a_failed_audit_writes_nothing(model_tables: ModelTables, kind: str) -> None:
    """The run doesn't create an empty table either."""
    refused(model_tables, kind, BAD, audit="amount >= 0")
    assert [None, None] == log_versions(model_tables)
    assert not Path(model_tables.path(build_model(kind, BAD))).exists()
    run(model_tables, kind, KEPT, audit="amount >= 0")
    before = log_versions(model_tables)
    refused(model_tables, kind, BAD, audit="amount >= 0")
    assert before == log_versions(model_tables)


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_an_audit_reads_the_table_as_the_run_would_leave_it(model_tables: ModelTables, kind: str) -> None:
    """It reads the rows that the run adds, changes or leaves, and none that the run removes."""
    run(model_tables, kind, KEPT)
    error = refused(model_tables, kind, CHANGED, audit="amount < 0")  # every row fails it, and so is shown
    table = {finding["amount"] for finding in error.findings[0].samples}
    run(model_tables, kind, CHANGED)
    rows = model_tables.rows(build_model(kind, CHANGED))
    assert {str(row["amount"]) for row in rows.collect()} == table
    assert rows.count() == error.findings[0].rows == error.findings[0].failed_rows


@pytest.mark.parametrize("kind", QUERY_KINDS)
def test_a_new_audit_is_evaluated_when_no_row_changed(model_tables: ModelTables, kind: str) -> None:
    """The new audit is the reason why the model ran."""
    run(model_tables, kind, KEPT)
    before = log_versions(model_tables)
    result = run(model_tables, kind, KEPT, audit="amount > 0", constraint="amount > 1", warning="amount < 20")
    expected = {"audit_amount_gt_0": (0, 3), "constraint_amount_gt_1": (0, 3), "warning_amount_lt_20": (2, 3)}
    assert (False, expected) == (result.has_changes, found(result))
    refused(model_tables, kind, KEPT, audit="amount > 10")
    assert before == log_versions(model_tables)


def test_a_warning_writes_all_rows_and_is_stored(model_tables: ModelTables) -> None:
    """The next run finds nothing to do and still has to warn."""
    model = a_checked_model("merge", BAD, warning="amount >= 0")
    result = model_tables.write(model)
    assert {model.checks[0].name: (1, 3)} == found(result)
    note = model_tables.state(model).commit_metadata
    assert note
    assert {model.checks[0].name: 1} == note.warned


def test_a_refused_run_writes_no_invalid_rows(model_tables: ModelTables) -> None:
    """Neither table changes. A constraint also reads the invalid rows of the query."""
    rows = values_query("1, 10", "null, -5", columns="id, amount")
    assert 1 == refused(model_tables, "merge", rows, constraint="amount > 0").findings[0].failed_rows
    bad = values_query("1, -10", "null, -5", columns="id, amount")
    assert 1 == refused(model_tables, "merge", bad, audit="amount > 0").findings[0].failed_rows
    assert [None, None] == log_versions(model_tables)


def test_a_condition_that_is_null_passes(model_tables: ModelTables) -> None:
    """Databases treat it in the same way."""
    rows = "select 1 as id, cast(null as int) as amount"
    assert {"constraint_amount_gt_0": (0, 1)} == found(run(model_tables, "table", rows, constraint="amount > 0"))
    assert {"audit_null": (0, 1)} == found(run(model_tables, "table", rows, audit="null"))


def test_a_check_accepts_the_dialects_that_queries_accept(model_tables: ModelTables) -> None:
    """Spark has x::TYPE, but doesn't know every name of a type."""
    result = run(model_tables, "table", KEPT, warning="amount::TEXT <> '10'", audit="cast(id as int8) > 0")
    assert [1, 0] == [finding.failed_rows for finding in result.findings]


def test_samples_are_few_and_short_and_of_any_type(model_tables: ModelTables) -> None:
    """Twenty rows are shown, with their key and the columns in the condition."""
    rows = "select id, repeat('x', 500) as name, array(id) as ids, 1 as other from range(50)"
    error = refused(model_tables, "merge", rows, constraint="size(ids) > 1 and `NAME` = ''")
    samples = error.findings[0].samples
    assert (50, 20) == (error.findings[0].failed_rows, len(samples))
    assert {("id", "ids", "name")} == {tuple(sorted(sample)) for sample in samples}
    assert {200} == {len(sample["name"]) for sample in samples}


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("amuont > 0", "amuont"),
        ("nope(amount)", "nope"),
        ("amount", "@constraint amount is int, neither true nor false; correct the condition"),
        ("cast(name as int) > 0", "@constraint cast(name as int) > 0: The value 'a'"),
    ],
)
def test_a_condition_that_spark_refuses_is_reported_with_its_line(
    model_tables: ModelTables, condition: str, why: str
) -> None:
    """The error is in the header and not in the query. A good check next to it isn't blamed."""
    rows = "select 1 as amount, 'a' as name"
    model = a_checked_model("table", rows, warning="amount > 0", constraint=condition)
    with pytest.raises(ProjectError) as caught:
        model_tables.write(model)
    assert str(caught.value).startswith("models/mart/things.sql:2: ")
    assert why in str(caught.value)


def test_a_check_is_not_blamed_for_a_query_that_fails(model_tables: ModelTables) -> None:
    """The check is only the first to read the value."""
    with pytest.raises(Exception, match=r"^models/mart/things\.sql:3: .*The value 'a'"):
        run(model_tables, "table", "select cast(name as int) as id from values ('a') as t(name)", constraint="id > 0")


def test_the_rows_that_are_checked_are_those_that_are_written(model_tables: ModelTables) -> None:
    """A query that returns other rows each time is run once."""
    query = "select id, rand() as chance from range(20)"
    error: Any = refused(model_tables, "merge", query, audit="chance > 1", warning="chance > 1")
    by_query, by_table = ({s["id"]: s["chance"] for s in finding.samples} for finding in error.findings)
    assert by_query == by_table
