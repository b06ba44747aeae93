"""The files that a query names: whether they can be read, and as what.

Which files a path means is by the same rules for Spark and for the plan: it is resolved before Spark sees it.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.file_versions import bytes_here
from ondatra_dagster.project.inputs.file_options import SCHEMA
from ondatra_dagster.project.inputs.file_patterns import escaped, matches
from ondatra_dagster.project.inputs.sources import is_there, remedy_of
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput
from ondatra_dagster.project.settings.addresses import S3_SCHEMES, local_path
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.warehouse.csv_headers import comparing_names


def check_files(settings: Settings, model: Model) -> None:
    """Refuse files of this machine that can't be read as they are, before Spark is asked; WarehouseError."""
    for source in model.inputs:
        if isinstance(source, ModelInput):
            continue
        if not is_there(source, settings):
            what = source.path if isinstance(source, FileInput) else source.name
            raise WarehouseError(
                f"{_place(model, source)}: {what} isn't there; {remedy_of(source, settings)}"
            )
        if isinstance(source, FileInput) and source.format != "parquet" and not _schema(source):
            _check_not_empty(settings, model, source)


def _place(model: Model, source: Input) -> str:
    """The first line that names it."""
    first = min((each.start for each in model.references if each.input == source), default=0)
    return f"{model.file}:{model.sql_line + model.sql.count(chr(10), 0, first)}"


def _check_not_empty(settings: Settings, model: Model, source: FileInput) -> None:
    if bytes_here(settings, source.path) == 0:
        raise WarehouseError(
            f"{_place(model, source)}: {source.path} is empty, and nothing else tells its columns;"
            " add 'schema' = 'id INT, name STRING' to its WITH (…)"
        )


def read_files(session: SparkSession, settings: Settings, source: FileInput) -> DataFrame:
    options: Mapping[str, str] = {name: value for name, value in source.options if name.casefold() != SCHEMA}
    if source.format == "csv":
        options = comparing_names(options)
    reader = session.read.format(source.format).options(**options)
    schema = _schema(source)
    if schema:
        reader = reader.schema(schema)
    path = local_path(source.path)
    if path is None:
        return reader.load(as_spark_says(source.path))
    return reader.load([escaped(str(found)) for found in matches(settings.root, str(path))])


def _schema(source: FileInput) -> str | None:
    return next((value for name, value in source.options if name.casefold() == SCHEMA), None)


def as_spark_says(address: str) -> str:
    """Hadoop knows S3 by one name only."""
    scheme, mark, rest = address.partition("://")
    return f"s3a{mark}{rest}" if scheme.casefold() in S3_SCHEMES else address
