"""The command `ondatra dead`, which lists the dead letters of a sync."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import click

from ondatra_dagster.app.workspace import QueueReadResult
from ondatra_dagster.cli.current_project import open_sync
from ondatra_dagster.cli.output import (
    format_cell,
    indent_lines,
    print_json,
    print_message,
    replace_control_characters,
    shorten_text,
    terminal_width,
)
from ondatra_dagster.count_time_and_size_format import format_count, format_local_time
from ondatra_dagster.delivery.queue.dead_letter_reading_and_replay import DeadLetter
from ondatra_dagster.row_changes import Json
from ondatra_dagster.sync.dead_letter_listing import describe_refusal, format_unit_name, list_dead_letters
from ondatra_dagster.sync.sync_definition import Sync

# the maximum number of a dead letter's rows that are printed: one dead letter may hold a whole table
MAX_ROWS_SHOWN = 10
# the maximum number of dead letters that are printed: after a bad day there may be a million
MAX_DEAD_LETTERS_SHOWN = 50


@click.command("dead")
@click.argument("sync")
@click.option(
    "--limit", type=click.IntRange(min=1), help=f"How many, the oldest first; {MAX_DEAD_LETTERS_SHOWN}, or all."
)
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per dead letter.")
def command(sync: str, limit: int | None, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """List the dead letters of SYNC: key, payload, error, attempts; exits with 1 when its queue is lost."""
    workspace, chosen_sync = open_sync(sync)
    if not show_dead_letters(chosen_sync, as_json=as_json, limit=limit):
        return report_no_dead_letters(workspace.try_read_queue(chosen_sync.id))
    if not as_json:
        print_message(f"\ncorrect the rows at their source, or send them unchanged: ondatra replay {sync}")
    return 0


def show_dead_letters(sync: Sync, *, as_json: bool, limit: int | None = None, since: datetime | None = None) -> bool:
    """Print the dead letters of a sync; return whether there are any. As text, only the oldest ones are printed."""
    if as_json:
        return _print_objects(list_dead_letters(sync, limit=limit, since=since))
    max_letters = limit or MAX_DEAD_LETTERS_SHOWN
    # read one more than is printed, to know whether there are more
    dead_letters = list(list_dead_letters(sync, limit=max_letters + 1, since=since, most_rows=MAX_ROWS_SHOWN))
    _print_texts(dead_letters[:max_letters], sync)
    if limit is None and len(dead_letters) > max_letters:
        print_message(f"(the oldest {max_letters}; --limit shows more, --json all)")
    return bool(dead_letters)


def report_no_dead_letters(read_result: QueueReadResult, *, message: str = "there are no dead letters") -> int:
    """Print that there are no dead letters, or why this is unknown. Return the exit code."""
    print_message(f"the dead letters are unknown: {read_result.loss_message}" if read_result.loss_message else message)
    return 1 if read_result.loss_message else 0


def _print_objects(letters: Iterable[DeadLetter]) -> bool:
    """Print each dead letter right after reading it, because there may be a million. Return whether there are any."""
    has_letters = False
    for dead_letter in letters:
        has_letters = True
        print_json(_dead_letter_object(dead_letter))
    return has_letters


def _print_texts(letters: Sequence[DeadLetter], sync: Sync) -> None:
    """Print each dead letter with its key, error, attempts and rows to send.

    The rows are cut to the terminal's width.
    """
    width = terminal_width()
    cut_count = sum(_print_text(dead_letter, sync, width) for dead_letter in letters)
    if cut_count:
        print_message("(rows are cut at the terminal's width; --json shows them completely)")


def _dead_letter_object(letter: DeadLetter) -> dict[str, Json]:
    return {
        "key": letter.key,
        "version": letter.version,
        "error": letter.error,
        "attempts": letter.attempts,
        "refused": letter.is_rejected,
        "died_at": letter.died_at.isoformat(),
        "rows": letter.row_count,
        "sends": [{"change_type": str(change), "row": row} for change, row in letter.rows_to_send],
    }


def _print_text(letter: DeadLetter, sync: Sync, width: int | None) -> bool:
    """Print a dead letter. Return whether its rows were cut off."""
    failure_text = describe_refusal(letter) or f"after {format_count(letter.attempts, 'attempt')}"
    key = format_cell(format_unit_name(letter, sync))
    click.echo(
        f"{key}  {format_local_time(letter.died_at)}, {failure_text}:"
        f" {indent_lines(replace_control_characters(letter.error))}"
    )
    lines = [f"    {change}  {format_cell(row)}" for change, row in letter.rows_to_send]
    shown_lines = lines if width is None else [shorten_text(line, width) for line in lines]
    for line in shown_lines:
        click.echo(line)
    if letter.row_count > len(letter.rows_to_send):
        more_rows = format_count(letter.row_count - len(letter.rows_to_send), "row")
        click.echo(f"    … and {more_rows} more, {letter.row_count} in all; --json has them")
    elif not letter.row_count:
        content_note = "its content, which has no rows" if letter.weight else "nothing: it is up to date"
        click.echo(f"    {content_note}")
    return shown_lines != lines
