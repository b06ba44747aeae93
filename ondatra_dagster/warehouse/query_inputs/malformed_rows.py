"""The rows of CSV and JSON files that can't be parsed: their files, their number, and the text of the first one.

Normally, files are read once, and Spark fails at the first malformed row. After such a failure the files are read
again, to count the malformed rows.
"""

import codecs
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import StringType, StructField, StructType

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.project.inputs.known_file_options_and_parse_mode import (
    CORRUPT_COLUMN_OPTION,
    MODE_OPTION,
    SCHEMA_OPTION,
    ParseMode,
    is_option_on,
    option_value,
    read_parse_mode,
)
from ondatra_dagster.project.model import FileInput, Model
from ondatra_dagster.project.settings.storage_access import local_path
from ondatra_dagster.warehouse.query_inputs.inconsistent_files import open_text_file
from ondatra_dagster.warehouse.query_inputs.input_file_reader import (
    FORMATS_WITH_MODES,
    MALFORMED_COLUMN,
    load_files,
    model_options,
    place_of_input,
)
from ondatra_dagster.warehouse.row_equality_and_hashes import column_of
from ondatra_dagster.warehouse.spark.error_messages import header_error_message
from ondatra_dagster.warehouse.spark.session import Warehouse

MALFORMED_CODES = ("MALFORMED_", "FAILED_READ_FILE", "FAILFAST")  # codes in Spark's messages about malformed rows
COMPARED_LENGTH = 1000  # so many characters of a row are compared to find its line
SHOWN_LENGTH = 100
SHOWN_COLUMNS = 8
OTHER_COLUMN = "__ondatra_other"
# with these options, a row may be something else than a line of UTF-8
LINE_OPTIONS = ("lineSep", "encoding", "charset")


class MalformedFile(NamedTuple):
    """A file with rows that can't be parsed: their number, and the first one."""

    file: str  # the file's name as Spark spells it
    row_count: int
    first_text: str  # the beginning of the first malformed row's text


def explain_malformed_rows(warehouse: Warehouse, model: Model) -> Callable[[str], str | None]:
    """Return a function that gets Spark's error message and describes the malformed rows in the model's files.

    The function returns None if no row is malformed.
    """

    def explain_failure(text: str) -> str | None:
        if header_error_message(text) or not any(code in text for code in MALFORMED_CODES):
            return None
        for source in model.inputs:
            if isinstance(source, FileInput) and source.format in FORMATS_WITH_MODES:
                is_strict = read_parse_mode(source.options) is ParseMode.FAIL
                if is_strict and (problem := _find_malformed_rows(warehouse, source)):
                    return f"{place_of_input(model, source)}: {problem}"
        return None

    return explain_failure


def _find_malformed_rows(warehouse: Warehouse, source: FileInput) -> str | None:
    """Return a sentence about the files' malformed rows; None if the failure has another reason."""
    try:
        rows = _read_leniently(warehouse, source)
        files = _count_malformed_rows(rows)
    except (PySparkException, Py4JError):
        return None  # the files can't be read at all, and Spark has reported that
    return _format_message(warehouse, source, rows, files) if files else None


def _read_leniently(warehouse: Warehouse, source: FileInput) -> DataFrame:
    """Return the files' rows. The texts of malformed rows are in an additional column."""
    options = {
        name: value
        for name, value in model_options(source).items()
        if name.casefold() not in (MODE_OPTION, CORRUPT_COLUMN_OPTION.casefold())
    }
    options = {**options, MODE_OPTION: ParseMode.PERMISSIVE.value, CORRUPT_COLUMN_OPTION: MALFORMED_COLUMN}
    if source.format == "csv":
        options["columnPruning"] = "false"
    fields = load_files(warehouse, source, options, option_value(source.options, SCHEMA_OPTION)).schema.fields
    columns = [field for field in fields if field.name != MALFORMED_COLUMN]
    if source.format == "json":  # Spark refuses to read only the texts of malformed rows
        columns.append(StructField(OTHER_COLUMN, StringType()))
    schema = StructType([*columns, StructField(MALFORMED_COLUMN, StringType())])
    return load_files(warehouse, source, options, schema)


def _count_malformed_rows(rows: DataFrame) -> list[MalformedFile]:
    """Count the malformed rows of each file. Every column is read, because any value may have a wrong type."""
    nulls = [column_of(name).isNull().cast("int") for name in rows.columns if name != MALFORMED_COLUMN]
    malformed_rows = rows.select(
        F.input_file_name().alias("file"),
        F.monotonically_increasing_id().alias("place"),
        F.substring(column_of(MALFORMED_COLUMN), 1, COMPARED_LENGTH).alias("text"),
        sum(nulls[1:], nulls[0]).alias("nulls"),
    ).where("text is not null")
    counts_by_file = malformed_rows.groupBy("file").agg(
        F.count("text").alias("rows"), F.min_by("text", "place").alias("first"), F.max("nulls")
    )
    return [MalformedFile(row["file"], row["rows"], row["first"]) for row in counts_by_file.orderBy("file").collect()]


def _format_message(warehouse: Warehouse, source: FileInput, rows: DataFrame, files: list[MalformedFile]) -> str:
    first = files[0]
    path = local_path(first.file)
    root = warehouse.settings.root
    name = str(path.relative_to(root)) if path and path.is_relative_to(root) else str(path or first.file)
    names = name if len(files) == 1 else f"{name} and {format_count(len(files) - 1, 'other file')}"
    number = None if path is None or _has_other_lines(source) else _line_of(path, first.first_text)
    line = f" in line {number}" if number else ""
    text = " ".join(first.first_text.split())
    shown_text = text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}…"
    return (
        f"{names} {'has' if len(files) == 1 else 'have'} {format_count(sum(file.row_count for file in files), 'row')}"
        f" that can't be parsed as {_format_columns(rows)}; the first{line} is {shown_text!r};"
        f" correct the file, or read such rows as nulls with '{MODE_OPTION}' = '{ParseMode.PERMISSIVE}' in its WITH (…)"
    )


def _format_columns(rows: DataFrame) -> str:
    fields = [field for field in rows.schema.fields if field.name not in (MALFORMED_COLUMN, OTHER_COLUMN)]
    descriptions = [f"{field.name} {field.dataType.simpleString()}" for field in fields[:SHOWN_COLUMNS]]
    return ", ".join([*descriptions, "…"] if len(fields) > SHOWN_COLUMNS else descriptions) or "JSON objects"


def _has_other_lines(source: FileInput) -> bool:
    """Return whether a row of the file may be something else than a line of UTF-8 text."""
    return is_option_on(source.options, "multiLine") or any(
        option_value(source.options, option) for option in LINE_OPTIONS
    )


def _line_of(path: Path, text: str) -> int | None:
    """Return the number of the first line that begins with the text; None if no line does."""
    if not path.is_file():
        return None  # the file is on the Spark server's machine
    beginning = text.encode()
    with open_text_file(path) as file:
        lines = enumerate(file, start=1)
        return next(
            (number for number, line in lines if line.removeprefix(codecs.BOM_UTF8).startswith(beginning)), None
        )
