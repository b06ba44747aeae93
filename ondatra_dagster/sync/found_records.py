"""A sync's records wherever they are: in files, settled in the queue, still to be sent; the newest first.

All of it as it was at one moment, that of the look at the queue. While a run goes on its rows move from the
queue into files, so the order of looking is what keeps a row from being missed, or told twice: the queue
first, then the files. Of a run that was going on at that moment only those files count whose rows had been
chosen by then, and runs that began after it don't count.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import orjson

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.delivery.queue.form import FORM
from ondatra_dagster.delivery.queue.settled import SettledRow
from ondatra_dagster.delivery.queue.states import looking_at
from ondatra_dagster.delivery.queue.tables import READ_META, read_layouts
from ondatra_dagster.delivery.queue.unpublished import ended_beside, files_begun
from ondatra_dagster.delivery.queue.unsettled import QueueLook, UnsettledRow
from ondatra_dagster.delivery.shapes import Form
from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.suggestions import nearest
from ondatra_dagster.store.database import Store
from ondatra_dagster.sync.records import records_of
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.addresses import BatchType, NumberedFile
from ondatra_dagster.tracking.found import FoundRecord, Search
from ondatra_dagster.tracking.parts import Aside, Part, parts_of, window
from ondatra_dagster.tracking.record import Operation
from ondatra_dagster.tracking.record_search import RunRecords, count_runs, search_runs
from ondatra_dagster.tracking.store import TrackingStore

NEWEST = 5  # runs that are named to whom asks for one that isn't there


def find_records(sync: Sync, tracking: TrackingStore, search: Search) -> Iterator[Part]:
    """What the search finds, in parts; raises SelectionError for a run that left nothing.

    What hasn't ended is told with the newest run: an older one has nothing to do with it any more.
    """
    unsettled, files = _look(sync, tracking, search)
    parts = itertools.chain(unsettled, search_runs(tracking, sync.id, search, files))
    return window(parts, offset=search.offset, limit=search.limit)


def count_records(sync: Sync, tracking: TrackingStore, search: Search) -> int:
    """How many records the search finds, were it without a limit."""
    unlimited = dataclasses.replace(search, limit=None, offset=0)
    unsettled, files = _look(sync, tracking, unlimited)
    waiting: int = sum(part.num_rows for part in unsettled)
    return waiting + count_runs(tracking, sync.id, unlimited, files)


def _look(sync: Sync, tracking: TrackingStore, search: Search) -> tuple[Iterable[Part], Sequence[RunRecords]]:
    """What the search finds in the queue of what hasn't ended, and where the records are of what has."""
    runs = set(tracking.runs(sync.id))  # those that a lost or an older queue doesn't know
    with looking_at(sync.queue) as store:
        if store is None:
            queue = _NO_QUEUE
        else:
            with store.snapshot():
                queue = _QueueSearch(sync, store, search).look(tracking)
                runs |= {run for run in tracking.runs(sync.id) if run <= queue.last_run}
    known = sorted({*runs, *queue.begun}, reverse=True)
    _refuse_unknown(sync, search.run_id, known)
    chosen = [run for run in known if search.run_id in (None, run)] if search.asks_for_ended else []
    files = [queue.going_on.get(run) or RunRecords(run_id=run) for run in chosen]
    is_newest = search.run_id in (None, *known[:1])
    return queue.unsettled if is_newest else (), files


def _refuse_unknown(sync: Sync, run_id: str | None, known: Sequence[str]) -> None:
    if run_id is None or run_id in known:
        return
    guess = nearest(run_id, known)
    proposal = f"did you mean {guess!r}? " if guess else ""
    listed = f"the newest runs are {', '.join(known[:NEWEST])}" if known else "no run has left any"
    raise SelectionError(f"{sync.id} has no records of a run {run_id!r}; {proposal}{listed}")


