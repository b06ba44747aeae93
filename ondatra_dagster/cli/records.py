"""`ondatra records`: what became of single rows, and what is still to."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import Shrink, as_cell, put_json, put_table, say, shortened, terminal_width
from ondatra_dagster.sync.found_records import find_records
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.downloads import FORMATS, json_lines, write_download
from ondatra_dagster.tracking.found import FoundRecord, Search, Stage, why
from ondatra_dagster.tracking.parts import Part, records_of
from ondatra_dagster.tracking.record import INVALID
from ondatra_dagster.tracking.store import TrackingStore
from ondatra_dagster.wording import count, moment

SHOWN = 50  # records that a person looks at
HEAD = ("status", "identifier", "operation", "when", "reason", "payload")
# where a terminal is too narrow, in this order: why a row ended so is what one looks for
SHRINKS = (
    *(Shrink("payload", 32), Shrink("reason", 60), Shrink("identifier", 24)),
    *(Shrink("payload", 12), Shrink("reason", 40), Shrink("identifier", 12), Shrink("reason", 24)),
    *(Shrink("payload", 0), Shrink("reason", 12)),
)


@click.command("records")
@click.argument("sync")
@click.option("--run", "run_id", metavar="ID", help="Only of that run, see `ondatra history`.")
@click.option("--status", metavar="|".join(Stage), help="Only what has come so far.")
@click.option("--search", "prefix", default="", metavar="PREFIX", help="Only identifiers that begin so.")
@click.option("--limit", type=click.IntRange(min=0), help=f"How many, the newest first; {SHOWN}, or all.")
@click.option(
    "--download",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write all of them to a file .csv, .json or .parquet.",
)
@click.option("as_json", "--json", is_flag=True, help="One JSON object a record on stdout.")
def command(
    sync: str,
    run_id: str | None,
    status: str | None,
    prefix: str,
    limit: int | None,
    download: Path | None,
    as_json: bool,  # noqa: FBT001 - click calls it by name
) -> int:
    """Show the records of SYNC, the newest first: what was sent or set aside, and what is still to go."""
    workspace = open_workspace()
    chosen = workspace.sync(sync)
    search = Search(
        run_id=run_id,
        stage=None if status is None else Stage.named(status),
        status=status if status in INVALID else None,
        prefix=prefix,
        limit=limit,
    )
    if download:
        _refuse(download)
        _download(find_records(chosen, workspace.tracking, search), download, as_json=as_json)
    elif as_json:
        for line in json_lines(find_records(chosen, workspace.tracking, search)):
            click.echo(line)
    else:
        _show(chosen, workspace.tracking, search)
    if search.asks_for_unsettled and (lost := workspace.queue_seen(chosen.id).lost):
        say(f"pending rows aren't among them: {lost}")
    return 0


def _refuse(file: Path) -> None:
    """A file that can't be a download, before anything is looked for."""
    if file.suffix.lower() not in FORMATS:
        raise click.UsageError(f"{file} doesn't say what to write; let its name end on {_listed(FORMATS)}")
    if file.is_dir():
        raise click.UsageError(f"{file} is a folder; name a file in it")


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}"


def _download(parts: Iterator[Part], file: Path, *, as_json: bool) -> None:
    try:
        written = write_download(parts, file)
    except OSError as error:
        raise click.ClickException(f"{file} can't be written: {error.strerror or error}") from error
    if as_json:
        put_json({"file": str(file), "records": written})
    else:
        say(f"{file} has {count(written, 'record')}")


def _show(sync: Sync, tracking: TrackingStore, search: Search) -> None:
    most = SHOWN if search.limit is None else search.limit
    search = dataclasses.replace(search, limit=most + 1)  # one more tells whether there are more
    found = list(records_of(find_records(sync, tracking, search)))
    if not found:
        say(_nothing(sync, tracking, search))
        return
    rows = shortened(HEAD, map(_row, found[:most]), width=terminal_width(), shrinks=SHRINKS)
    put_table(HEAD, rows)
    if len(found) > most:
        say(f"(the newest {most}; --limit shows more, --download FILE writes all)")
    else:
        say(f"({count(len(found), 'record')})")


def _nothing(sync: Sync, tracking: TrackingStore, search: Search) -> str:
    if not tracking.runs(sync.id):
        return f"{sync.id} has no records yet"
    if search.run_id and not search.asks_for_ended:
        return "nothing of it waits; what a run leaves is told with the newest run, or without --run"
    if search.run_id and not (search.stage or search.prefix):
        return "no row ended in this run"
    if search.prefix and sync.identifiers_are:
        return f"no record is like that; identifiers of {sync.id} are {sync.identifiers_are}"
    return "no record is like that"


def _row(record: FoundRecord) -> Sequence[str]:
    return (
        record.status,
        as_cell(record.identifier),
        record.operation,
        _when(record),
        as_cell(_reason(record)),
        as_cell(record.payload),
    )


def _when(record: FoundRecord) -> str:
    if record.next_try_at:
        return f"again {moment(record.next_try_at)}"
    return moment(record.batch_ended_at)


def _reason(record: FoundRecord) -> str:
    tried = f"tried {count(record.attempts, 'time')}" if record.attempts else ""
    return ": ".join(filter(None, (tried, why(record.status, record.status_message))))
