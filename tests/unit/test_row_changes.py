"""The row changes that the warehouse passes to delivery: the identifier of a row."""

import itertools
import math

import pytest

from ondatra_dagster.row_changes import Json, format_key, normalize_key_type

ODD: list[list[Json]] = [
    [[None], ["null"], ["[null]"], ['["[null]"]'], ["a\0b"], ['["a\\u0000b"]'], [""], [" "], ["a"], ["[a]"]],
    [[None], [math.nan], [math.inf], [-math.inf], [0.0], [1.0]],
    [[None, None], ["null", None], [None, "null"], ["a\0", "b"], ["a", "\0b"]],
    [[math.nan, 1], [math.inf, 1], [None, 1], [0.0, 1]],
]


@pytest.mark.parametrize("keys", ODD)
def test_no_two_keys_of_a_table_have_the_same_identifier(keys: list[list[Json]]) -> None:
    """The queue has one unit per identifier: of two rows with the same one, only one would arrive."""
    names = [format_key(key) for key in keys]

    assert [] == [pair for pair in itertools.combinations(names, 2) if pair[0] == pair[1]]
    assert not any("\0" in name for name in names)  # SQLite's JSON functions would cut the text there


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["c1"], "c1"),
        ([7], "7"),
        ([1.5], "1.5"),
        ([True], "true"),
        (["c1", 7], '["c1",7]'),
        ([None], "[null]"),
        (["[a]"], '["[a]"]'),
        ([math.nan], "NaN"),
        ([-math.inf], "-Infinity"),
        ([-0.0], "0.0"),  # Spark treats both as the same key
        ([-0.0, math.nan], '[0.0,"NaN"]'),
    ],
)
def test_the_identifier_of_a_key_is_its_value(values: list[Json], expected: str) -> None:
    """Users search for it in the records."""
    assert expected == format_key(values)


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ("int", "bigint", True),
        ("integer", "LONG", True),
        ("decimal(10,2)", "decimal(38, 2)", True),
        ("decimal(10,2)", "decimal(12,4)", False),
        ("int", "decimal(10,0)", False),
        ("int", "double", False),
        ("float", "double", False),
        ("date", "timestamp_ntz", False),
    ],
)
def test_types_with_the_same_text_form_are_known(one: str, other: str, *, are_alike: bool) -> None:
    """When a key's column gets a wider type, this decides whether its rows keep their identifiers."""
    assert are_alike == (normalize_key_type(one) == normalize_key_type(other))
