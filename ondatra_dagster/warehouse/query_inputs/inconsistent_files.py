"""The checks of input files that Spark would read wrongly: Parquet files, and JSON with one value per line.

Spark takes the columns from one Parquet file and uses them for all. A column that another file lacks would be null
there. A column that only another file has would be missing.

The files' footers are read without Spark, on this machine and on S3. Files elsewhere can't be checked.
"""

import codecs
import concurrent.futures
import contextlib
import functools
import gzip
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.inputs.file_patterns import compile_pattern, find_matching_paths, walk_files
from ondatra_dagster.project.inputs.input_resolution import source_table_address
from ondatra_dagster.project.inputs.known_file_options_and_parse_mode import is_option_on, option_value
from ondatra_dagster.project.model import FileInput, Input, SourceInput
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.settings.storage_access import S3_SCHEMES, is_readable_without_spark, local_path, scheme_of
from ondatra_dagster.storage.s3_filesystem_and_listing import list_objects, open_s3_filesystem

MERGE_OPTION = "mergeSchema"
MERGE_SETTING = "spark.sql.parquet.mergeSchema"
TIME_OPTIONS = ("modifiedBefore", "modifiedAfter")  # with these options, only Spark knows which files are read
MAX_READERS = 16
MERGE_REMEDY = (
    f"write all files with the same columns, or set '{MERGE_OPTION}' = 'true' to read missing columns as nulls"
)
SPARK_TYPES = {  # Arrow type → its name in Spark
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    **dict.fromkeys(("large_string", "string_view"), "string"),
    **dict.fromkeys(("large_binary", "binary_view"), "binary"),
    "date32[day]": "date",
}
logger = logging.getLogger(__name__)
OpenFile = Callable[[], IO[bytes] | pa.NativeFile]


class _ParquetColumns(NamedTuple):
    name: str  # the file's name, for messages
    columns: Mapping[str, tuple[str, str]]  # casefolded name → its spelling and type


def differing_columns_problem(settings: Settings, source: Input) -> str | None:
    """Return a sentence about the first column that differs between files; None if no column differs."""
    address = _parquet_address(settings, source)
    if (
        address is None
        or _merges_schemas(settings, source)
        or (_input_options(source) and option_value(_input_options(source), "schema"))
    ):
        return None
    files = _read_footers(settings, source, address)
    first_file = next(files, None)
    if first_file is None:
        return None
    differences = (difference for other_file in files if (difference := _first_difference(first_file, other_file)))
    return next(differences, None)


def missing_columns_problem(settings: Settings, source: FileInput, names: Sequence[str]) -> str | None:
    """Return a sentence about the first of these columns that a Parquet file lacks; None if every file has all."""
    address = _parquet_address(settings, source)
    if address is None or _merges_schemas(settings, source):
        return None
    for file in _read_footers(settings, source, address):
        for name in names:
            if name.casefold() not in file.columns and not re.search(rf"(^|/){re.escape(name)}=", file.name):
                return f"{file.name} has no column {name!r}, which the schema names; {MERGE_REMEDY}"
    return None


def _first_difference(first: _ParquetColumns, other: _ParquetColumns) -> str | None:
    for file, other_file in ((first, other), (other, first)):
        if missing_columns := sorted(file.columns.keys() - other_file.columns.keys()):
            name = file.columns[missing_columns[0]][0]
            return f"{other_file.name} has no column {name!r}, which {file.name} has; {MERGE_REMEDY}"
    for key, (name, type_) in first.columns.items():
        if other.columns[key][1] != type_:
            return (
                f"column {name!r} is {type_} in {first.name} and {other.columns[key][1]} in {other.name};"
                " write the files with one type, or read them as two inputs and CAST it"
            )
    return None


def _parquet_address(settings: Settings, source: Input) -> str | None:
    """Return the path or address of an input's Parquet files; None if the input has no Parquet files."""
    if isinstance(source, FileInput):
        return source.path if source.format == "parquet" else None
    folder = source_table_address(source, settings) if isinstance(source, SourceInput) else None
    is_parquet = folder is not None and is_readable_without_spark(folder) and read_table_state(folder) is None
    return folder if is_parquet else None


def _input_options(source: Input) -> Sequence[tuple[str, str]]:
    return source.options if isinstance(source, FileInput) else ()


def _merges_schemas(settings: Settings, source: Input) -> bool:
    """Return whether the files shouldn't be compared.

    This is so if the user wants the merged schema of all files, or if only Spark knows which files are read.
    """
    options = _input_options(source)
    merge_setting = settings.spark.conf.get(MERGE_SETTING, "")
    is_merged = (
        is_option_on(options, MERGE_OPTION)
        if option_value(options, MERGE_OPTION)
        else merge_setting.casefold() == "true"
    )
    return is_merged or any(option_value(options, option) for option in TIME_OPTIONS)


def _read_footers(settings: Settings, source: Input, address: str) -> Iterator[_ParquetColumns]:
    """Yield the columns in each file's footer. Several files are read at once. Unreadable files are left to Spark."""
    try:
        openers = dict(_openers(settings, source, address))
    except WarehouseError as error:  # Spark may have other S3 keys, so it may be able to read the files
        logger.warning("input=%s: its files' columns can't be compared: %s", source.name, error)
        return
    with concurrent.futures.ThreadPoolExecutor(MAX_READERS) as pool:
        yield from filter(None, pool.map(_read_footer, openers, openers.values()))


