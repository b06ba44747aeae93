"""The table that a user means by a name: a model's, one of rows that were set aside, a source's."""

import dataclasses

from ondatra_dagster.errors import SelectionError
from ondatra_dagster.planning.delta_log import (
    INVALID_SUFFIX,
    SYNC_LOG,
    invalid_path,
    read_table_state,
    table_path,
)
from ondatra_dagster.project.inputs.sources import sources_of, table_of
from ondatra_dagster.project.model import SourceInput
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.settings.addresses import Address
from ondatra_dagster.project.suggestions import nearest


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    name: str  # as it is spelled
    address: Address | None  # None: a catalog knows it
    remedy: str  # what to do when it isn't there
    source: SourceInput | None = None


def named_table(project: Project, name: str) -> NamedTable:
    """The table of that name, without regard to case where it is ours; raises SelectionError."""
    wanted = name.replace("/", ".").casefold()
    model = project.models.get(wanted.removesuffix(INVALID_SUFFIX))
    if model is not None:
        table = table_path(project.settings, model.id)
        if wanted == model.id:
            remedy = f"it has no table yet; run it first: ondatra run {model.name}"
            return NamedTable(name=model.name, address=table, remedy=remedy)
        aside = Address(invalid_path(table), table.s3)
        remedy = "it never had an invalid row"
        return NamedTable(name=model.name + INVALID_SUFFIX, address=aside, remedy=remedy)
    schema, _, table_name = name.partition(".")
    for source, location in sources_of(project.settings).items():
        if table_name and source.casefold() == schema.casefold():
            found = SourceInput(source=source, table=table_name, location=location)
            address = table_of(found, project.settings)
            return NamedTable(name=found.name, address=address, remedy=_remedy(found), source=found)
    raise SelectionError(f"there is no table {name!r}; {_correction(project, name)}")


def _remedy(source: SourceInput) -> str:
    if source.name.casefold() == SYNC_LOG:
        return "it is made when a run with Spark has sent something, or by: ondatra maintain"
    return f"there is no such table in {source.location}"


def _correction(project: Project, name: str) -> str:
    models = [model.name for model in project.models.values()]
    asides = [
        model.name + INVALID_SUFFIX
        for model in project.models.values()
        if read_table_state(invalid_path(table_path(project.settings, model.id)))
    ]
    guess = nearest(name, [*models, *asides, SYNC_LOG])
    if guess:
        return f"did you mean {guess}?"
    sources = [f"{source}.TABLE" for source in project.settings.sources]
    return (
        f"there are {', '.join([*sorted(models), *asides, *sources])}"
        if models
        else "there are no models yet"
    )
