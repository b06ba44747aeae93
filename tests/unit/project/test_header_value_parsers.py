"""The times that a schedule accepts. Dagster accepts all of them, too."""

import pytest
from dagster._utils.schedules import is_valid_cron_string, schedule_execution_time_iterator

from ondatra_dagster.project.header_value_parsers import (
    CRON_NICKNAMES,
    ON_CHANGE,
    HeaderValueError,
    read_cron,
    read_schedule,
)


@pytest.mark.parametrize(
    "text",
    [
        *("0 6 * * *", "*/15 8-18 * * mon-fri", "0 0 1,15 * *", "5 4 * jan,JUL 0", "0 0 * * 7", "0-30/5 * * * *"),
        *("0  6 * *  sat", "59 23 31 12 *", "0 0 29 2 *", "0 0 31 */5 *", "0 0 30,31 1,2 *"),
        *sorted(CRON_NICKNAMES),
    ],
)
def test_a_repeating_time_is_accepted(text: str) -> None:
    """White space and case don't matter, and Dagster finds a next time for it."""
    cron = read_schedule(text)
    assert is_valid_cron_string(cron)
    assert next(schedule_execution_time_iterator(0.0, cron, "UTC"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("daily", "'daily' is not a time"),
        ("@dayly", "'@dayly' is not a time"),
        ("0 6 * *", "'0 6 * *' is not a time"),
        ("0 6 * * * *", "'0 6 * * * *' is not a time"),
        ("60 6 * * *", "a schedule has no minute '60'"),
        ("0 24 * * *", "a schedule has no hour '24'"),
        ("0 6 0 * *", "a schedule has no day '0'"),
        ("0 6 * foo *", "a schedule has no month 'foo'"),
        ("0 6 * * fri-mon", "a schedule has no weekday 'fri-mon'"),
        ("*/0 * * * *", "a schedule has no minute '*/0'"),
        (", * * * *", "a schedule has no minute ','"),
        ("0 0 30 2 *", "'0 0 30 2 *' never comes"),
        ("0 0 30,31 2 *", "'0 0 30,31 2 *' never comes"),
        ("0 0 31 4-6/2 *", "'0 0 31 4-6/2 *' never comes"),
        ("0 0 31 2 mon", "'0 0 31 2 mon' never comes"),
        ("0 0 31 feb,apr *", "'0 0 31 feb,apr *' never comes"),
        ("0 0 1 2/12 *", "a schedule has no month '2/12'"),
    ],
)
def test_a_time_that_never_comes_is_refused(text: str, what: str) -> None:
    """It is refused at load. Otherwise Dagster would raise the error for all definitions at once."""
    with pytest.raises(HeaderValueError) as caught:
        read_schedule(text)
    assert what == caught.value.description


@pytest.mark.parametrize("text", ["on changes", "on  Chang", "onchange", "on_change", "on-change", "change"])
def test_a_misspelled_on_change_is_corrected(text: str) -> None:
    """The rules for writing a time wouldn't help its user."""
    with pytest.raises(HeaderValueError) as caught:
        read_schedule(text)
    assert "did you mean 'on change'?" == caught.value.remedy


def test_an_unknown_schedule_is_refused_with_both_forms() -> None:
    """A setting that accepts only a time doesn't mention 'on change'."""
    for read, is_told in ((read_schedule, True), (read_cron, False)):
        with pytest.raises(HeaderValueError) as caught:
            read("now and then")
        assert is_told is ("on change" in caught.value.remedy)


def test_a_schedule_may_be_on_change() -> None:
    """It isn't a time, so a setting that needs one refuses it."""
    assert ON_CHANGE == read_schedule("On  Change")
    with pytest.raises(HeaderValueError, match="is not a time"):
        read_cron("on change")