def _read_footer(name: str, open_file: OpenFile) -> _ParquetColumns | None:
    try:
        with open_file() as file, pq.ParquetFile(file) as footer:
            return _ParquetColumns(name, _footer_columns(footer.schema))
    except (OSError, pa.ArrowInvalid) as error:
        logger.warning("file=%s: its columns can't be compared: %s", name, error)
        return None


def _openers(settings: Settings, source: Input, address: str) -> Iterator[tuple[str, OpenFile]]:
    path = local_path(address)
    if path is not None:
        is_recursive = is_option_on(_input_options(source), "recursiveFileLookup")
        for match in find_matching_paths(settings.root, str(path)):
            for file in sorted(walk_files(match)):
                if _is_read_by_spark(file, match, is_recursive=is_recursive) and _matches_name_filter(
                    source, file.name
                ):
                    shown_path = file.relative_to(settings.root) if file.is_relative_to(settings.root) else file
                    yield str(shown_path), functools.partial(file.open, "rb")
    elif scheme_of(address) in S3_SCHEMES:
        store = open_s3_filesystem(settings.s3)
        for object_state in list_objects(address, settings.s3):
            name = object_state.path.rpartition("/")[2]
            if not name.startswith("_") and _matches_name_filter(source, name):
                yield object_state.path, functools.partial(store.open_input_file, object_state.path)


def _is_read_by_spark(file: Path, match: Path, *, is_recursive: bool) -> bool:
    """Return whether Spark reads the file.

    Unless `is_recursive`, a subfolder must name a partition's value, as in a=1.
    """
    folders = file.relative_to(match).parts[:-1] if file != match else ()
    return not file.name.startswith("_") and (is_recursive or all("=" in folder for folder in folders))


def _matches_name_filter(source: Input, name: str) -> bool:
    pattern = option_value(_input_options(source), "pathGlobFilter")
    return pattern is None or bool(compile_pattern(pattern).fullmatch(name))


def _footer_columns(schema: pq.ParquetSchema) -> Mapping[str, tuple[str, str]]:
    int96_columns = {
        schema.column(index).path for index in range(len(schema)) if schema.column(index).physical_type == "INT96"
    }
    return {
        field.name.casefold(): (field.name, "timestamp" if field.name in int96_columns else _spark_type(field.type))
        for field in schema.to_arrow_schema()
    }


def _spark_type(arrow_type: pa.DataType) -> str:
    """Return the name of an Arrow type in Spark. Types that Spark reads in the same way have the same name."""
    if pa.types.is_dictionary(arrow_type):
        return _spark_type(arrow_type.value_type)
    if pa.types.is_timestamp(arrow_type):
        return "timestamp" if arrow_type.tz else "timestamp_ntz"
    if pa.types.is_decimal(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if pa.types.is_fixed_size_binary(arrow_type):
        return "binary"
    if pa.types.is_map(arrow_type):
        return f"map<{_spark_type(arrow_type.key_type)},{_spark_type(arrow_type.item_type)}>"
    if pa.types.is_struct(arrow_type):
        return f"struct<{','.join(f'{field.name}:{_spark_type(field.type)}' for field in arrow_type)}>"
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type) or pa.types.is_fixed_size_list(arrow_type):
        return f"array<{_spark_type(arrow_type.value_type)}>"
    return SPARK_TYPES.get(str(arrow_type), str(arrow_type))


MAX_LINE_BYTES = 1_000_000  # a longer first line counts as a whole file


def multiline_json_problem(settings: Settings, source: Input) -> str | None:
    """Return a sentence about the first JSON file that has one value per line; None if no file has."""
    if not isinstance(source, FileInput) or source.format != "json" or not is_option_on(source.options, "multiLine"):
        return None
    path = local_path(source.path)
    for match in find_matching_paths(settings.root, str(path)) if path else ():
        for file in sorted(walk_files(match)):
            if _is_json_lines(file):
                name = file.relative_to(settings.root) if file.is_relative_to(settings.root) else file
                return f"{name} has one JSON value per line, and 'multiLine' reads only the first; remove the option"
    return None


def _is_json_lines(path: Path) -> bool:
    # Spark reports these errors when it reads the file
    with contextlib.suppress(gzip.BadGzipFile, EOFError), open_text_file(path) as file:
        first_line = file.readline(MAX_LINE_BYTES).removeprefix(codecs.BOM_UTF8)
        while first_line.isspace():
            first_line = file.readline(MAX_LINE_BYTES)
        try:
            orjson.loads(first_line)
        except orjson.JSONDecodeError:
            return False  # the first value continues in the next line
        return any(not line.isspace() for line in iter(lambda: file.readline(MAX_LINE_BYTES), b""))
    return False


def open_text_file(path: Path) -> "contextlib.closing[IO[bytes] | gzip.GzipFile]":
    """Open a text file for reading, which may be compressed."""
    return contextlib.closing(gzip.open(path) if path.suffix == ".gz" else path.open("rb"))
