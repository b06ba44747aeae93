"""Records as sync runs write them, in a store, and the result that a search should give."""

import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from ondatra_dagster.records.record_query import RecordQuery, ResultRecord
from ondatra_dagster.records.record_schema import SyncRecord
from ondatra_dagster.records.record_store import RecordStore

RECORDS_SYNC = "sync.contacts"
FIRST_RUN_AT = datetime(2026, 11, 18, 12, 0, 0, tzinfo=UTC)
STATUSES = ("succeeded", "rejected", "NULL", "DUPLICATE")


def build_run_id(number: int) -> str:
    return f"20261118T12{number:02}00Z-abcdef"


def build_record(identifier: str = "7", **fields: object) -> SyncRecord:
    record = SyncRecord(
        identifier=identifier,
        payload='{"id":"x"}',
        operation="upsert",
        status="succeeded",
        status_message=None,
        batch_started_at=FIRST_RUN_AT,
        batch_ended_at=FIRST_RUN_AT,
        rowid=7,
        change_type="insert",
        table_version=3,
        table_id="t-1",
    )
    return record._replace(**fields)


def build_found_record(run_id: str, record: SyncRecord) -> ResultRecord:
    """Return the record as a search returns it."""
    return ResultRecord(*record[:7], RECORDS_SYNC, run_id, *record[7:])


def publish_records(store: RecordStore, run_id: str, records: Iterable[SyncRecord], *, number: int = 0) -> None:
    """Publish the records, in one file for each of their types."""
    by_type: dict[object, list[SyncRecord]] = {}
    for record in records:
        by_type.setdefault(record.batch_type, []).append(record)
    for batch_type, of_type in by_type.items():
        store.publish_records(RECORDS_SYNC, run_id, batch_type, number, of_type)  # type: ignore[arg-type]


def random_records(chance: random.Random, *, run: int, count: int) -> Iterator[SyncRecord]:
    """Yield a run's records in the order of their ends; a few records share each moment, as in a batch."""
    moment = FIRST_RUN_AT + timedelta(minutes=run)
    for rowid in range(count):
        if chance.random() < 0.3:
            moment += timedelta(milliseconds=chance.randrange(1, 900))
        status = chance.choice(STATUSES)
        yield build_record(
            "".join(chance.choices("ab=é😀", k=chance.randrange(4))),
            payload=f'{{"n":{run * 1000 + rowid}}}',
            operation=chance.choice(("upsert", "delete")),
            status=status,
            status_message=None if status == "succeeded" else "no",
            batch_ended_at=moment,
            rowid=run * 1000 + rowid,
            change_type=chance.choice(("insert", "update_postimage", "delete")),
        )


def search_in_memory(search: RecordQuery, runs: Sequence[tuple[str, Sequence[SyncRecord]]]) -> set[ResultRecord]:
    """Return all records of the runs that the search should find."""
    return {
        build_found_record(run_id, record)
        for run_id, records in runs
        for record in records
        if search.run_id in (None, run_id)
        and search.matches(record.identifier, record.status, record.change_type, record.status_message)
    }
