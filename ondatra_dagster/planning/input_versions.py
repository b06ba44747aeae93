"""The version of each input of a model, as a text: equal versions mean equal content.

A table's version comes from its Delta log. The version of files is a digest of each file's path and size. It also
includes each file's time on this machine, or its ETag on S3. Only Spark can read files elsewhere, so they have no
version.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ondatra_dagster.deltalog.log_reader import TableState, read_table_state
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.find_table_and_columns import TableStateLookup, table_path
from ondatra_dagster.project.inputs.file_patterns import find_matching_paths, walk_files
from ondatra_dagster.project.inputs.input_resolution import source_table_address
from ondatra_dagster.project.model import FileInput, Input, ModelInput, SourceInput
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.settings.storage_access import S3_SCHEMES, is_readable_without_spark, local_path, scheme_of
from ondatra_dagster.storage.s3_filesystem_and_listing import FileState, list_objects

UNVERSIONED = "unversioned"  # changes of the input can't be detected, so it counts as changed
MODEL_NOT_BUILT = "missing"  # the input is a model without a table
INPUT_NOT_FOUND = "not there"  # the file or the table of a source doesn't exist

logger = logging.getLogger(__name__)


def format_table_version(table: TableState) -> str:
    """Return a Delta table's version as a text with the table's id. A new table at the same path has other versions."""
    return f"{table.table_id}@{table.version}"


def read_input_versions(inputs: tuple[Input, ...], settings: Settings, tables: TableStateLookup) -> dict[str, str]:
    """Return the version of each input, by the input's name."""
    return {input_.name: _read_input_version(input_, settings, tables) for input_ in inputs}


def table_state_lookup(settings: Settings) -> TableStateLookup:
    """Return a function that looks up the state of a model's table. Each Delta log is read only once."""
    states: dict[str, TableState | None] = {}

    def read_table(model_id: str) -> TableState | None:
        if model_id not in states:
            states[model_id] = read_table_state(table_path(settings, model_id))
        return states[model_id]

    return read_table


def _read_input_version(input_: Input, settings: Settings, tables: TableStateLookup) -> str:
    if isinstance(input_, ModelInput):
        table = tables(input_.model)
        return format_table_version(table) if table else MODEL_NOT_BUILT
    try:
        return _read_external_version(input_, settings)
    except WarehouseError as error:  # the run of this model reports the error; other models may continue
        logger.warning("input=%s: %s", input_.name, error)
        return UNVERSIONED


def _read_external_version(input_: FileInput | SourceInput, settings: Settings) -> str:
    if isinstance(input_, SourceInput):
        return _read_source_version(input_, settings)
    version = compute_files_version(settings, input_.path)
    return UNVERSIONED if version is None else version or INPUT_NOT_FOUND


def _read_source_version(source: SourceInput, settings: Settings) -> str:
    folder = source_table_address(source, settings)
    if folder is None or not is_readable_without_spark(folder):
        return UNVERSIONED
    table = read_table_state(folder)
    if table:
        return format_table_version(table)
    path = local_path(folder)
    return INPUT_NOT_FOUND if path is not None and not path.is_dir() else UNVERSIONED


def parse_table_version(version: str) -> tuple[str, int]:
    """Return the table's id and version number from a text that format_table_version() returned."""
    table_id, _, number = version.rpartition("@")
    return table_id, int(number)


def list_changed_inputs(old_versions: Mapping[str, str], new_versions: Mapping[str, str]) -> list[str]:
    """Return the names of the inputs whose version has changed."""
    return [name for name, version in new_versions.items() if old_versions.get(name) != version]


def compute_files_version(settings: Settings, pattern: str) -> str | None:
    """Return the version of the files at a path, pattern or address: "" without files, None if it is unknown."""
    path = local_path(pattern)
    if path is not None:
        return _digest_files(_find_local_files(settings.root, str(path)))
    if scheme_of(pattern) not in S3_SCHEMES:
        return None
    return _digest_files(list_objects(pattern, settings.s3))


def local_files_size(settings: Settings, pattern: str) -> int | None:
    """Return the total size of the files; None if they aren't on this machine."""
    path = local_path(pattern)
    return None if path is None else sum(file.size for file in _find_local_files(settings.root, str(path)))


def _find_local_files(root: Path, pattern: str) -> Iterator[FileState]:
    for path in (file for match in find_matching_paths(root, pattern) for file in walk_files(match)):
        try:
            state = path.stat()
        except FileNotFoundError:
            continue  # another process removed the file
        relative_path = path.relative_to(root) if path.is_relative_to(root) else path
        yield FileState(str(relative_path), state.st_size, str(state.st_mtime_ns))


def _digest_files(files: Iterable[FileState]) -> str:
    sorted_files = sorted(set(files))
    digest = hashlib.sha256()
    for file in sorted_files:
        digest.update(f"{file.path}\0{file.size}\0{file.change_tag}\n".encode(errors="surrogateescape"))
    return digest.hexdigest() if sorted_files else ""
