"""Spark's failures as one sentence that names the model's file: Spark's own are pages long."""

import contextlib
import re
from collections.abc import Callable, Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ondatra_dagster.errors import SetUpError, WarehouseError
from ondatra_dagster.project.model import Model
from ondatra_dagster.warehouse.csv_headers import said_of_header

CLASS = re.compile(r"^\s*(?:\S*(?:Exception|Error): )?\[([A-Z0-9_.]+)\]\s*")
CALL = re.compile(r"^An error occurred while calling \S+\s+: ")  # as Py4J begins
TAIL = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
SHOWN = re.compile(
    r"== SQL(?: of \w+)? \(line (\d+), position \d+\)|\(line (\d+), pos(?:ition)? \d+\)|; line (\d+) pos"
)
LONGEST = 400


@contextlib.contextmanager
def explained(model: Model, explain: Callable[[str], str | None] | None = None) -> Iterator[None]:
    """Turn whatever Spark raises inside into a WarehouseError with the model's file and line.

    `explain` may know better than Spark what was wrong; its sentence has a place of its own.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = _text(error)
        if explain and (known := explain(text)):
            raise WarehouseError(known) from None
        # without Spark's error behind it: that brings a hundred frames, and no more than the sentence
        raise WarehouseError(f"{model.file}:{_line(text, model)}: {sentence(text)}") from None
    except SetUpError:
        raise  # no line of the model's is at fault
    except WarehouseError as error:
        raise WarehouseError(f"{model.file}:{model.sql_line}: {error}") from error


@contextlib.contextmanager
def explained_at(place: str, *, raises: type[WarehouseError] = WarehouseError) -> Iterator[None]:
    """The same where no query of the user's is at fault: the error names the table."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise raises(f"{place}: {said_by(error)}") from None


def said_by(error: Exception) -> str:
    """What Spark says, as a sentence."""
    return sentence(_text(error))


def sentence(text: str) -> str:
    """What Spark says, without its class, its codes, its plans and frames."""
    if said := said_of_header(text):
        return said
    said = TAIL.sub("", text.split("\n\nJVM stacktrace")[0])
    cause = re.search(r"Caused by: (\S+?): (\[[A-Z_.0-9]+\] .+)", text)
    if cause and not CLASS.match(said):
        said = TAIL.sub("", cause.group(2))
    said = CLASS.sub("", CALL.sub("", said)).strip()
    shortened = " ".join(said.split("\n== ")[0].split())
    return shortened if len(shortened) <= LONGEST else shortened[:LONGEST] + "…"


def _text(error: Exception) -> str:
    if isinstance(error, Py4JError) and not getattr(error, "java_exception", None):
        return "Spark's process is gone; look at .ondatra/logs/spark.log for why, and run again"
    return str(error)


def _line(text: str, model: Model) -> int:
    """The line of the file that Spark points at: names were replaced, but lines are the user's own."""
    shown = SHOWN.search(text)
    within = next((int(number) for number in shown.groups() if number), 1) if shown else 1
    return model.sql_line + within - 1
