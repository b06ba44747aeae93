"""What @constraint, @warning and @audit find in real rows, and that nothing is written where one refuses."""

from pathlib import Path
from typing import Any

import pytest
from support.model_tables import QUERIED, ModelTables, a_model, values

from ondatra_dagster.errors import ChecksFailedError, ProjectError
from ondatra_dagster.planning.delta_log import invalid_path, read_table_state
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.model import CheckWord, Model
from ondatra_dagster.project.sql.conditions import read_condition, row_checks
from ondatra_dagster.warehouse.model_run import Written

pytestmark = pytest.mark.spark

KEPT = values("1, 10", "2, 20", "3, 30", columns="id, amount")  # 2 stays as it is, 3 goes where kinds let it
CHANGED = values("1, 11", "2, 20", "4, 40", columns="id, amount")
BAD = values("1, -11", "2, 20", "4, null", columns="id, amount")


def a_checked_model(kind: str, sql: str, **checks: str) -> Model:
    written = [(CheckWord(word), read_condition(said), 2) for word, said in checks.items()]
    return a_model(kind, sql, checks=tuple(row_checks(written)))


def run(lake: ModelTables, kind: str, sql: str, **checks: str) -> Written:
    return lake.write(a_checked_model(kind, sql, **checks))


def refused(lake: ModelTables, kind: str, sql: str, **checks: str) -> ChecksFailedError:
    with pytest.raises(ChecksFailedError) as caught:
        run(lake, kind, sql, **checks)
    return caught.value


def log_versions(lake: ModelTables) -> list[int | None]:
    """The newest commits of the table and of that of its rows that were set aside; None is no table."""
    path = lake.path(a_model("table", ""))
    states = [read_table_state(each) for each in (path, invalid_path(path))]
    return [state and state.log_version for state in states]


def found(written: Written) -> dict[str, tuple[int, int | None]]:
    return {finding.check.name: (finding.failed, finding.rows) for finding in written.findings}


@pytest.mark.parametrize("kind", QUERIED)
def test_a_constraint_that_fails_writes_nothing(lake: ModelTables, kind: str) -> None:
    """Neither at the first run, where there is no table yet, nor later."""
    refused(lake, kind, BAD, constraint="amount >= 0")
    assert [None, None] == log_versions(lake)
    run(lake, kind, KEPT, constraint="amount >= 0")
    before = log_versions(lake)
    error = refused(lake, kind, BAD, constraint="amount >= 0")
    assert before == log_versions(lake)
    shown = "id 1, " if KINDS[kind].needs_key else ""
    remedy = "nothing was written; mend the rows where they come from, or the check"
    expected = (
        f"models/mart/things.sql:2: 1 of 3 rows fails @constraint amount >= 0 ({shown}amount -11); {remedy}"
    )
    assert expected == str(error)


@pytest.mark.parametrize("kind", QUERIED)
def test_an_audit_that_fails_writes_nothing(lake: ModelTables, kind: str) -> None:
    """An empty table would be something that was written, too."""
    refused(lake, kind, BAD, audit="amount >= 0")
    assert [None, None] == log_versions(lake)
    assert not Path(lake.path(a_model(kind, BAD))).exists()
    run(lake, kind, KEPT, audit="amount >= 0")
    before = log_versions(lake)
    refused(lake, kind, BAD, audit="amount >= 0")
    assert before == log_versions(lake)


@pytest.mark.parametrize("kind", QUERIED)
def test_an_audit_looks_at_the_table_as_it_would_be(lake: ModelTables, kind: str) -> None:
    """Row for row: what the run changes, adds and takes away, and what it leaves."""
    run(lake, kind, KEPT)
    error = refused(lake, kind, CHANGED, audit="amount < 0")  # every row fails it, and so is shown
    table = {finding["amount"] for finding in error.findings[0].samples}
    run(lake, kind, CHANGED)
    rows = lake.rows(a_model(kind, CHANGED))
    assert {str(row["amount"]) for row in rows.collect()} == table
    assert rows.count() == error.findings[0].rows == error.findings[0].failed


