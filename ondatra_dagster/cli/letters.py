"""How dead letters are shown: what a replay would send, and why it is dead."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import click

from ondatra_dagster.changes import Json
from ondatra_dagster.cli.output import as_cell, harmless, indented, put_json, say, terminal_width
from ondatra_dagster.cli.width import shorter
from ondatra_dagster.delivery.queue.letters import DeadLetter
from ondatra_dagster.orchestration.workspace import QueueSeen
from ondatra_dagster.sync.dead_letters import dead_letters, name_of, refusal
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.wording import count, moment

SHOWN = 10  # rows of a letter that people look at: a whole table may be one
LETTERS = 50  # of these that people look at: after one bad day there may be a million


def show_letters(
    sync: Sync, *, as_json: bool, limit: int | None = None, since: datetime | None = None
) -> bool:
    """Show the dead letters of a sync, to people the oldest of them; whether there are any."""
    if as_json:
        return _put_objects(dead_letters(sync, limit=limit, since=since))
    most = limit or LETTERS
    # one more tells whether there are more
    found = list(dead_letters(sync, limit=most + 1, since=since, most_rows=SHOWN))
    _put_texts(found[:most], sync)
    if limit is None and len(found) > most:
        say(f"(the oldest {most}; --limit shows more, --json all)")
    return bool(found)


def say_none(seen: QueueSeen, *, told: str = "there are no dead letters") -> int:
    """Say that there are none, or why nobody knows of any; the exit code."""
    say(f"nobody knows of dead letters: {seen.lost}" if seen.lost else told)
    return 1 if seen.lost else 0


def _put_objects(letters: Iterable[DeadLetter]) -> bool:
    """Write each as it is read: there may be a million. Return whether there are any."""
    is_any = False
    for letter in letters:
        is_any = True
        put_json(_object(letter))
    return is_any


def _put_texts(letters: Sequence[DeadLetter], sync: Sync) -> None:
    """Each with its key, error, attempts, and the rows that would go out, as far as a terminal has room."""
    width = terminal_width()
    cut = sum(_put_text(letter, sync, width) for letter in letters)
    if cut:
        say("(rows are cut off where the terminal ends; --json shows them whole)")


def _object(letter: DeadLetter) -> dict[str, Json]:
    return {
        "key": letter.key,
        "version": letter.version,
        "error": letter.error,
        "attempts": letter.attempts,
        "refused": letter.was_refused,
        "died_at": letter.died_at.isoformat(),
        "rows": letter.rows,
        "sends": [{"change_type": str(change), "row": row} for change, row in letter.sends],
    }


def _put_text(letter: DeadLetter, sync: Sync, width: int | None) -> bool:
    """Whether something of its rows was cut off."""
    tried = refusal(letter) or f"after {count(letter.attempts, 'attempt')}"
    key = as_cell(name_of(letter, sync))
    click.echo(f"{key}  {moment(letter.died_at)}, {tried}: {indented(harmless(letter.error))}")
    lines = [f"    {change}  {as_cell(row)}" for change, row in letter.sends]
    shown = lines if width is None else [shorter(line, width) for line in lines]
    for line in shown:
        click.echo(line)
    if letter.rows > len(letter.sends):
        left = count(letter.rows - len(letter.sends), "row")
        click.echo(f"    … and {left} more, {letter.rows} in all; --json has them")
    elif not letter.rows:
        told = "its content, which has no rows" if letter.weight else "nothing: it is as it should be"
        click.echo(f"    {told}")
    return shown != lines
