"""The version of each thing that a model reads, as one text: where it is the same, so is what was read.

What a version means for a model is decided in plan. Nothing here opens a file but for its log.
"""

import logging
from collections.abc import Callable, Mapping

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.delta_log import TableState, read_table_state, table_path
from ondatra_dagster.planning.file_versions import files_version
from ondatra_dagster.project.inputs.sources import table_of
from ondatra_dagster.project.model import FileInput, Input, ModelInput, SourceInput
from ondatra_dagster.project.settings.addresses import S3_SCHEMES, local_path, scheme_of
from ondatra_dagster.project.settings.settings import Settings

UNVERSIONED = "unversioned"  # nobody can tell whether it changed, so it counts as changed
MISSING = "missing"  # a model whose table was never made
NOT_THERE = "not there"  # a file, or a source's table

logger = logging.getLogger(__name__)

Tables = Callable[[str], TableState | None]  # model id → its table


def table_version(table: TableState) -> str:
    """The version of a Delta table: another table in the same place has another one."""
    return f"{table.table_id}@{table.version}"


def input_versions(inputs: tuple[Input, ...], settings: Settings, tables: Tables) -> dict[str, str]:
    """Each input's version by its name."""
    return {read.name: _version(read, settings, tables) for read in inputs}


def tables_of(settings: Settings) -> Tables:
    """The project's tables as their logs tell; each log is read once."""
    known: dict[str, TableState | None] = {}

    def table(model_id: str) -> TableState | None:
        if model_id not in known:
            known[model_id] = read_table_state(table_path(settings, model_id))
        return known[model_id]

    return table


def _version(read: Input, settings: Settings, tables: Tables) -> str:
    match read:
        case ModelInput(model=model):
            table = tables(model)
            return table_version(table) if table else MISSING
        case _:
            try:
                return _foreign_version(read, settings)
            except WarehouseError as error:  # that is for the model's own run to say: others may go on
                logger.warning("input=%s: %s", read.name, error)
                return UNVERSIONED


def _foreign_version(read: FileInput | SourceInput, settings: Settings) -> str:
    if isinstance(read, SourceInput):
        return _source_version(read, settings)
    version = files_version(settings, read.path)
    return UNVERSIONED if version is None else version or NOT_THERE


def _source_version(source: SourceInput, settings: Settings) -> str:
    folder = table_of(source, settings)
    if folder is None or not can_look(folder):
        return UNVERSIONED
    table = read_table_state(folder)
    if table:
        return table_version(table)
    path = local_path(folder)
    return NOT_THERE if path is not None and not path.is_dir() else UNVERSIONED


def can_look(address: str) -> bool:
    """Whether what is there can be told without Spark."""
    return local_path(address) is not None or scheme_of(address) in S3_SCHEMES


def changed_inputs(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names of inputs that are not as they were."""
    return [name for name, version in now.items() if before.get(name) != version]
