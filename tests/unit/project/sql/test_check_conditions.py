"""What a check may say, which columns it names, and what it is called."""

import pytest

from ondatra_dagster.project.header_value_parsers import HeaderValueError
from ondatra_dagster.project.model import CheckType
from ondatra_dagster.project.sql.check_conditions import build_row_checks, read_condition


def names(*conditions: str) -> list[str]:
    written = [(CheckType.CONSTRAINT, read_condition(text), line) for line, text in enumerate(conditions)]
    return [check.name for check in build_row_checks(written)]


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
def test_a_condition_tells_which_columns_it_needs(text: str, columns: list[str]) -> None:
    """They are looked for among those of the query, and shown of a row that fails."""
    assert columns == sorted(read_condition(text).columns)


def test_a_comment_behind_a_condition_is_none_of_it() -> None:
    """Spark would take the rest of its own text for the comment's."""
    assert "amount >= 0" == read_condition("amount >= 0  -- as the bank says").condition


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("amount::TEXT <> ''  -- never", "amount::STRING <> ''"),
        ("cast(paid as int8) > 0 and a::bool", "cast(paid as BIGINT) > 0 and a::BOOLEAN"),
        ("amount > 0", "amount > 0"),
    ],
)
def test_a_condition_speaks_the_dialects_that_queries_do(text: str, sql: str) -> None:
    """What people bring from DuckDB; its name and what is shown stay the user's."""
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
        ("json_object('a') = b", "one has no other"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, why: str) -> None:
    """At load: Spark would say it after a minute's work."""
    with pytest.raises(HeaderValueError) as caught:
        read_condition(text)
    assert why in caught.value.description


def test_a_check_is_named_after_what_it_says() -> None:
    """Dagster's page lists names: they should be read, and stay."""
    expected = ["constraint_amount_ge_0", "constraint_email_is_not_null", "constraint_a_eq_x_or_b_ne_1_5"]
    assert expected == names("amount >= 0", "email IS NOT NULL", "a = 'x' or b <> 1.5")


def test_no_two_checks_of_a_model_have_one_name() -> None:
    """Dagster would refuse the asset. Their order says nothing, so that a name doesn't move with it."""
    found = names("a = 'x'", "a = 'X'", "a > 1")
    assert 3 == len(set(found))
    assert found == names("a > 1", "a = 'X'", "a = 'x'")[::-1]


@pytest.mark.parametrize("text", ["'日' = '本'", " and ".join(f"column_{n} > 0" for n in range(20))])
def test_a_name_is_one_that_dagster_takes(text: str) -> None:
    """Short, and of plain letters, whatever the condition says."""
    (name,) = names(text)
    assert name.isascii()
    assert name.isidentifier()
    assert len(name) <= 80