@pytest.mark.parametrize("kind", QUERIED)
def test_a_new_audit_is_judged_when_nothing_changed(lake: ModelTables, kind: str) -> None:
    """It is why the model ran."""
    run(lake, kind, KEPT)
    before = log_versions(lake)
    written = run(lake, kind, KEPT, audit="amount > 0", constraint="amount > 1", warning="amount < 20")
    expected = {"audit_amount_gt_0": (0, 3), "constraint_amount_gt_1": (0, 3), "warning_amount_lt_20": (2, 3)}
    assert (False, expected) == (written.changed, found(written))
    refused(lake, kind, KEPT, audit="amount > 10")
    assert before == log_versions(lake)


def test_a_warning_writes_all_and_is_remembered(lake: ModelTables) -> None:
    """The run after, which finds nothing to do, still has to warn."""
    model = a_checked_model("merge", BAD, warning="amount >= 0")
    written = lake.write(model)
    assert {model.checks[0].name: (1, 3)} == found(written)
    note = lake.state(model).note
    assert note
    assert {model.checks[0].name: 1} == note.warned


def test_a_refused_run_sets_no_row_aside(lake: ModelTables) -> None:
    """Both tables say what they said; and rows that would be set aside are among those of the query."""
    rows = values("1, 10", "null, -5", columns="id, amount")
    assert 1 == refused(lake, "merge", rows, constraint="amount > 0").findings[0].failed
    bad = values("1, -10", "null, -5", columns="id, amount")
    assert 1 == refused(lake, "merge", bad, audit="amount > 0").findings[0].failed
    assert [None, None] == log_versions(lake)


def test_a_null_passes(lake: ModelTables) -> None:
    """As in every database."""
    rows = "select 1 as id, cast(null as int) as amount"
    assert {"constraint_amount_gt_0": (0, 1)} == found(run(lake, "table", rows, constraint="amount > 0"))
    assert {"audit_null": (0, 1)} == found(run(lake, "table", rows, audit="null"))


def test_a_check_speaks_the_dialects_that_queries_do(lake: ModelTables) -> None:
    """Spark has x::TYPE, but doesn't know each type by each name."""
    written = run(lake, "table", KEPT, warning="amount::TEXT <> '10'", audit="cast(id as int8) > 0")
    assert [1, 0] == [finding.failed for finding in written.findings]


def test_samples_are_few_and_short_and_of_any_type(lake: ModelTables) -> None:
    """Twenty rows, their key and what the condition names."""
    rows = "select id, repeat('x', 500) as name, array(id) as ids, 1 as other from range(50)"
    error = refused(lake, "merge", rows, constraint="size(ids) > 1 and `NAME` = ''")
    samples = error.findings[0].samples
    assert (50, 20) == (error.findings[0].failed, len(samples))
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
def test_a_condition_that_spark_does_not_take_is_told_with_its_line(
    lake: ModelTables, condition: str, why: str
) -> None:
    """It is the header's fault, not the query's; a good check beside it isn't blamed."""
    rows = "select 1 as amount, 'a' as name"
    model = a_checked_model("table", rows, warning="amount > 0", constraint=condition)
    with pytest.raises(ProjectError) as caught:
        lake.write(model)
    assert str(caught.value).startswith("models/mart/things.sql:2: ")
    assert why in str(caught.value)


def test_a_query_that_fails_is_not_blamed_on_a_check(lake: ModelTables) -> None:
    """The check is just the first to ask for the value."""
    with pytest.raises(Exception, match=r"^models/mart/things\.sql:3: .*The value 'a'"):
        run(lake, "table", "select cast(name as int) as id from values ('a') as t(name)", constraint="id > 0")


def test_what_is_checked_is_what_is_written(lake: ModelTables) -> None:
    """A query that gives other rows each time is asked once."""
    query = "select id, rand() as chance from range(20)"
    error: Any = refused(lake, "merge", query, audit="chance > 1", warning="chance > 1")
    by_query, by_table = ({s["id"]: s["chance"] for s in finding.samples} for finding in error.findings)
    assert by_query == by_table
