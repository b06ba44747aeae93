"""The lookup of a table by its name, and of the table's columns as far as they are known without Spark."""

import dataclasses
from collections.abc import Callable, Sequence

from ondatra_dagster.deltalog.log_reader import TableState, read_table_state
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.column_lineage import TableColumnsLookup
from ondatra_dagster.project.inputs.input_resolution import source_locations, source_table_address
from ondatra_dagster.project.model import Input, ModelInput, SourceInput
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.settings.storage_access import StorageAddress, is_readable_without_spark
from ondatra_dagster.project.spelling_suggestions import find_nearest

TableStateLookup = Callable[[str], TableState | None]  # model id → the state of its table


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    name: str  # in the spelling of the model's file or the source
    address: StorageAddress | None  # None if the table is in a catalog
    remedy: str  # what the user should do if the table doesn't exist
    source: SourceInput | None = None


def find_named_table(project: Project, name: str) -> NamedTable:
    """Return the table with this name; raise SelectionError if there is no such table.

    Case is ignored in the names of models and sources.
    """
    table_id = name.replace("/", ".").casefold()
    model = project.models.get(table_id.removesuffix(INVALID_TABLE_SUFFIX))
    if model is not None:
        table = table_path(project.settings, model.id)
        if table_id == model.id:
            remedy = f"it has no table yet; run it first: ondatra run {model.name}"
            return NamedTable(name=model.name, address=table, remedy=remedy)
        invalid_table = StorageAddress(invalid_table_path(table), table.s3)
        remedy = "it never had an invalid row"
        return NamedTable(name=model.name + INVALID_TABLE_SUFFIX, address=invalid_table, remedy=remedy)
    schema, _, table_name = name.partition(".")
    for source, location in source_locations(project.settings).items():
        if table_name and source.casefold() == schema.casefold():
            source_input = SourceInput(source=source, table=table_name, location=location)
            address = source_table_address(source_input, project.settings)
            return NamedTable(
                name=source_input.name, address=address, remedy=_missing_table_remedy(source_input), source=source_input
            )
    raise SelectionError(f"there is no table {name!r}; {_suggest_table_names(project, name)}")


def _missing_table_remedy(source: SourceInput) -> str:
    if source.name.casefold() == SYNC_LOG_TABLE:
        return "it is created by a run with Spark that sends something, or by: ondatra maintain"
    return f"there is no such table in {source.location}"


def _suggest_table_names(project: Project, name: str) -> str:
    models = [model.name for model in project.models.values()]
    invalid_tables = [
        model.name + INVALID_TABLE_SUFFIX
        for model in project.models.values()
        if read_table_state(invalid_table_path(table_path(project.settings, model.id)))
    ]
    guess = find_nearest(name, [*models, *invalid_tables, SYNC_LOG_TABLE])
    if guess:
        return f"did you mean {guess}?"
    sources = [f"{source}.TABLE" for source in project.settings.sources]
    return (
        f"there are {', '.join([*sorted(models), *invalid_tables, *sources])}" if models else "there are no models yet"
    )


def columns_lookup(
    project: Project, model_table: TableStateLookup, is_readable: Callable[[StorageAddress], bool]
) -> TableColumnsLookup:
    """Return a function that looks up the columns of a model's table or of a source table.

    `model_table` finds the tables of models. `is_readable` says which source tables can be read.
    """

    def read_columns(input_: Input) -> Sequence[str] | None:
        state = model_table(input_.model) if isinstance(input_, ModelInput) else None
        if isinstance(input_, SourceInput):
            folder = source_table_address(input_, project.settings)
            state = read_table_state(folder) if folder is not None and is_readable(folder) else None
        return [column.name for column in state.columns] if state else None

    return read_columns


def current_columns_lookup(project: Project) -> TableColumnsLookup:
    """Return a function that looks up a table's columns.

    It knows source tables, and tables of models whose last run had their current definition.
    """

    def model_table(model_id: str) -> TableState | None:
        state = read_table_state(table_path(project.settings, model_id))
        metadata = state.commit_metadata if state else None
        return state if metadata and metadata.definition == project.models[model_id].definition else None

    return columns_lookup(project, model_table, is_readable_without_spark)


def table_path(settings: Settings, model_id: str) -> StorageAddress:
    """Return the address of a model's table: in the warehouse, or of the clone in a dry run."""
    clone_path = settings.dry_run_folder and settings.dry_run_folder.tables.get(model_id)
    return StorageAddress(clone_path, settings.s3) if clone_path else warehouse_table_path(settings, model_id)


def warehouse_table_path(settings: Settings, model_id: str) -> StorageAddress:
    """Return the address warehouse/SCHEMA/TABLE. Its spelling is that of the model's id."""
    return StorageAddress(settings.warehouse, settings.s3).join_names(*model_id.split("."))


def invalid_table_path(table: str) -> str:
    """Return the path of the table with the invalid rows of `table`."""
    return table + INVALID_TABLE_SUFFIX


INVALID_TABLE_SUFFIX = "__invalid"
SYNC_LOG_TABLE = "ondatra.sync_log"  # the table of all records, in the same folder as the models' tables
