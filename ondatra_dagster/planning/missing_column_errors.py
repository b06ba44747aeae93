"""The columns in models' queries that certainly don't exist, found before Spark starts.

The columns of a model that is an input are read from its definition. If the definition doesn't show them, as in SELECT
* from a file, they are read from its table. The table is only used if nothing has changed since it was written.
"""

from collections.abc import Callable, Collection, Mapping

from ondatra_dagster.errors import Problem
from ondatra_dagster.planning.find_table_and_columns import columns_lookup
from ondatra_dagster.planning.input_versions import (
    INPUT_NOT_FOUND,
    MODEL_NOT_BUILT,
    UNVERSIONED,
    list_changed_inputs,
    read_input_versions,
    table_state_lookup,
)
from ondatra_dagster.planning.plan import find_last_run
from ondatra_dagster.planning.unchanged_run_cache import UnchangedRun
from ondatra_dagster.project.column_lineage import LineageResolver, TableColumnsLookup
from ondatra_dagster.project.inputs.input_resolution import source_table_address
from ondatra_dagster.project.model import Input, Model, ModelInput, SourceInput
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.settings.storage_access import local_path
from ondatra_dagster.project.spelling_suggestions import suggest_correction
from ondatra_dagster.project.sql.find_unresolved_columns import UnresolvedColumn

NO_FROM_REMEDY = "its SELECT reads nothing: add a FROM"
# with this setting of Spark, a name may be a regular expression
REGEX_COLUMNS_CONF = "spark.sql.parser.quotedRegexColumnNames"
UNKNOWN_VERSIONS = (MODEL_NOT_BUILT, INPUT_NOT_FOUND, UNVERSIONED)
IsUpToDate = Callable[[str], bool]  # model id → whether its table is up to date


def find_missing_columns(
    project: Project, is_up_to_date: IsUpToDate, models: Collection[str] | None = None
) -> list[Problem]:
    """Return a problem for each column that can't be resolved. `models` has ids; None means all models."""
    if project.settings.spark.conf.get(REGEX_COLUMNS_CONF, "").casefold() == "true":
        return []
    lineage = LineageResolver(project, up_to_date_columns_lookup(project, is_up_to_date))
    return [
        _problem(model, column)
        for model in project.models.values()
        if model.kind.has_query and (models is None or model.id in models)
        for column in lineage.find_unresolved_columns(model)
    ]


def _problem(model: Model, column: UnresolvedColumn) -> Problem:
    return Problem(
        file=model.file,
        line=model.sql_line + column.line - 1,
        description=f"column {column.name!r} doesn't exist there",
        remedy=suggest_correction(column.unknown, column.known_names, plural="columns")
        if column.known_names
        else NO_FROM_REMEDY,
    )


def up_to_date_columns_lookup(project: Project, is_up_to_date: IsUpToDate) -> TableColumnsLookup:
    """Return a function that looks up a table's columns.

    It knows models' tables that are up to date, and source tables that are on this machine.
    """
    tables = table_state_lookup(project.settings)
    return columns_lookup(
        project,
        lambda model_id: tables(model_id) if is_up_to_date(model_id) else None,
        lambda folder: local_path(folder) is not None,
    )


def up_to_date_check(project: Project, unchanged_runs: Mapping[str, UnchangedRun]) -> IsUpToDate:
    """Return a function that says whether a model's table is up to date with its definition and inputs.

    The function only reads files on this machine and opens no network connection.
    """
    is_settled_by_model: dict[str, bool] = {}
    tables = table_state_lookup(project.settings)
    is_local = local_path(project.settings.warehouse) is not None

    def is_up_to_date(model_id: str) -> bool:
        if model_id not in is_settled_by_model:
            is_settled_by_model[model_id] = is_local and has_current_table(project.models[model_id])
        return is_settled_by_model[model_id]

    def has_current_table(model: Model) -> bool:
        table = tables(model.id) if all(map(is_local_input, model.inputs)) else None
        last_run = find_last_run(table, unchanged_runs.get(model.id)) if table else None
        if last_run is None or last_run.definition != model.definition:
            return False
        versions = read_input_versions(model.inputs, project.settings, tables)
        if any(version in UNKNOWN_VERSIONS for version in versions.values()):
            return False
        upstream_models = (input_.model for input_ in model.inputs if isinstance(input_, ModelInput))
        return not list_changed_inputs(last_run.inputs, versions) and all(map(is_up_to_date, upstream_models))

    def is_local_input(input_: Input) -> bool:
        if isinstance(input_, SourceInput):
            folder = source_table_address(input_, project.settings)
            return folder is not None and local_path(folder) is not None
        return isinstance(input_, ModelInput) or local_path(input_.path) is not None

    return is_up_to_date
