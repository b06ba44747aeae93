"""`ondatra lineage`: of which columns a model's columns are made, up to the raw files."""

from collections.abc import Iterator

import click

from ondatra_dagster.changes import Json
from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import put_json, say
from ondatra_dagster.project.lineage import Branch, ColumnLineage, Lineage
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.sql.relations import Origin

UNKNOWN = "  (not known: the query doesn't show it)"
REPEATED = "  (see above)"


@click.command("lineage")
@click.argument("name", metavar="MODEL[.COLUMN]")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a column on stdout.")
def command(name: str, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Show of which columns a model's column, or each of them, is made.

    Only texts and tables' logs are read; what a query doesn't show is said to be unknown.
    """
    workspace = open_workspace()
    lineage = workspace.lineage
    model, column = _split(workspace.project, name)
    columns = (lineage.column(model, column),) if column else lineage.columns(model)
    for each in columns:
        if as_json:
            put_json(_object(lineage, model, each))
        else:
            click.echo("\n".join(_drawn(workspace.project, lineage.branch(model, each.name))))
    if not columns:
        say(f"the query of {model.name} doesn't name its columns: its table will; run it first")
    return 0


def _split(project: Project, name: str) -> tuple[Model, str | None]:
    """The model, and the column behind its name: a column's own name may have dots."""
    schema, _, rest = name.replace("/", ".", 1).partition(".")
    table, _, column = rest.partition(".")
    return project.model(f"{schema}.{table}" if table else name), column or None


def _object(lineage: Lineage, model: Model, column: ColumnLineage) -> dict[str, Json]:
    sources, is_all = lineage.sources(model, column.name)
    return {
        "model": model.name,
        "column": column.name,
        "is_known": column.is_known,
        "inputs": [_origin(origin) for origin in column.origins],
        "are_sources_known": is_all,
        "sources": [_origin(origin) for origin in sources],
    }


def _origin(origin: Origin) -> Json:
    return {"input": origin.input.name, "column": origin.column}


def _drawn(project: Project, branch: Branch) -> Iterator[str]:
    """A column, and below it, further in, what it is made of."""
    yield _said(project, branch)
    for place, above in enumerate(branch.above, start=1):
        is_last = place == len(branch.above)
        lines = _drawn(project, above)
        yield ("└─ " if is_last else "├─ ") + next(lines)
        yield from (("   " if is_last else "│  ") + line for line in lines)


def _said(project: Project, branch: Branch) -> str:
    name = _name(project, branch.origin.input)
    note = (REPEATED if branch.is_repeated else "") + ("" if branch.is_known else UNKNOWN)
    return f"{name}.{branch.origin.column}{note}"


def _name(project: Project, read: Input) -> str:
    if isinstance(read, ModelInput):
        return project.models[read.model].name
    return f"{read.format}.`{read.path}`" if isinstance(read, FileInput) else read.name
