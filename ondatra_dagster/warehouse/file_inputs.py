"""The files that a query names: whether they can be read, and as what.

Which files a path means is by the same rules for Spark and for the plan: it is resolved before Spark sees it.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.file_versions import bytes_here
from ondatra_dagster.project.inputs.file_options import CORRUPT_NAME, MODE, SCHEMA, Mode, mode_of, option
from ondatra_dagster.project.inputs.file_patterns import escaped, matches
from ondatra_dagster.project.inputs.sources import is_there, remedy_of
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput
from ondatra_dagster.project.settings.addresses import S3_SCHEMES, local_path
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.warehouse.csv_headers import comparing_names
from ondatra_dagster.warehouse.json_documents import values_left_out
from ondatra_dagster.warehouse.parquet_columns import differing_columns, missing_columns

WITH_MODES = ("csv", "json")
MALFORMED = "__ondatra_malformed"  # no file has a column of that name, so no column is taken for it


def check_files(settings: Settings, model: Model) -> None:
    """Refuse files that can't be read as they are, before Spark is asked; WarehouseError."""
    for source in model.inputs:
        if isinstance(source, ModelInput):
            continue
        if not is_there(source, settings):
            what = source.path if isinstance(source, FileInput) else source.name
            raise WarehouseError(
                f"{place_of_input(model, source)}: {what} isn't there; {remedy_of(source, settings)}"
            )
        if isinstance(source, FileInput) and source.format != "parquet" and not _schema(source):
            _check_not_empty(settings, model, source)
        if problem := differing_columns(settings, source) or values_left_out(settings, source):
            raise WarehouseError(f"{place_of_input(model, source)}: {problem}")


def place_of_input(model: Model, source: Input) -> str:
    """Return the model's file and the first line that names the input."""
    first = min((each.start for each in model.references if each.input == source), default=0)
    return f"{model.file}:{model.sql_line + model.sql.count(chr(10), 0, first)}"


def _check_not_empty(settings: Settings, model: Model, source: FileInput) -> None:
    if bytes_here(settings, source.path) == 0:
        raise WarehouseError(
            f"{place_of_input(model, source)}: {source.path} is empty, and nothing else tells its columns;"
            " add 'schema' = 'id INT, name STRING' to its WITH (…)"
        )


def read_files(session: SparkSession, settings: Settings, source: FileInput) -> DataFrame:
    """Return the files' rows; nothing is computed yet, but where columns are found in the values."""
    rows = load_files(session, settings, source, _options(source), _schema(source))
    if _schema(source) and (problem := missing_columns(settings, source, rows.columns)):
        raise WarehouseError(problem)
    return rows


def load_files(
    session: SparkSession,
    settings: Settings,
    source: FileInput,
    options: Mapping[str, str],
    schema: str | StructType | None,
) -> DataFrame:
    """Return the files' rows as Spark reads them with just these options."""
    reader = session.read.format(source.format).options(**options)
    if schema:
        reader = reader.schema(schema)
    path = local_path(source.path)
    if path is None:
        return reader.load(as_spark_says(source.path))
    return reader.load([escaped(str(found)) for found in matches(settings.root, str(path))])


def _options(source: FileInput) -> Mapping[str, str]:
    options = own_options(source)
    return {**strict_options(source), **options} if source.format in WITH_MODES else options


def own_options(source: FileInput) -> Mapping[str, str]:
    """Return Spark's options as the model gives them; of CSV with the comparison of names in addition."""
    options = {name: value for name, value in source.options if name.casefold() != SCHEMA}
    return comparing_names(options) if source.format == "csv" else options


def strict_options(source: FileInput) -> Mapping[str, str]:
    """Return the options that make a row fail its model that can't be parsed, unless the model allows it."""
    mode = mode_of(source.options)
    if mode is Mode.PERMISSIVE:
        return {}
    # else Spark looks at just the columns that the query reads, and a row's length is never wrong
    whole_rows = {"columnPruning": "false"} if source.format == "csv" else {}
    return {MODE: mode.value, CORRUPT_NAME: MALFORMED, **whole_rows}


def _schema(source: FileInput) -> str | None:
    return option(source.options, SCHEMA)


def as_spark_says(address: str) -> str:
    """Hadoop knows S3 by one name only."""
    scheme, mark, rest = address.partition("://")
    return f"s3a{mark}{rest}" if scheme.casefold() in S3_SCHEMES else address