class _QueueRecords(NamedTuple):
    """What a search finds in a queue, put aside, so that nobody waits for its end."""

    unsettled: Iterable[Part]
    last_run: str
    begun: Collection[str]  # the runs that hadn't ended
    going_on: Mapping[str, RunRecords]  # of these, what was asked for


_NO_QUEUE = _QueueRecords((), "", (), {})


class _QueueSearch:
    """The queue's part of one search, at one moment."""

    def __init__(self, sync: Sync, store: Store, search: Search) -> None:
        self._sync = sync
        self._store = store
        self._search = search
        self._layouts = read_layouts(store)
        self._table_id = self._meta("table_id")

    def look(self, tracking: TrackingStore) -> _QueueRecords:
        begun = files_begun(self._store)
        wanted = [run for run in begun if self._search.run_id in (None, run)]
        return _QueueRecords(
            unsettled=self._aside(self._unsettled()) if self._search.asks_for_unsettled else (),
            last_run=self._meta("last_run"),
            begun=begun.keys(),
            going_on={run: self._run(run, begun[run], tracking) for run in wanted},
        )

    def _run(self, run_id: str, begun: Mapping[str, int], tracking: TrackingStore) -> RunRecords:
        listed = tracking.record_files(self._sync.id, run_id)
        files = [(kind, number) for kind, number in listed if number < begun.get(kind, 0)]
        return RunRecords(
            run_id=run_id,
            files=files,
            beside={kind: self._aside(self._ended(run_id, kind, files)) for kind in BatchType},
        )

    def _ended(self, run_id: str, kind: BatchType, files: Sequence[NumberedFile]) -> Iterator[FoundRecord]:
        """The rows of one type that are in none of these files."""
        numbers = [number for each, number in files if each is kind]
        settled = ended_beside(self._store, run_id, kind, numbers)
        records = records_of(
            (each for each in settled if self._takes(each[2])),
            layouts=self._layouts,
            operation=self._operation(is_delete=kind is BatchType.DELETED),
            table_id=self._table_id,
        )
        for record in records:
            yield FoundRecord(*record[:7], self._sync.id, run_id, *record[7:])

    def _takes(self, row: SettledRow) -> bool:
        return self._search.takes(row.key, row.status, row.change_type, row.message)

    def _unsettled(self) -> Iterator[FoundRecord]:
        text = self._meta(FORM)
        form = Form.load(text) if text else self._sync.form  # the model may have another by now
        queue = QueueLook(
            store=self._store,
            shape=form.shape,
            replaces_rows=form.replaces_rows,
            is_whole_table=form.is_whole_table,
        )
        for row in queue.unsettled(stage=self._search.stage, prefix=self._search.prefix):
            if self._search.takes(row.key, row.stage, row.change_type, row.message):
                yield self._found(row)

    def _found(self, unsettled: UnsettledRow) -> FoundRecord:
        rowid, layout, payload = unsettled.row
        return FoundRecord(
            identifier=unsettled.key,
            payload=orjson.dumps(self._layouts[layout].row(payload)).decode(),
            operation=self._operation(
                is_delete=unsettled.change_type is ChangeType.DELETE and not unsettled.is_context
            ),
            status=unsettled.stage,
            status_message=unsettled.message,
            batch_started_at=None,
            batch_ended_at=None,
            sync_id=self._sync.id,
            run_id=None,
            rowid=rowid,
            change_type=unsettled.change_type,
            table_version=unsettled.version,
            table_id=self._table_id,
            attempts=unsettled.attempts,
            next_try_at=None if unsettled.next_try_at is None else _moment(unsettled.next_try_at),
        )

    def _meta(self, name: str) -> str:
        return str(next((value for (value,) in self._store.rows(READ_META, (name,))), ""))

    def _operation(self, *, is_delete: bool) -> Operation:
        return Operation.DELETE if is_delete else self._sync.operation

    def _aside(self, records: Iterator[FoundRecord]) -> Aside:
        most = None if self._search.limit is None else self._search.offset + self._search.limit
        return Aside(parts_of(itertools.islice(records, most)))


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
