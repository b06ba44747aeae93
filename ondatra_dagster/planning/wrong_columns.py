"""Columns in models' queries that surely don't exist, found before Spark starts.

An input's columns are those that its definition names. Where that leaves them open, as SELECT * from a file
does, they are its table's, as long as nothing has changed that the table is made from.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from ondatra_dagster.errors import Problem
from ondatra_dagster.planning.delta_log import TableState, read_table_state
from ondatra_dagster.planning.noop_cache import Unchanged
from ondatra_dagster.planning.plan import last_run
from ondatra_dagster.planning.versions import (
    MISSING,
    NOT_THERE,
    UNVERSIONED,
    changed_inputs,
    input_versions,
    tables_of,
)
from ondatra_dagster.project.inputs.sources import table_of
from ondatra_dagster.project.lineage import KnownColumns, Lineage
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput, SourceInput
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.settings.addresses import local_path
from ondatra_dagster.project.sql.unresolved_columns import UnresolvedColumn
from ondatra_dagster.project.suggestions import correction

NOTHING_READ = "its SELECT reads nothing: add a FROM"
PATTERNS = "spark.sql.parser.quotedRegexColumnNames"  # with it a name may be a pattern
UNKNOWN_VERSIONS = (MISSING, NOT_THERE, UNVERSIONED)


IsSettled = Callable[[str], bool]  # model id → whether who reads it will find its table as it is now


def wrong_columns(
    project: Project, is_settled: IsSettled, models: Collection[str] | None = None
) -> list[Problem]:
    """Return a problem for each column that can't be resolved, of all models or of these ids."""
    if project.settings.spark.conf.get(PATTERNS, "").casefold() == "true":
        return []
    lineage = Lineage(project, settled_columns(project, is_settled))
    return [
        _problem(model, column)
        for model in project.models.values()
        if model.kind.has_query and (models is None or model.id in models)
        for column in lineage.unresolved(model)
    ]


def _problem(model: Model, column: UnresolvedColumn) -> Problem:
    return Problem(
        file=model.file,
        line=model.sql_line + column.line - 1,
        what=f"column {column.name!r} doesn't exist there",
        remedy=correction(column.unknown, column.known, plural="columns") if column.known else NOTHING_READ,
    )


def settled_columns(project: Project, is_settled: IsSettled) -> KnownColumns:
    """Return what knows the columns of settled tables, and of Delta tables of others on this machine."""
    tables = tables_of(project.settings)

    def columns(read: Input) -> Sequence[str] | None:
        state: TableState | None = None
        if isinstance(read, ModelInput) and is_settled(read.model):
            state = tables(read.model)
        elif isinstance(read, SourceInput):
            folder = table_of(read, project.settings)
            state = read_table_state(folder) if folder and local_path(folder) else None
        return [column.name for column in state.columns] if state else None

    return columns


def settled_tables(project: Project, unchanged: Mapping[str, Unchanged]) -> IsSettled:
    """Return a function that tells whether nothing has changed that a model's table is made from.

    Only what is on this machine is looked at: no network is opened.
    """
    known: dict[str, bool] = {}
    tables = tables_of(project.settings)
    is_local = local_path(project.settings.warehouse) is not None

    def is_settled(model_id: str) -> bool:
        if model_id not in known:
            known[model_id] = is_local and _is_settled(project.models[model_id])
        return known[model_id]

    def _is_settled(model: Model) -> bool:
        table = tables(model.id) if all(map(_is_here, model.inputs)) else None
        last = last_run(table, unchanged.get(model.id)) if table else None
        if last is None or last.definition != model.definition:
            return False
        versions = input_versions(model.inputs, project.settings, tables)
        if any(version in UNKNOWN_VERSIONS for version in versions.values()):
            return False
        above = (read.model for read in model.inputs if isinstance(read, ModelInput))
        return not changed_inputs(last.inputs, versions) and all(map(is_settled, above))

    def _is_here(read: Input) -> bool:
        if isinstance(read, FileInput):
            return local_path(read.path) is not None
        folder = table_of(read, project.settings) if isinstance(read, SourceInput) else None
        return isinstance(read, ModelInput) or (folder is not None and local_path(folder) is not None)

    return is_settled
