"""Which columns an input's table has now, as its log tells: for a lineage that goes through SELECT *."""

from collections.abc import Sequence

from ondatra_dagster.planning.delta_log import TableState, read_table_state, table_path
from ondatra_dagster.planning.versions import can_look
from ondatra_dagster.project.inputs.sources import table_of
from ondatra_dagster.project.lineage import KnownColumns
from ondatra_dagster.project.model import Input, ModelInput, SourceInput
from ondatra_dagster.project.project import Project


def known_columns(project: Project) -> KnownColumns:
    """The columns of models that were run as they are written now, and of Delta tables of others."""

    def columns(read: Input) -> Sequence[str] | None:
        state = _state(project, read)
        return [column.name for column in state.columns] if state else None

    return columns


def _state(project: Project, read: Input) -> TableState | None:
    settings = project.settings
    if isinstance(read, ModelInput):
        state = read_table_state(table_path(settings, read.model))
        definition = project.models[read.model].definition
        is_current = state is not None and state.note is not None and state.note.definition == definition
        return state if is_current else None
    folder = table_of(read, settings) if isinstance(read, SourceInput) else None
    return read_table_state(folder) if folder is not None and can_look(folder) else None
