"""`ondatra query`: the rows of a table, without the columns that are ours alone. Mostly without Spark."""

import sys

import click

from ondatra_dagster.changes import Json
from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import as_cell, put_table, say
from ondatra_dagster.cli.width import shorter
from ondatra_dagster.planning.named_tables import named_table
from ondatra_dagster.warehouse.stored_rows import StoredRows, stored_rows
from ondatra_dagster.wording import count

SHOWN = 50  # rows that a person looks at
WIDEST = 40  # columns of a terminal that a value takes


@click.command("query")
@click.argument("table")
@click.option("--limit", type=click.IntRange(min=0), help=f"How many rows; {SHOWN}, with --json all.")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a row on stdout.")
def command(table: str, limit: int | None, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Show the rows of TABLE: a model, a source's table, or MODEL__invalid."""
    project = open_workspace().project
    limit = SHOWN if limit is None and not as_json else limit
    rows = stored_rows(project.settings, named_table(project, table), limit=limit)
    if as_json:
        for text in rows.objects():
            click.echo(text)
    else:
        _show(rows)
    return 0


def _show(rows: StoredRows) -> None:
    widest = WIDEST if sys.stdout.isatty() else None
    shown = [[_cell(value, widest) for value in row] for row in rows.values()]
    put_table(rows.columns, shown)
    if rows.total is None or len(shown) == rows.total:
        say(f"({count(len(shown), 'row')})")
    else:
        say(f"({len(shown)} of {count(rows.total, 'row')}; --limit shows more)")


def _cell(value: Json, widest: int | None) -> str:
    text = as_cell(value)
    return text if widest is None else shorter(text, widest)
