"""The reader of the files that a query names, and the checks of these files before Spark reads them.

A path is resolved to files before Spark gets it, so that Spark and the plan follow the same rules.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.input_versions import local_files_size
from ondatra_dagster.project.inputs.file_patterns import escape_pattern, find_matching_paths
from ondatra_dagster.project.inputs.input_resolution import absent_input_remedy, is_input_present
from ondatra_dagster.project.inputs.known_file_options_and_parse_mode import (
    CORRUPT_COLUMN_OPTION,
    MODE_OPTION,
    SCHEMA_OPTION,
    ParseMode,
    option_value,
    read_parse_mode,
)
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.settings.storage_access import S3_SCHEMES, local_path
from ondatra_dagster.warehouse.query_inputs.inconsistent_files import (
    differing_columns_problem,
    missing_columns_problem,
    multiline_json_problem,
)
from ondatra_dagster.warehouse.spark.error_messages import ENFORCE_SCHEMA
from ondatra_dagster.warehouse.spark.session import Warehouse

FORMATS_WITH_MODES = ("csv", "json")
MALFORMED_COLUMN = "__ondatra_malformed"  # no file has a column with this name, so Spark can't mistake a column for it


def check_input_files(settings: Settings, model: Model) -> None:
    """Raise WarehouseError for files that can't be read correctly, before Spark reads them."""
    for source in model.inputs:
        if isinstance(source, ModelInput):
            continue
        if not is_input_present(source, settings):
            input_name = source.path if isinstance(source, FileInput) else source.name
            raise WarehouseError(
                f"{place_of_input(model, source)}: {input_name} isn't there; {absent_input_remedy(source, settings)}"
            )
        if isinstance(source, FileInput):
            _check_not_empty(settings, model, source)
        if problem := differing_columns_problem(settings, source) or multiline_json_problem(settings, source):
            raise WarehouseError(f"{place_of_input(model, source)}: {problem}")


def place_of_input(model: Model, source: Input) -> str:
    """Return the model's file and the first line in which its query names the input."""
    first_start = min((reference.start for reference in model.references if reference.input == source), default=0)
    return f"{model.file}:{model.sql_line + model.sql.count(chr(10), 0, first_start)}"


def _check_not_empty(settings: Settings, model: Model, source: FileInput) -> None:
    is_typed = source.format == "parquet" or option_value(source.options, SCHEMA_OPTION)
    if not is_typed and local_files_size(settings, source.path) == 0:
        raise WarehouseError(
            f"{place_of_input(model, source)}: {source.path} is empty, so its columns are unknown;"
            " add 'schema' = 'id INT, name STRING' to its WITH (…)"
        )


def read_files(warehouse: Warehouse, source: FileInput) -> DataFrame:
    """Return the files' rows. Nothing is computed yet, unless Spark infers the columns from the files' content."""
    options, schema = model_options(source), option_value(source.options, SCHEMA_OPTION)
    if source.format in FORMATS_WITH_MODES:
        options = {**strict_options(source), **options}
    rows = load_files(warehouse, source, options, schema)
    if schema and (problem := missing_columns_problem(warehouse.settings, source, rows.columns)):
        raise WarehouseError(problem)
    return rows


def load_files(
    warehouse: Warehouse, source: FileInput, options: Mapping[str, str], schema: str | StructType | None
) -> DataFrame:
    """Return the files' rows as Spark reads them with these options and no others."""
    reader = warehouse.session.read.format(source.format).options(**options)
    if schema:
        reader = reader.schema(schema)
    path = local_path(source.path)
    if path is None:
        return reader.load(spark_address(source.path))
    paths = find_matching_paths(warehouse.settings.root, str(path))
    return reader.load([escape_pattern(str(file_path)) for file_path in paths])


def model_options(source: FileInput) -> Mapping[str, str]:
    """Return the options in the model's query, for Spark.

    For CSV, Spark also compares the names in the header, unless the query sets the option for this.
    """
    options = {name: value for name, value in source.options if name.casefold() != SCHEMA_OPTION}
    is_header_checked = source.format != "csv" or ENFORCE_SCHEMA.casefold() in map(str.casefold, options)
    return options if is_header_checked else {ENFORCE_SCHEMA: "false", **options}


def strict_options(source: FileInput) -> Mapping[str, str]:
    """Return the options that let a model fail at a malformed row; none if the model allows malformed rows."""
    mode = read_parse_mode(source.options)
    if mode is ParseMode.PERMISSIVE:
        return {}
    # with column pruning, Spark only parses the columns that the query reads, and overlooks rows of a wrong length
    whole_rows = {"columnPruning": "false"} if source.format == "csv" else {}
    return {MODE_OPTION: mode.value, CORRUPT_COLUMN_OPTION: MALFORMED_COLUMN, **whole_rows}


def spark_address(address: str) -> str:
    """Return the address with the scheme s3a if it is on S3, because Hadoop knows S3 by no other scheme."""
    scheme, separator, location = address.partition("://")
    return f"s3a{separator}{location}" if scheme.casefold() in S3_SCHEMES else address
