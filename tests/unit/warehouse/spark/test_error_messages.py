"""The translation of Spark's long errors: one sentence with a file and a line."""

from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException

from ondatra_dagster.errors import SparkSetupError, WarehouseError
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.warehouse.spark.error_messages import explain_model_errors, explain_spark_errors, shorten_message

MODEL = Model(
    name="a.b",
    path=Path("models/a/b.sql"),
    file="models/a/b.sql",
    kind=KINDS["table"],
    sql="",
    sql_line=4,
    definition="",
)
UNRESOLVED = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `x` cannot be"
    " resolved. Did you mean one of the following? [`id`]. SQLSTATE: 42703; line 3 pos 2;\n"
    "'Project ['x]\n+- SubqueryAlias t"
)
OVERFLOW = (
    "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL"
    " instead. SQLSTATE: 22012\n== SQL (line 2, position 8) ==\n1 / 0\n^^^^^\n"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            UNRESOLVED,
            "models/a/b.sql:6: A column, variable, or function parameter with name `x` cannot be resolved."
            " Did you mean one of the following? [`id`].",
        ),
        (OVERFLOW, "models/a/b.sql:5: Division by zero. Use `try_divide`"),
        ("plain words", "models/a/b.sql:4: plain words"),
    ],
)
def test_a_failure_is_one_sentence_with_its_line(text: str, said: str) -> None:
    with pytest.raises(WarehouseError) as failure, explain_model_errors(MODEL):
        raise AnalysisException(text)
    assert str(failure.value).startswith(said)
    assert "\n" not in str(failure.value)
    assert "SQLSTATE" not in str(failure.value)


def test_an_ended_jvm_is_reported() -> None:
    gone = r"^mart/things: Spark's process has ended; \.ondatra/logs"
    with pytest.raises(WarehouseError, match=gone), explain_spark_errors("mart/things"):
        raise Py4JNetworkError("An error occurred while trying to connect to the Java server")


def test_an_error_of_ondatra_gets_the_file_and_the_line() -> None:
    with pytest.raises(WarehouseError, match=r"^models/a/b\.sql:4: no; do that$"), explain_model_errors(MODEL):
        raise WarehouseError("no; do that")


def test_a_cause_inside_a_java_error_is_found() -> None:
    text = (
        "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted\n\tat x\n"
        "Caused by: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero."
        " SQLSTATE: 22012\n\tat y"
    )
    assert "Division by zero." == shorten_message(text)
    assert 401 == len(shorten_message("x" * 900))


def test_the_failed_call_is_not_part_of_the_sentence() -> None:
    message = shorten_message(
        "An error occurred while calling o19.count.\n: org.apache.spark.SparkException:"
        " [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error while reading file x."
        "  SQLSTATE: KD001\n\tat org.apache.spark.sql.errors.QueryExecutionErrors"
    )
    assert "Encountered error while reading file x." == message


def test_a_better_explanation_replaces_sparks_message() -> None:
    """It has its own file and line."""
    explanation = "models/a/b.sql:9: x has a bad row"
    better = explain_model_errors(MODEL, lambda text: explanation if "FAILED" in text else None)
    with pytest.raises(WarehouseError, match=f"^{explanation}$"), better:
        raise AnalysisException("[FAILED_READ_FILE.NO_HINT] no")
    with pytest.raises(WarehouseError, match=r"^models/a/b\.sql:4: no$"), explain_model_errors(MODEL, lambda _: None):
        raise AnalysisException("[FAILED_READ_FILE.NO_HINT] no")


def test_a_missing_part_of_the_machine_is_not_reported_at_a_line() -> None:
    """The user would look for a mistake in a correct query."""
    with pytest.raises(SparkSetupError, match=r"^there is no Java here$"), explain_model_errors(MODEL):
        raise SparkSetupError("there is no Java here")
