"""The history of sync runs: one row for each run, stored in `.ondatra/history.sqlite`.

The record store has the single records. The queue has the rows that are still to be sent.
"""

import collections
import copy
import dataclasses
import enum
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

import orjson

from ondatra_dagster.errors import StateError
from ondatra_dagster.row_changes import Json
from ondatra_dagster.storage.file_errors import damage_error
from ondatra_dagster.storage.sqlite_database import (
    SqliteSchema,
    SqliteStore,
    SqlRow,
    SqlValue,
    open_existing_database,
    open_transaction,
)

log = logging.getLogger(__name__)

Content = TypeVar("Content")

HISTORY_SCHEMA = SqliteSchema(
    "history",
    (
        (
            "sync runs",
            """
            create table sync_runs (
                sync_id text not null,
                run_id text not null,
                model text not null,
                dagster_run_id text,
                started_at text not null,  -- ISO 8601 in UTC, so that text order is time order
                ended_at text,
                trigger text not null,
                mode text not null,
                reason text not null,
                version_from integer,
                version_to integer,
                counts text not null,
                result text not null,
                first_errors text not null,
                primary key (sync_id, run_id)
            ) strict;
            create index sync_runs_by_time on sync_runs (started_at)
            """,
        ),
    ),
    damage_advice=(
        "move it away: `ondatra history` starts again, and queues and records are unchanged; a queue"
        " that is lost at the same time then counts as one that never existed"
    ),
)

# a run that begins holds the lock of the sync's queue, so the process of an earlier "running" run has ended
CLOSE_CRASHED = "update sync_runs set result = 'crashed' where sync_id = :sync_id and result = 'running'"

# for a run whose process ended without noting the run's end; the counts are from what the run left
CLOSE_RUN = """
update sync_runs set result = 'crashed', counts = :counts
where sync_id = :sync_id and run_id = :run_id and result = 'running'
"""

# a run is inserted when it begins and replaced when it ends
WRITE_RUN = """
insert or replace into sync_runs values (
    :sync_id, :run_id, :model, :dagster_run_id, :started_at, :ended_at, :trigger, :mode, :reason,
    :version_from, :version_to, :counts, :result, :first_errors
)
"""

SELECT_RUNS = """
select sync_id, run_id, model, dagster_run_id, started_at, ended_at, trigger, mode, reason,
       version_from, version_to, counts, result, first_errors
from sync_runs
"""
SELECT_NEWEST = f"""{SELECT_RUNS}
where (:sync_id is null or sync_id = :sync_id) and (:with_dry or result <> 'dry')
    and (:run_id is null or run_id = :run_id)
order by {{order}}
limit :limit offset :offset
"""

# the times in a sync's run ids are in the order of its runs, even if the clock was set back between them
ORDER_OF_ONE_SYNC = "substr(run_id, 1, 16) desc, started_at desc, run_id desc"
ORDER_OF_ALL_SYNCS = "started_at desc, run_id desc"

SELECT_NEWEST_OF_EACH = f"""{SELECT_RUNS}
where (sync_id, run_id) in (
    select sync_id, max(run_id) from sync_runs where result <> 'dry' group by sync_id
)
"""

NEVER_BEGUN_REASON = "it was refused before the sync had ever begun"
SELECT_BEGUN = "select 1 from sync_runs where sync_id = ? and result <> 'dry' and reason <> ? limit 1"

# the counts of a sync's runs, and when one last succeeded; a dry run doesn't count
COUNT_RUNS = """
select sync_id, count(*), sum(result = 'failed' or result = 'crashed'), sum(result = 'interrupted'),
       max(case when result = 'succeeded' then run_id || ' ' || ended_at end)
from sync_runs where result <> 'dry' group by sync_id
"""
# runs that are noted as running, whether or not their process exists
SELECT_RUNNING = "select sync_id, run_id from sync_runs where result = 'running'"
# each grid row has a count for each of three operations
SUM_ROW_COUNTS = """
select sync_id, cell.key, sum(operation.value)
from sync_runs, json_each(counts, '$.grid') as cell, json_each(cell.value) as operation
where result <> 'dry' group by sync_id, cell.key
"""


class RunMode(enum.StrEnum):
    """The share of the table that a run reads."""

    FULL = "full"
    INCREMENTAL = "incremental"
    RETRY = "retry"  # no new changes, only waiting rows


