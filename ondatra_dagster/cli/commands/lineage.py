"""The command `ondatra lineage`, which shows the source columns of a model's columns, up to the raw files."""

from collections.abc import Iterator

import click

from ondatra_dagster.cli.current_project import open_workspace
from ondatra_dagster.cli.output import print_json, print_message
from ondatra_dagster.project.column_lineage import ColumnLineage, LineageBranch, LineageResolver
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput
from ondatra_dagster.project.project import Project
from ondatra_dagster.project.sql.column_name_resolution import ColumnOrigin
from ondatra_dagster.row_changes import Json

UNKNOWN_NOTE = "  (not known: the query doesn't show it)"
REPEATED_NOTE = "  (see above)"


@click.command("lineage")
@click.argument("name", metavar="MODEL[.COLUMN]")
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per column.")
def command(name: str, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Show the columns that a model's column, or each of its columns, is computed from.

    Only the project's files and the tables' logs are read. Columns that a query doesn't show are reported as unknown.
    """
    workspace = open_workspace()
    lineage = workspace.lineage
    model, column = _split_column(workspace.project, name)
    columns = (lineage.column(model, column),) if column else lineage.columns(model)
    for column_lineage in columns:
        if as_json:
            print_json(_column_object(lineage, model, column_lineage))
        else:
            click.echo("\n".join(_draw_tree(workspace.project, lineage.branch(model, column_lineage.name))))
    if not columns:
        print_message(f"the query of {model.name} doesn't name its columns, but its table will: run the model first")
    return 0


def _split_column(project: Project, name: str) -> tuple[Model, str | None]:
    """Return the model and the column that the user's text names. A column's name may contain dots."""
    schema, _, table_and_column = name.replace("/", ".", 1).partition(".")
    table, _, column = table_and_column.partition(".")
    return project.model(f"{schema}.{table}" if table else name), column or None


def _column_object(lineage: LineageResolver, model: Model, column: ColumnLineage) -> dict[str, Json]:
    sources, are_sources_known = lineage.sources(model, column.name)
    return {
        "model": model.name,
        "column": column.name,
        "is_known": column.is_known,
        "inputs": [_origin_object(origin) for origin in column.origins],
        "are_sources_known": are_sources_known,
        "sources": [_origin_object(origin) for origin in sources],
    }


def _origin_object(origin: ColumnOrigin) -> Json:
    return {"input": origin.input.name, "column": origin.column}


def _draw_tree(project: Project, branch: LineageBranch) -> Iterator[str]:
    """Yield a line for a column and, indented below it, lines for the columns that it is computed from."""
    note = (REPEATED_NOTE if branch.is_repeated else "") + ("" if branch.is_known else UNKNOWN_NOTE)
    yield f"{_input_name(project, branch.origin.input)}.{branch.origin.column}{note}"
    for branch_number, upstream_branch in enumerate(branch.upstream_branches, start=1):
        is_last = branch_number == len(branch.upstream_branches)
        lines = _draw_tree(project, upstream_branch)
        yield ("└─ " if is_last else "├─ ") + next(lines)
        yield from (("   " if is_last else "│  ") + line for line in lines)


def _input_name(project: Project, input_: Input) -> str:
    if isinstance(input_, ModelInput):
        return project.models[input_.model].name
    return f"{input_.format}.`{input_.path}`" if isinstance(input_, FileInput) else input_.name
