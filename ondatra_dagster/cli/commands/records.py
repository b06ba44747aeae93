"""The command `ondatra records`, which lists the results of single rows, and the rows that are still to be sent."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from ondatra_dagster.cli.current_project import open_sync
from ondatra_dagster.cli.output import ColumnShrink, format_cell, print_json, print_message, print_shrunk_table
from ondatra_dagster.count_time_and_size_format import format_count, format_local_time
from ondatra_dagster.records.record_export import EXPORT_WRITERS, format_json_lines, write_export
from ondatra_dagster.records.record_query import RecordQuery, RecordStage, ResultRecord, explain_status
from ondatra_dagster.records.record_schema import INVALID_STATUSES
from ondatra_dagster.records.record_store import RecordStore
from ondatra_dagster.records.search_result_chunks_and_reason_counts import RecordChunk, iterate_records
from ondatra_dagster.sync.record_search import find_records
from ondatra_dagster.sync.sync_definition import Sync

MAX_RECORDS_SHOWN = 50  # the number of records that are printed by default
RECORDS_HEAD = ("status", "identifier", "operation", "when", "reason", "payload")
# on a narrow terminal these columns shrink, in this order: the reason matters most to the user
RECORDS_SHRINKS = (
    *(ColumnShrink("payload", 32), ColumnShrink("reason", 60), ColumnShrink("identifier", 24)),
    *(
        ColumnShrink("payload", 12),
        ColumnShrink("reason", 40),
        ColumnShrink("identifier", 12),
        ColumnShrink("reason", 24),
    ),
    *(ColumnShrink("payload", 0), ColumnShrink("reason", 12)),
)


@click.command("records")
@click.argument("sync")
@click.option("--run", "run_id", metavar="ID", help="Only records of this run; `ondatra history` lists runs.")
@click.option("--status", metavar="|".join(RecordStage), help="Only records with this status.")
@click.option("--search", "prefix", default="", metavar="PREFIX", help="Only identifiers that begin with this text.")
@click.option("--limit", type=click.IntRange(min=0), help=f"How many, the newest first; {MAX_RECORDS_SHOWN}, or all.")
@click.option(
    "--download",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write all of them to a file .csv, .json or .parquet.",
)
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per record.")
def command(sync: str, download: Path | None, as_json: bool, **filters: Any) -> int:  # noqa: FBT001 - click's call
    """Show the records of SYNC, the newest first: rows that were sent or invalid, and rows still to be sent."""
    workspace, chosen_sync = open_sync(sync)
    search = _build_search(**filters)
    if download:
        _check_download_file(download)
        _write_download(find_records(chosen_sync, workspace.tracking, search), download, as_json=as_json)
    elif as_json:
        for line in format_json_lines(find_records(chosen_sync, workspace.tracking, search)):
            click.echo(line)
    else:
        _print_records(chosen_sync, workspace.tracking, search)
    if search.includes_pending and (loss_message := workspace.try_read_queue(chosen_sync.id).loss_message):
        print_message(f"pending rows are missing: {loss_message}")
    return 0


def _build_search(*, run_id: str | None, status: str | None, prefix: str, limit: int | None) -> RecordQuery:
    return RecordQuery(
        run_id=run_id,
        stage=None if status is None else RecordStage.parse(status),
        status=status if status in INVALID_STATUSES else None,
        prefix=prefix,
        limit=limit,
    )


def _check_download_file(file: Path) -> None:
    """Raise UsageError before the search begins, if the results can't be written to this file."""
    if file.suffix.lower() not in EXPORT_WRITERS:
        *other_endings, last_ending = EXPORT_WRITERS
        raise click.UsageError(
            f"{file} has no known format; end its name with {', '.join(other_endings)} or {last_ending}"
        )
    if file.is_dir():
        raise click.UsageError(f"{file} is a folder; name a file in it")


def _write_download(parts: Iterator[RecordChunk], file: Path, *, as_json: bool) -> None:
    try:
        record_count = write_export(parts, file)
    except OSError as error:
        raise click.ClickException(f"{file} can't be written: {error.strerror or error}") from error
    if as_json:
        print_json({"file": str(file), "records": record_count})
    else:
        print_message(f"{file} has {format_count(record_count, 'record')}")


def _print_records(sync: Sync, tracking: RecordStore, search: RecordQuery) -> None:
    max_records = MAX_RECORDS_SHOWN if search.limit is None else search.limit
    # read one more than is printed, to know whether there are more
    search = dataclasses.replace(search, limit=max_records + 1)
    records = list(iterate_records(find_records(sync, tracking, search)))
    if not records:
        print_message(_no_records_message(sync, tracking, search))
        return
    print_shrunk_table(RECORDS_HEAD, map(_table_row, records[:max_records]), RECORDS_SHRINKS)
    if len(records) > max_records:
        print_message(f"(the newest {max_records}; --limit shows more, --download FILE writes all)")
    else:
        print_message(f"({format_count(len(records), 'record')})")


def _no_records_message(sync: Sync, tracking: RecordStore, search: RecordQuery) -> str:
    if not tracking.list_runs(sync.id):
        return f"{sync.id} has no records yet"
    if search.run_id and not search.includes_ended:
        return "nothing of this run is pending; pending rows are listed with the newest run, or without --run"
    if search.run_id and not (search.stage or search.prefix):
        return "no row ended in this run"
    if search.prefix and sync.identifier_hint:
        return f"no record matches; identifiers of {sync.id} are {sync.identifier_hint}"
    return "no record matches"


def _table_row(record: ResultRecord) -> Sequence[str]:
    attempts_text = f"tried {format_count(record.attempts, 'time')}" if record.attempts else ""
    reason = ": ".join(filter(None, (attempts_text, explain_status(record.status, record.status_message))))
    return (
        record.status,
        format_cell(record.identifier),
        record.operation,
        f"again {format_local_time(record.next_try_at)}"
        if record.next_try_at
        else format_local_time(record.batch_ended_at),
        format_cell(reason),
        format_cell(record.payload),
    )
