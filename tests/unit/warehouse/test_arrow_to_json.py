"""The conversion of Arrow columns to JSON, in the form that the contract defines for rows."""

import datetime
import decimal
import logging

import orjson
import pyarrow as pa
import pytest

from ondatra_dagster.warehouse.arrow_to_json import array_texts, json_columns, key_identifiers, object_texts

UTC = datetime.UTC


def said(values: list[object], of: pa.DataType) -> list[object]:
    """Return the values after a conversion to JSON and back."""
    [column] = json_columns(pa.table({"c": pa.array(values, of)}))
    return [orjson.loads(orjson.dumps(value)) for value in column]


def test_times_are_iso_8601() -> None:
    """A UTC instant ends in Z, and a local time doesn't. The fraction has 0, 3 or 6 digits, as needed."""
    at = [datetime.datetime(2026, 1, 2, 3, 4, 5, micro, UTC) for micro in (0, 500_000, 123_456)]
    texts = ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.500Z", "2026-01-02T03:04:05.123456Z", None]
    assert texts == said([*at, None], pa.timestamp("us", "UTC"))
    assert [[text] for text in texts] == said([[value] for value in [*at, None]], pa.list_(pa.timestamp("us", "UTC")))
    local = [value.replace(tzinfo=None) for value in at]
    without_z = [text[:-1] if text else None for text in texts]
    assert without_z == said([*local, None], pa.timestamp("us"))
    assert [[text] for text in without_z] == said([[value] for value in [*local, None]], pa.list_(pa.timestamp("us")))
    assert ["0001-01-01", None] == said([datetime.date(1, 1, 1), None], pa.date32())


def test_decimals_are_exact_texts_without_exponents() -> None:
    """Most APIs don't accept a price with an exponent."""
    small = [decimal.Decimal("0.00000012"), decimal.Decimal("-1.00000000"), None]
    assert ["0.00000012", "-1.00000000", None] == said(small, pa.decimal128(20, 8))
    assert ["12.50", "0.00"] == said([decimal.Decimal("12.5"), decimal.Decimal(0)], pa.decimal128(10, 2))
    assert [["0.00000012"]] == said([[small[0]]], pa.list_(pa.decimal128(20, 8)))


def test_numbers_that_json_lacks_become_null_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert [None, None, 1.5, None] == said([float("nan"), float("inf"), 1.5, None], pa.float64())
    assert "column=c values=2" in caplog.text


def test_such_numbers_in_nested_values_become_null_with_a_warning_too(caplog: pytest.LogCaptureFixture) -> None:
    """There the column's type doesn't show that a number may be missing."""
    odd = float("nan")
    of = pa.struct([("l", pa.list_(pa.float32())), ("m", pa.map_(pa.string(), pa.float64())), ("f", pa.float64())])
    rows: list[object] = [
        {"l": [odd, 1.0], "m": {"a": odd, "b": 2.0}, "f": odd},
        {"l": None, "m": None, "f": None},
        None,
    ]
    with caplog.at_level(logging.WARNING):
        first, *_ = said(rows, of)
    assert {"l": [None, 1.0], "m": {"a": None, "b": 2.0}, "f": None} == first
    assert "column=c values=3" in caplog.text
    caplog.clear()
    said([{"l": [1.0], "m": {}, "f": 1.0}, *rows][:1], of)
    json_columns(pa.table({"c": pa.array(rows, of)}).slice(1))
    assert "" == caplog.text


def test_floats_have_as_few_digits_as_possible() -> None:
    assert [0.1, 16777216.0, 1e-45, 3.4028235e38] == said([0.1, 16777216.0, 1e-45, 3.4028235e38], pa.float32())


def test_binary_is_base64_and_invalid_text_is_replaced() -> None:
    assert ["AP8=", None] == said([b"\x00\xff", None], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")])
    assert [["a\ufffd"]] == json_columns(pa.table({"c": broken}))


def test_nested_values_are_lists_and_objects() -> None:
    of = pa.struct(
        [("m", pa.map_(pa.int32(), pa.list_(pa.date32()))), ("b", pa.binary()), ("s", pa.struct([("x", pa.int8())]))]
    )
    value = {"m": [(1, [datetime.date(2026, 1, 2), None]), (2, None)], "b": b"\x01", "s": None}
    assert [{"m": {"1": ["2026-01-02", None], "2": None}, "b": "AQ==", "s": None}, None] == said([value, None], of)


def test_rows_become_json_texts() -> None:
    columns = [[1, 2], ["a", None]]
    assert ['[1,"a"]', "[2,null]"] == array_texts(columns)
    assert ['{"x":1,"y":"a"}', '{"x":2,"y":null}'] == object_texts(["x", "y"], columns)
    assert ["1", "2"] == key_identifiers(columns[:1])
    assert ['[1,"a"]', "[2,null]"] == key_identifiers(columns)
