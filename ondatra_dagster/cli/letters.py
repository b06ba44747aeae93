"""How dead letters are shown: what a replay would send, and why it is dead."""

from collections.abc import Iterable

import click

from ondatra_dagster.cli.output import as_cell, harmless, put_json
from ondatra_dagster.delivery.queue.letters import DeadLetter
from ondatra_dagster.wording import count, moment


def put_letters(letters: Iterable[DeadLetter], *, as_json: bool) -> None:
    """Each with its key, error, attempts, and the rows that would go out."""
    for letter in letters:
        if as_json:
            put_json(
                {
                    "key": letter.key,
                    "version": letter.version,
                    "error": letter.error,
                    "attempts": letter.attempts,
                    "died_at": letter.died_at.isoformat(),
                    "sends": [{"change_type": str(change), "row": row} for change, row in letter.sends],
                }
            )
        else:
            _put_text(letter)


def _put_text(letter: DeadLetter) -> None:
    tried = "refused at once" if not letter.attempts else f"after {count(letter.attempts, 'attempt')}"
    click.echo(f"{as_cell(letter.key)}  {moment(letter.died_at)}, {tried}: {harmless(letter.error)}")
    for change, row in letter.sends:
        click.echo(f"    {change}  {as_cell(row)}")
