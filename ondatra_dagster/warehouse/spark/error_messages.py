"""The messages for Spark's errors: one sentence with the model's file instead of Spark's pages of text."""

import contextlib
import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.errors import SparkSetupError, WarehouseError
from ondatra_dagster.project.model import Model

ERROR_CLASS = re.compile(r"^\s*(?:\S*(?:Exception|Error): )?\[([A-Z0-9_.]+)\]\s*")
PY4J_PREFIX = re.compile(r"^An error occurred while calling \S+\s+: ")  # the text with which Py4J's messages begin
SQLSTATE_TAIL = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
LINE_NUMBER = re.compile(
    r"== SQL(?: of \w+)? \(line (\d+), position \d+\)|\(line (\d+), pos(?:ition)? \d+\)|; line (\d+) pos"
)
MAX_MESSAGE_LENGTH = 400


@contextlib.contextmanager
def explain_model_errors(model: Model, explain: Callable[[str], str | None] | None = None) -> Iterator[None]:
    """Turn an error that Spark raises inside the context into a WarehouseError with the model's file and line.

    `explain` gets Spark's message. If it knows the reason better, it returns a sentence that includes the file and
    line.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = _error_text(error)
        if explain and (explanation := explain(text)):
            raise WarehouseError(explanation) from None
        # don't chain Spark's error as the cause, because that adds a hundred frames and no information
        # the names in the query were replaced, but the line numbers are those of the user's file
        line_match = LINE_NUMBER.search(text)
        line = next((int(number) for number in line_match.groups() if number), 1) if line_match else 1
        raise WarehouseError(f"{model.file}:{model.sql_line + line - 1}: {shorten_message(text)}") from None
    except SparkSetupError:
        raise  # the model isn't the cause
    except WarehouseError as error:
        raise WarehouseError(f"{model.file}:{model.sql_line}: {error}") from error


@contextlib.contextmanager
def explain_spark_errors(place: str, *, raises: type[WarehouseError] = WarehouseError) -> Iterator[None]:
    """Turn an error that Spark raises inside the context into a WarehouseError with `place`.

    It is for work that runs no query of the user.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise raises(f"{place}: {spark_error_message(error)}") from None


def spark_error_message(error: Exception) -> str:
    """Return the error's message as a sentence."""
    return shorten_message(_error_text(error))


def shorten_message(text: str) -> str:
    """Return the message without the error's class, codes, plans and stack frames."""
    if message := header_error_message(text):
        return message
    message = SQLSTATE_TAIL.sub("", text.split("\n\nJVM stacktrace")[0])
    cause = re.search(r"Caused by: (\S+?): (\[[A-Z_.0-9]+\] .+)", text)
    if cause and not ERROR_CLASS.match(message):
        message = SQLSTATE_TAIL.sub("", cause.group(2))
    message = ERROR_CLASS.sub("", PY4J_PREFIX.sub("", message)).strip()
    short_message = " ".join(message.split("\n== ")[0].split())
    return short_message if len(short_message) <= MAX_MESSAGE_LENGTH else short_message[:MAX_MESSAGE_LENGTH] + "…"


def _error_text(error: Exception) -> str:
    if isinstance(error, Py4JError) and not getattr(error, "java_exception", None):
        return "Spark's process has ended; .ondatra/logs/spark.log says why; run again"
    return str(error)


# an option of Spark: if false, Spark compares the header's names with the columns and refuses differences
ENFORCE_SCHEMA = "enforceSchema"
NAME_MISMATCH = re.compile(
    r"CSV header does not conform to the schema\.\s+Header: (?P<header>.*)\s+Schema: (?P<schema>.*)"
    r"\s+Expected: .*\s+CSV file: (?P<file>.*)"
)
LENGTH_MISMATCH = re.compile(
    r"Number of column in CSV header is not equal to number of fields in the schema:"
    r"\s+Header length: (?P<header>\d+), schema size: (?P<schema>\d+)\s+CSV file: (?P<file>.*)"
)
HEADER_REMEDY = f"name them as in the file, or set '{ENFORCE_SCHEMA}' = 'true' to use only their position"


def header_error_message(text: str) -> str | None:
    """Return the sentence for a header that Spark refused; None if the error is about something else."""
    if match := NAME_MISMATCH.search(text):
        name, header, schema = _header_file_name(match), match["header"], match["schema"]
        return f"{name} has the columns {header}, where {schema} are read; {HEADER_REMEDY}"
    if match := LENGTH_MISMATCH.search(text):
        columns = format_count(int(match["header"]), "column")
        return f"{_header_file_name(match)} has {columns}, where {match['schema']} are read; {HEADER_REMEDY}"
    return None


def _header_file_name(match: re.Match[str]) -> str:
    return unquote(match["file"].strip().rpartition("/")[2])
