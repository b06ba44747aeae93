"""The columns of each Parquet file of an input: Spark takes those of one file for all.

A column that another file lacks would be null there, and one that only another has would be missing.
The files' footers are read without Spark, here and on S3. Files elsewhere can't be checked.
"""

import concurrent.futures
import functools
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.delta_log import read_table_state
from ondatra_dagster.planning.s3_objects import objects_at, s3_files
from ondatra_dagster.planning.versions import can_look
from ondatra_dagster.project.inputs.file_options import is_true, option
from ondatra_dagster.project.inputs.file_patterns import files_in, matches, pattern
from ondatra_dagster.project.inputs.sources import table_of
from ondatra_dagster.project.model import FileInput, Input, SourceInput
from ondatra_dagster.project.settings.addresses import S3_SCHEMES, local_path, scheme_of
from ondatra_dagster.project.settings.settings import Settings

MERGE = "mergeSchema"
MERGE_OF_ALL = "spark.sql.parquet.mergeSchema"
BY_TIME = ("modifiedBefore", "modifiedAfter")  # only Spark knows which files these leave out
AT_ONCE = 16
ALIKE = f"write the files alike, or say '{MERGE}' = 'true' to take what is missing as nulls"
TYPES = {  # as Spark names what Arrow reads
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

Open = Callable[[], IO[bytes] | pa.NativeFile]


class _File(NamedTuple):
    name: str  # for messages
    columns: Mapping[str, tuple[str, str]]  # casefolded → as it is spelled, its type


def differing_columns(settings: Settings, source: Input) -> str | None:
    """Return a sentence on the first column that isn't the same in all files; None when all are alike."""
    address = _address(settings, source)
    if (
        address is None
        or _merges(settings, source)
        or (_options(source) and option(_options(source), "schema"))
    ):
        return None
    files = _files(settings, source, address)
    first = next(files, None)
    if first is None:
        return None
    differences = (difference for other in files if (difference := _difference(first, other)))
    return next(differences, None)


def missing_columns(settings: Settings, source: FileInput, names: Sequence[str]) -> str | None:
    """Return a sentence on the first of these columns that a Parquet file doesn't have; None when all do."""
    address = _address(settings, source)
    if address is None or _merges(settings, source):
        return None
    for file in _files(settings, source, address):
        for name in names:
            if name.casefold() not in file.columns and not re.search(rf"(^|/){re.escape(name)}=", file.name):
                return f"{file.name} has no column {name!r}, which the schema names; {ALIKE}"
    return None


def _difference(first: _File, other: _File) -> str | None:
    for one, two in ((first, other), (other, first)):
        if missing := sorted(one.columns.keys() - two.columns.keys()):
            name = one.columns[missing[0]][0]
            return f"{two.name} has no column {name!r}, which {one.name} has; {ALIKE}"
    for key, (name, of) in first.columns.items():
        if other.columns[key][1] != of:
            return (
                f"column {name!r} is {of} in {first.name} and {other.columns[key][1]} in {other.name};"
                " write the files with one type, or read them as two inputs and CAST it"
            )
    return None


def _address(settings: Settings, source: Input) -> str | None:
    """Return where an input's Parquet files are; None for any other input."""
    if isinstance(source, FileInput):
        return source.path if source.format == "parquet" else None
    folder = table_of(source, settings) if isinstance(source, SourceInput) else None
    is_parquet = folder is not None and can_look(folder) and read_table_state(folder) is None
    return folder if is_parquet else None


def _options(source: Input) -> Sequence[tuple[str, str]]:
    return source.options if isinstance(source, FileInput) else ()


def _merges(settings: Settings, source: Input) -> bool:
    """Return whether the user asks for one schema of all files, or only Spark knows which files those are."""
    options = _options(source)
    of_all = settings.spark.conf.get(MERGE_OF_ALL, "")
    merges = is_true(options, MERGE) if option(options, MERGE) else of_all.casefold() == "true"
    return merges or any(option(options, each) for each in BY_TIME)


def _files(settings: Settings, source: Input, address: str) -> Iterator[_File]:
    """Read the footers of all files, some at once; what can't be read is left for Spark to refuse."""
    try:
        openers = dict(_openers(settings, source, address))
    except WarehouseError as error:  # Spark may have other keys than we
        logger.warning("input=%s: its files' columns can't be compared: %s", source.name, error)
        return
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        yield from filter(None, pool.map(_read, openers, openers.values()))


def _read(name: str, opened: Open) -> _File | None:
    try:
        with opened() as file, pq.ParquetFile(file) as footer:
            return _File(name, _columns(footer.schema))
    except (OSError, pa.ArrowInvalid) as error:
        logger.warning("file=%s: its columns can't be compared: %s", name, error)
        return None


def _openers(settings: Settings, source: Input, address: str) -> Iterator[tuple[str, Open]]:
    path = local_path(address)
    if path is not None:
        whole = is_true(_options(source), "recursiveFileLookup")
        for match in matches(settings.root, str(path)):
            for file in sorted(files_in(match)):
                if _is_read(file, match, is_recursive=whole) and _is_wanted(source, file.name):
                    inside = file.relative_to(settings.root) if file.is_relative_to(settings.root) else file
                    yield str(inside), functools.partial(_open_here, file)
    elif scheme_of(address) in S3_SCHEMES:
        store = s3_files(settings.s3)
        for each in objects_at(address, settings.s3):
            name = each.path.rpartition("/")[2]
            if not name.startswith("_") and _is_wanted(source, name):
                yield each.path, functools.partial(store.open_input_file, each.path)


def _open_here(file: Path) -> IO[bytes]:
    return file.open("rb")


def _is_read(file: Path, match: Path, *, is_recursive: bool) -> bool:
    """Return whether Spark reads it: in a folder below, only when that names a partition's value."""
    folders = file.relative_to(match).parts[:-1] if file != match else ()
    return not file.name.startswith("_") and (is_recursive or all("=" in folder for folder in folders))


def _is_wanted(source: Input, name: str) -> bool:
    written = option(_options(source), "pathGlobFilter")
    return written is None or bool(pattern(written).fullmatch(name))


def _columns(schema: pq.ParquetSchema) -> Mapping[str, tuple[str, str]]:
    old_times = {
        schema.column(place).path
        for place in range(len(schema))
        if schema.column(place).physical_type == "INT96"
    }
    return {
        field.name.casefold(): (
            field.name,
            "timestamp" if field.name in old_times else _spark_type(field.type),
        )
        for field in schema.to_arrow_schema()
    }


def _spark_type(of: pa.DataType) -> str:
    """Return the type's name in Spark: what is read alike is called alike."""
    if pa.types.is_dictionary(of):
        return _spark_type(of.value_type)
    if pa.types.is_timestamp(of):
        return "timestamp" if of.tz else "timestamp_ntz"
    if pa.types.is_decimal(of):
        return f"decimal({of.precision},{of.scale})"
    if pa.types.is_fixed_size_binary(of):
        return "binary"
    if pa.types.is_map(of):
        return f"map<{_spark_type(of.key_type)},{_spark_type(of.item_type)}>"
    if pa.types.is_struct(of):
        return f"struct<{','.join(f'{field.name}:{_spark_type(field.type)}' for field in of)}>"
    if pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_fixed_size_list(of):
        return f"array<{_spark_type(of.value_type)}>"
    return TYPES.get(str(of), str(of))
