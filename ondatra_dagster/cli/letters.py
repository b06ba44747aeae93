"""How dead letters are shown: what a replay would send, and why it is dead."""

from collections.abc import Iterable

import click

from ondatra_dagster.changes import Json
from ondatra_dagster.cli.output import as_cell, harmless, put_json, say, terminal_width
from ondatra_dagster.cli.width import shorter
from ondatra_dagster.delivery.queue.letters import DeadLetter
from ondatra_dagster.wording import count, moment


def put_letters(letters: Iterable[DeadLetter], *, as_json: bool) -> None:
    """Each with its key, error, attempts, and the rows that would go out, as far as a terminal has room."""
    if as_json:
        for letter in letters:
            put_json(_object(letter))
        return
    width = terminal_width()
    cut = sum(_put_text(letter, width) for letter in letters)
    if cut:
        say("(rows are cut off where the terminal ends; --json shows them whole)")


def _object(letter: DeadLetter) -> dict[str, Json]:
    return {
        "key": letter.key,
        "version": letter.version,
        "error": letter.error,
        "attempts": letter.attempts,
        "died_at": letter.died_at.isoformat(),
        "sends": [{"change_type": str(change), "row": row} for change, row in letter.sends],
    }


def _put_text(letter: DeadLetter, width: int | None) -> bool:
    """Whether something of its rows was cut off."""
    tried = "refused at once" if not letter.attempts else f"after {count(letter.attempts, 'attempt')}"
    click.echo(f"{as_cell(letter.key)}  {moment(letter.died_at)}, {tried}: {harmless(letter.error)}")
    lines = [f"    {change}  {as_cell(row)}" for change, row in letter.sends]
    shown = lines if width is None else [shorter(line, width) for line in lines]
    for line in shown:
        click.echo(line)
    return shown != lines
