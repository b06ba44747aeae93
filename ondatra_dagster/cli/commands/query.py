"""The command `ondatra query`, which prints the rows of a table without hidden columns, mostly without Spark."""

import sys

import click

from ondatra_dagster.cli.current_project import open_workspace
from ondatra_dagster.cli.output import format_cell, print_message, print_table, shorten_text
from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.planning.find_table_and_columns import find_named_table
from ondatra_dagster.row_changes import Json
from ondatra_dagster.warehouse.read_rows_of_named_table import TableRows, read_table_rows

MAX_ROWS_SHOWN = 50  # the number of rows that are printed by default
MAX_VALUE_WIDTH = 40  # the width of one value, in columns of the terminal


@click.command("query")
@click.argument("table")
@click.option("--limit", type=click.IntRange(min=0), help=f"How many rows; {MAX_ROWS_SHOWN}, with --json all.")
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per row.")
def command(table: str, limit: int | None, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Show the rows of TABLE: a model, a source's table, or MODEL__invalid."""
    project = open_workspace().project
    limit = MAX_ROWS_SHOWN if limit is None and not as_json else limit
    rows = read_table_rows(project.settings, find_named_table(project, table), limit=limit)
    if as_json:
        for text in rows.json_objects():
            click.echo(text)
    else:
        _print_rows(rows)
    return 0


def _print_rows(rows: TableRows) -> None:
    max_width = MAX_VALUE_WIDTH if sys.stdout.isatty() else None
    shown_rows = [[_format_value(value, max_width) for value in row] for row in rows.json_rows()]
    print_table(rows.columns, shown_rows)
    if rows.row_count is None or len(shown_rows) == rows.row_count:
        print_message(f"({format_count(len(shown_rows), 'row')})")
    else:
        print_message(f"({len(shown_rows)} of {format_count(rows.row_count, 'row')}; --limit shows more)")


def _format_value(value: Json, widest: int | None) -> str:
    text = format_cell(value)
    return text if widest is None else shorten_text(text, widest)
