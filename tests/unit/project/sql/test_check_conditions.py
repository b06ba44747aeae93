"""The condition of a check: its syntax, the columns that it names, and the name of the check."""

import pytest

from ondatra_dagster.project.header_value_parsers import HeaderValueError
from ondatra_dagster.project.model import CheckType
from ondatra_dagster.project.sql.check_conditions import build_row_checks, read_condition


def names(*conditions: str) -> list[str]:
    checks = [(CheckType.CONSTRAINT, read_condition(text), line) for line, text in enumerate(conditions)]
    return [check.name for check in build_row_checks(checks)]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("amount >= 0", ["amount"]),
        ("`my amount` >= 0 -- never below", ["my amount"]),
        ("address.city IS NOT NULL AND address.zip RLIKE '^[0-9]+$'", ["address"]),
        ("exists(lines, line -> line.amount > limit)", ["limit", "lines"]),
        ("day <= current_date AND day < now()", ["day"]),
        ("datediff(MONTH, began, ended) BETWEEN 0 AND 12", ["began", "ended"]),
        ("CASE WHEN kind = 'a' THEN paid END", ["kind", "paid"]),
        ("amount::INT > 0", ["amount"]),
        ("is_paid", ["is_paid"]),
        ("true", []),
    ],
)
def test_a_condition_lists_the_columns_that_it_needs(text: str, columns: list[str]) -> None:
    """They must be among the query's columns, and a sample of a failing row shows them."""
    assert columns == sorted(read_condition(text).columns)


def test_a_comment_behind_a_condition_is_removed() -> None:
    """Otherwise the SQL that ondatra adds behind it would be part of the comment."""
    assert "amount >= 0" == read_condition("amount >= 0  -- as the bank says").condition


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("amount::TEXT <> ''  -- never", "amount::STRING <> ''"),
        ("cast(paid as int8) > 0 and a::bool", "cast(paid as BIGINT) > 0 and a::BOOLEAN"),
        ("amount > 0", "amount > 0"),
    ],
)
def test_a_condition_may_use_the_same_dialects_as_a_query(text: str, sql: str) -> None:
    """Users know these types from DuckDB. The check's name and the shown condition keep the user's text."""
    condition = read_condition(text)
    assert (sql, text.partition("  --")[0]) == (condition.sql, condition.condition)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("amount >=", "can't be parsed"),
        ("name = 'x", "can't be parsed"),
        ("a > 0; b > 0", "can't be parsed"),
        ("-- nothing", "can't be parsed"),
        ("a > 0, b > 0", "is not one condition"),
        ("a > 0 FROM t", "is not one condition"),
        ("a > 0 AS positive", "has a name"),
        ("a IN (SELECT b FROM c.d)", "asks a table"),
        ("sum(a) > 0", "is not about one row"),
        ("row_number() OVER (PARTITION BY a ORDER BY b) = 1", "is not about one row"),
        ("a + 1", "is neither true nor false"),
        ("'yes'", "is neither true nor false"),
        ("*", "is neither true nor false"),
        ("json_object('a') = b", "one of them is incomplete"),
    ],
)
def test_an_invalid_condition_is_refused(text: str, why: str) -> None:
    """It is refused at load. Spark would report it only after a minute of work."""
    with pytest.raises(HeaderValueError) as caught:
        read_condition(text)
    assert why in caught.value.description


def test_a_check_is_named_after_its_condition() -> None:
    """Dagster's page lists the names, so they must be readable and must not change."""
    expected = ["constraint_amount_ge_0", "constraint_email_is_not_null", "constraint_a_eq_x_or_b_ne_1_5"]
    assert expected == names("amount >= 0", "email IS NOT NULL", "a = 'x' or b <> 1.5")


def test_no_two_checks_of_a_model_have_the_same_name() -> None:
    """Dagster would refuse the asset. A name doesn't depend on the order of the checks."""
    check_names = names("a = 'x'", "a = 'X'", "a > 1")
    assert 3 == len(set(check_names))
    assert check_names == names("a > 1", "a = 'X'", "a = 'x'")[::-1]


@pytest.mark.parametrize("text", ["'日' = '本'", " and ".join(f"column_{n} > 0" for n in range(20))])
def test_a_check_name_is_valid_in_dagster(text: str) -> None:
    """It is short and has only ASCII letters, digits and _, whatever the condition contains."""
    (name,) = names(text)
    assert name.isascii()
    assert name.isidentifier()
    assert len(name) <= 80
