"""The conversion of an Arrow table's rows to JSON texts, column by column, which is many times faster than by row.

Dates and times become ISO 8601 texts, and decimals exact texts. Binary values become base64. Structs and maps become
objects. NaN and infinities become null, as in orjson.
"""

import base64
import datetime
import logging
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ondatra_dagster.row_changes import Json, format_key

logger = logging.getLogger(__name__)

Converter: TypeAlias = Callable[[Any], Json]
MAX_PLAIN_SCALE = 6  # for a decimal with more decimal places, Arrow writes small numbers with an exponent
WHOLE_SECONDS, WHOLE_MILLISECONDS = r"\.000000$", r"(\.\d{3})000$"


def json_columns(table: pa.Table) -> list[list[Json]]:
    """Return the table's columns, each as a list of JSON values."""
    return [_json_values(column, field) for column, field in zip(table.columns, table.schema, strict=True)]


def array_texts(columns: Sequence[Sequence[Json]]) -> list[str]:
    """Return each row as the text of a JSON array."""
    dumps = orjson.dumps
    return [dumps(row).decode() for row in zip(*columns, strict=True)]


def object_texts(names: Sequence[str], columns: Sequence[Sequence[Json]]) -> list[str]:
    """Return each row as the text of a JSON object."""
    return [orjson.dumps(dict(zip(names, row, strict=True))).decode() for row in zip(*columns, strict=True)]


def key_identifiers(columns: Sequence[Sequence[Json]]) -> list[str]:
    """Return the identifier of each row, made from the values of its key's columns."""
    return [format_key(values) for values in zip(*columns, strict=True)]


def _json_values(column: pa.ChunkedArray, field: pa.Field) -> list[Json]:
    type_ = field.type
    if pa.types.is_timestamp(type_):
        return _timestamps(column, type_)
    if pa.types.is_date(type_):
        return _cast_to_text(column)
    if pa.types.is_decimal(type_) and 0 <= type_.scale <= MAX_PLAIN_SCALE:
        return _cast_to_text(column)
    _warn_of_lost_numbers(column, field.name)
    converter = _converter(type_)
    values = _python_values(column)
    if converter is None:
        return values
    return [None if value is None else converter(value) for value in values]


def _cast_to_text(column: pa.ChunkedArray) -> list[Json]:
    texts: list[Json] = pc.cast(column, pa.string()).to_pylist()
    return texts


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the column's values as Python objects. In a text that isn't UTF-8, invalid bytes are replaced."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        if not pa.types.is_string(column.type):
            raise
        raw_values = pc.cast(column, pa.binary()).to_pylist()
        return [None if value is None else value.decode(errors="replace") for value in raw_values]
    return values


def _timestamps(column: pa.ChunkedArray, arrow_type: pa.TimestampType) -> list[Json]:
    texts = pc.strftime(pc.cast(column, pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S")
    texts = pc.replace_substring_regex(texts, WHOLE_SECONDS, "")
    texts = pc.replace_substring_regex(texts, WHOLE_MILLISECONDS, r"\1")
    if arrow_type.tz is not None:
        texts = pc.binary_join_element_wise(texts, "Z", "")
    return _cast_to_text(texts)


def _warn_of_lost_numbers(column: pa.ChunkedArray, name: str) -> None:
    lost_count = sum(
        len(numbers) - numbers.null_count - (pc.sum(pc.is_finite(numbers)).as_py() or 0)
        for chunk in column.chunks
        for numbers in _floats(chunk)
    )
    if lost_count:
        logger.warning("column=%s values=%d: NaN and infinities are sent as null", name, lost_count)


def _floats(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of floating point numbers: the array itself, or those nested in it."""
    if pa.types.is_floating(values.type):
        yield values
    elif pa.types.is_struct(values.type):
        for child in values.flatten():
            yield from _floats(child)
    elif pa.types.is_map(values.type):
        start_offset, end_offset = values.offsets[0].as_py(), values.offsets[-1].as_py()
        for child in (values.keys, values.items):
            yield from _floats(child.slice(start_offset, end_offset - start_offset))
    elif pa.types.is_nested(values.type):
        yield from _floats(values.flatten())


def _converter(arrow_type: pa.DataType) -> Converter | None:
    """Return the function that turns a value of this type into a JSON value; None if Python's value is JSON already."""
    if pa.types.is_nested(arrow_type):
        return _nested_converter(arrow_type)
    for is_type, converter in CONVERTERS:
        if is_type(arrow_type):
            return converter
    if pa.types.is_timestamp(arrow_type):
        return _zoned_text if arrow_type.tz is not None else _time_text
    return None


def _nested_converter(arrow_type: pa.DataType) -> Converter:
    if pa.types.is_struct(arrow_type):
        field_converters = [(field.name, _null_safe(_converter(field.type))) for field in arrow_type]
        return lambda value: {name: convert(value[name]) for name, convert in field_converters}
    if pa.types.is_map(arrow_type):
        key, item = _converter(arrow_type.key_type), _null_safe(_converter(arrow_type.item_type))
        return lambda entries: {_key_text(key(k) if key else k): item(v) for k, v in entries}
    element = _null_safe(_converter(arrow_type.value_type))
    return lambda values: [element(value) for value in values]


def _null_safe(converter: Converter | None) -> Converter:
    if converter is None:
        return lambda value: value
    return lambda value: None if value is None else converter(value)


def _key_text(key: Json) -> str:
    """Return the text that a map's key becomes in a JSON object."""
    return key if isinstance(key, str) else orjson.dumps(key).decode()


def _time_text(value: datetime.datetime) -> str:
    in_milliseconds = value.microsecond and not value.microsecond % 1000
    return value.isoformat(timespec="milliseconds" if in_milliseconds else "auto")


def _zoned_text(value: datetime.datetime) -> str:
    return _time_text(value.replace(tzinfo=None)) + "Z"


def _base64_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _shortest_float(value: float) -> float:
    """Return a 32-bit number as the shortest float: 0.1, not 0.10000000149011612."""
    if not math.isfinite(value):
        return value
    packed_value = struct.pack("f", value)
    return next(
        candidate
        for digits in range(1, 10)
        if struct.pack("f", candidate := float(f"{value:.{digits}g}")) == packed_value or digits == 9
    )


CONVERTERS: tuple[tuple[Callable[[pa.DataType], bool], Converter], ...] = (
    (pa.types.is_float32, _shortest_float),
    (pa.types.is_decimal, lambda value: format(value, "f")),
    (pa.types.is_date, datetime.date.isoformat),
    (pa.types.is_binary, _base64_text),
    (pa.types.is_large_binary, _base64_text),
)