class RunResult(enum.StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # by Ctrl-C or SIGTERM; what it did until then is counted
    CRASHED = "crashed"  # its process ended without noting the run's end
    DRY = "dry"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A sync run in the history; a run in progress has no end yet."""

    sync_id: str
    run_id: str
    model: str
    dagster_run_id: str | None
    started_at: datetime
    ended_at: datetime | None = None
    trigger: str  # what started the run: the command, a sensor, a schedule
    mode: RunMode
    reason: str  # why the run has this mode, in words
    version_from: int | None
    version_to: int | None = None
    counts: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    result: RunResult = RunResult.RUNNING
    first_errors: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SyncTotals:
    """The totals over all runs of a sync."""

    runs: int = 0
    failed_runs: int = 0  # crashed runs included
    interrupted_runs: int = 0
    last_success: datetime | None = None
    row_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)  # by outcome, such as succeeded


NO_TOTALS = SyncTotals()


class RunHistory:
    """The history of all sync runs of a project. Any number of processes may use it at the same time.

    `is_at_work` returns whether a process holds a sync's lock. If no process does, a run of the sync without
    a noted end has crashed. Deliveries don't need the history. If its file can't be read or written, a
    warning is logged, and the history counts as empty. The history from as_required() raises StateError
    instead.
    """

    def __init__(self, path: Path, *, is_at_work: Callable[[str], bool] = lambda _sync_id: True) -> None:
        self._path = path
        self._is_at_work = is_at_work
        self._is_required = False
        self.problem: str | None = None  # why the file wasn't used, and what to do

    def as_required(self) -> Self:
        """Return a copy of this history that raises StateError if its file can't be read or written."""
        required_history = copy.copy(self)
        required_history._is_required = True  # noqa: SLF001 - of the same class
        return required_history

    def begin_run(self, run: PastRun) -> None:
        """Add a run that has begun, and mark an earlier run of its sync that is still noted as running as crashed.

        The caller must hold the lock of the sync's queue. A dry run doesn't hold the lock, and only calls
        finish_run().
        """
        self._write_file((CLOSE_CRASHED, {"sync_id": run.sync_id}), (WRITE_RUN, _to_row(run)))

    def finish_run(self, run: PastRun) -> None:
        """Write the row of a run that has ended, in place of the row from its start."""
        self._write_file((WRITE_RUN, _to_row(run)))

    def close_crashed_run(self, sync_id: str, run_id: str, counts: Mapping[str, Json]) -> None:
        """Mark a run as crashed if it is still noted as running, and store its counts."""
        text = orjson.dumps(dict(counts)).decode()
        self._write_file((CLOSE_RUN, {"sync_id": sync_id, "run_id": run_id, "counts": text}))

    def list_runs(
        self, sync_id: str | None = None, *, limit: int = 20, offset: int = 0, with_dry: bool = False
    ) -> tuple[PastRun, ...]:
        """Return the newest runs of one sync, or of all syncs, newest first, without the first `offset` runs.

        Dry runs are left out unless `with_dry` is true, because they sent nothing.
        """
        past_runs = self._select_runs(sync_id=sync_id, limit=limit, offset=offset, with_dry=with_dry)
        return tuple(map(self._with_current_result, past_runs))

    def find_run(self, sync_id: str, run_id: str) -> PastRun | None:
        """Return the run with this id, also if it was a dry run; None if the history doesn't have the run."""
        return next(map(self._with_current_result, self._select_runs(sync_id=sync_id, run_id=run_id)), None)

    def _select_runs(
        self, *, sync_id: str | None, run_id: str | None = None, limit: int = 1, offset: int = 0, with_dry: bool = True
    ) -> list[PastRun]:
        parameters: dict[str, SqlValue] = {
            "sync_id": sync_id,
            "run_id": run_id,
            "limit": limit,
            "offset": offset,
            "with_dry": with_dry,
        }
        query = SELECT_NEWEST.format(order=ORDER_OF_ONE_SYNC if sync_id else ORDER_OF_ALL_SYNCS)
        return self._read_runs(query, parameters)

    def _read_runs(self, query: str, filters: Mapping[str, SqlValue]) -> list[PastRun]:
        return self._read_file(lambda store: [_from_row(row) for row in store.fetch_rows(query, filters)], [])

    def _with_current_result(self, run: PastRun) -> PastRun:
        """Return the run. Its result is `crashed` if it is noted as running and its process is gone.

        The run may have ended after its row was read. A run notes its end before it releases the lock, so its
        row is read again after the lock was checked.
        """
        if run.result is not RunResult.RUNNING or self._is_at_work(run.sync_id):
            return run
        current_run = next(iter(self._select_runs(sync_id=run.sync_id, run_id=run.run_id)), run)
        return (
            dataclasses.replace(current_run, result=RunResult.CRASHED)
            if current_run.result is RunResult.RUNNING
            else current_run
        )

    def has_begun(self, sync_id: str) -> bool:
        """Return whether any run of the sync may have sent something."""
        return self._read_file(
            lambda store: bool(store.fetch_rows(SELECT_BEGUN, (sync_id, NEVER_BEGUN_REASON))), otherwise=False
        )

    def read_newest_runs(self) -> dict[str, PastRun]:
        """Return the newest run of each sync, without dry runs."""
        return {run.sync_id: self._with_current_result(run) for run in self._read_runs(SELECT_NEWEST_OF_EACH, {})}

    def read_totals(self) -> dict[str, SyncTotals]:
        """Return the totals of each sync that has ever run."""
        crashed_runs = self.count_crashed_runs()
        return self._read_file(lambda store: _read_totals(store, crashed_runs), {})

    def count_crashed_runs(self) -> collections.Counter[str]:
        """Return, for each sync, how many crashed runs are still noted as running."""
        no_rows: list[SqlRow] = []
        running = self._read_file(lambda store: store.fetch_rows(SELECT_RUNNING), no_rows)
        runs = [self.find_run(sync_id, run_id) for sync_id, run_id in running]
        return collections.Counter(run.sync_id for run in runs if run and run.result is RunResult.CRASHED)

    def _read_file(self, read_content: Callable[[SqliteStore], Content], otherwise: Content) -> Content:
        """Return the result of `read_content`; return `otherwise` if the file doesn't exist or can't be read."""
        try:
            with open_existing_database(self._path, HISTORY_SCHEMA) as store:
                return read_content(store) if store else otherwise
        except StateError as error:
            self._handle_error(error)
        except (ValueError, KeyError, TypeError) as error:
            self._handle_error(damage_error(self._path, str(error), HISTORY_SCHEMA.damage_advice))
        return otherwise

    def _write_file(self, *statements: tuple[str, Mapping[str, SqlValue]]) -> None:
        try:
            with open_transaction(self._path, HISTORY_SCHEMA, purpose="writing history") as store:
                for statement, values in statements:
                    store.execute(statement, values)
        except StateError as error:
            self._handle_error(error)

    def _handle_error(self, error: StateError) -> None:
        if self._is_required:
            raise error
        if self.problem is None:
            self.problem = str(error)
            log.warning("the run continues without its history: %s", error)


def _read_totals(store: SqliteStore, crash_counts: Mapping[str, int]) -> dict[str, SyncTotals]:
    rows: dict[str, dict[str, int]] = {}
    for sync_id, cell, number in store.fetch_rows(SUM_ROW_COUNTS):
        rows.setdefault(sync_id, {})[cell] = int(number)
    return {
        sync_id: SyncTotals(
            runs=int(runs),
            failed_runs=int(failed_runs) + crash_counts.get(sync_id, 0),
            interrupted_runs=int(interrupted_runs),
            last_success=datetime.fromisoformat(last_success_text.partition(" ")[2]) if last_success_text else None,
            row_counts=rows.get(sync_id, {}),
        )
        for sync_id, runs, failed_runs, interrupted_runs, last_success_text in store.fetch_rows(COUNT_RUNS)
    }


def _to_row(run: PastRun) -> dict[str, SqlValue]:
    return {
        **{field.name: getattr(run, field.name) for field in dataclasses.fields(PastRun)},
        "started_at": _to_text(run.started_at),
        "ended_at": _to_text(run.ended_at) if run.ended_at else None,
        "counts": orjson.dumps(dict(run.counts)).decode(),
        "first_errors": orjson.dumps(run.first_errors).decode(),
    }


def _from_row(row: tuple[Any, ...]) -> PastRun:
    values = dict(zip((field.name for field in dataclasses.fields(PastRun)), row, strict=True))
    values["started_at"] = datetime.fromisoformat(values["started_at"])
    values["ended_at"] = values["ended_at"] and datetime.fromisoformat(values["ended_at"])
    values["mode"] = RunMode(values["mode"])
    values["result"] = RunResult(values["result"])
    values["counts"] = orjson.loads(values["counts"])
    values["first_errors"] = tuple(orjson.loads(values["first_errors"]))
    return PastRun(**values)


def _to_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
