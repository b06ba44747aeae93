"""The history of sync runs: one row for each run, kept in `.ondatra/history.sqlite`.

What a run did to single records is in the tracking store; what is still to be sent is in the queue.
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

from ondatra_dagster.changes import Json
from ondatra_dagster.errors import StateError
from ondatra_dagster.store.database import Row, Schema, Store, Value
from ondatra_dagster.store.file_errors import damage
from ondatra_dagster.store.shared_file import open_existing, transaction

log = logging.getLogger(__name__)

Found = TypeVar("Found")

SCHEMA = Schema(
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
    if_damaged=(
        "move it away: `ondatra history` begins anew, and what waits and is recorded isn't touched; a queue"
        " that is lost at the same time passes for one that never was"
    ),
)

# whoever begins holds the sync's queue: a run of it that still says "running" has lost its process
CLOSE_CRASHED = "update sync_runs set result = 'crashed' where sync_id = :sync_id and result = 'running'"

# one whose process ended without a word, by what it left
CLOSE = """
update sync_runs set result = 'crashed', counts = :counts
where sync_id = :sync_id and run_id = :run_id and result = 'running'
"""

# a run is put in when it begins and replaced when it ends
PUT = """
insert or replace into sync_runs values (
    :sync_id, :run_id, :model, :dagster_run_id, :started_at, :ended_at, :trigger, :mode, :reason,
    :version_from, :version_to, :counts, :result, :first_errors
)
"""

NEWEST = """
select sync_id, run_id, model, dagster_run_id, started_at, ended_at, trigger, mode, reason,
       version_from, version_to, counts, result, first_errors
from sync_runs
where (:sync_id is null or sync_id = :sync_id) and (:with_dry or result <> 'dry')
    and (:run_id is null or run_id = :run_id)
order by {order}
limit :limit offset :offset
"""

# the times in a sync's run ids are in the order of its runs, also where the clock was set back between them
OF_ONE = "substr(run_id, 1, 16) desc, started_at desc, run_id desc"
OF_ALL = "started_at desc, run_id desc"

NEWEST_OF_EACH = """
select sync_id, run_id, model, dagster_run_id, started_at, ended_at, trigger, mode, reason,
       version_from, version_to, counts, result, first_errors
from sync_runs
where (sync_id, run_id) in (
    select sync_id, max(run_id) from sync_runs where result <> 'dry' group by sync_id
)
"""

NEVER_BEGUN = "it was refused before the sync had ever begun"
HAS_BEGUN = "select 1 from sync_runs where sync_id = ? and result <> 'dry' and reason <> ? limit 1"

# all that a sync's runs did, and when one last went well; a dry run did nothing
STANDINGS = """
select sync_id, count(*), sum(result = 'failed' or result = 'crashed'), sum(result = 'interrupted'),
       max(case when result = 'succeeded' then run_id || ' ' || ended_at end)
from sync_runs where result <> 'dry' group by sync_id
"""
# these say that they go on, whether or not they do
RUNNING = "select sync_id, run_id from sync_runs where result = 'running'"
# counts are of three operations each
TOTALS = """
select sync_id, cell.key, sum(operation.value)
from sync_runs, json_each(counts, '$.grid') as cell, json_each(cell.value) as operation
where result <> 'dry' group by sync_id, cell.key
"""


class Mode(enum.StrEnum):
    """How much of the table a run looked at."""

    FULL = "full"
    INCREMENTAL = "incremental"
    RETRY = "retry"  # nothing new: only what waited


class Result(enum.StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # by Ctrl-C or SIGTERM; what it did until then is counted
    CRASHED = "crashed"  # its process ended without a word
    DRY = "dry"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One sync run, as far as it has come."""

    sync_id: str
    run_id: str
    model: str
    dagster_run_id: str | None
    started_at: datetime
    ended_at: datetime | None = None
    trigger: str  # what started it: the command, a sensor, a schedule
    mode: Mode
    reason: str  # why that mode, in words
    version_from: int | None
    version_to: int | None = None
    counts: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    result: Result = Result.RUNNING
    first_errors: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What all runs of a sync come to."""

    runs: int
    failed_runs: int  # crashed ones too
    interrupted_runs: int
    last_success: datetime | None
    rows: Mapping[str, int]  # by what became of them: attempted, succeeded, rejected, failed


class History:
    """All sync runs of a project. Any number of processes may use it at once.

    `is_at_work` tells whether a process holds a sync: else a run of it that never told its end has crashed.
    No delivery needs the history: where its file can't be read or written, a warning says so, and it passes
    for empty. The history that required() gives raises StateError.
    """

    def __init__(self, path: Path, *, is_at_work: Callable[[str], bool] = lambda _sync_id: True) -> None:
        self._path = path
        self._is_at_work = is_at_work
        self._is_required = False
        self.problem: str | None = None  # why the file was left out, and what to do

    def required(self) -> Self:
        """Return the same history for a caller that has nothing to tell without it."""
        other = copy.copy(self)
        other._is_required = True  # noqa: SLF001 - of the same class
        return other

    def begin(self, run: PastRun) -> None:
        """Note that a run has begun, and that no earlier one of its sync is running any more.

        To be called by who holds the sync's queue; a dry run doesn't, and is only finished.
        """
        self._write((CLOSE_CRASHED, {"sync_id": run.sync_id}), (PUT, _to_row(run)))

    def finish(self, run: PastRun) -> None:
        """Note how a run ended, in place of what was noted when it began."""
        self._write((PUT, _to_row(run)))

    def close_crashed(self, sync_id: str, run_id: str, counts: Mapping[str, Json]) -> None:
        """Note of a run that still says it goes on that it doesn't, and what became of its rows."""
        text = orjson.dumps(dict(counts)).decode()
        self._write((CLOSE, {"sync_id": sync_id, "run_id": run_id, "counts": text}))

    def runs(
        self, sync_id: str | None = None, *, limit: int = 20, offset: int = 0, with_dry: bool = False
    ) -> tuple[PastRun, ...]:
        """The newest runs of one sync, or of all, the newest first; dry ones did nothing, so on request.

        With an offset those after so many.
        """
        return self._found(sync_id=sync_id, limit=limit, offset=offset, with_dry=with_dry)

    def run(self, sync_id: str, run_id: str) -> PastRun | None:
        """That run, dry or not; None when nothing is known of it."""
        return next(iter(self._found(sync_id=sync_id, run_id=run_id, with_dry=True)), None)

    def _found(
        self,
        *,
        sync_id: str | None,
        run_id: str | None = None,
        limit: int = 1,
        offset: int = 0,
        with_dry: bool,
    ) -> tuple[PastRun, ...]:
        wanted: dict[str, Value] = {
            "sync_id": sync_id,
            "run_id": run_id,
            "limit": limit,
            "offset": offset,
            "with_dry": with_dry,
        }
        query = NEWEST.format(order=OF_ONE if sync_id else OF_ALL)
        return tuple(map(self._as_it_is, self._read(query, wanted)))

    def _read(self, query: str, wanted: Mapping[str, Value]) -> list[PastRun]:
        return self._look(lambda store: [_from_row(row) for row in store.rows(query, wanted)], [])

    def _as_it_is(self, run: PastRun) -> PastRun:
        """The run, crashed when it says that it goes on and its process is gone.

        It may have ended in between, and said so before it let go of its sync: that is looked for last.
        """
        if run.result is not Result.RUNNING or self._is_at_work(run.sync_id):
            return run
        wanted: dict[str, Value] = {"sync_id": run.sync_id, "run_id": run.run_id}
        wanted |= {"limit": 1, "offset": 0, "with_dry": True}
        now = next(iter(self._read(NEWEST.format(order=OF_ONE), wanted)), run)
        return dataclasses.replace(now, result=Result.CRASHED) if now.result is Result.RUNNING else now

    def has_begun(self, sync_id: str) -> bool:
        """Whether any of its runs may have sent something."""
        return self._look(lambda store: bool(store.rows(HAS_BEGUN, (sync_id, NEVER_BEGUN))), otherwise=False)

    def newest(self) -> dict[str, PastRun]:
        """Of each sync its newest run that wasn't dry."""
        return {run.sync_id: self._as_it_is(run) for run in self._read(NEWEST_OF_EACH, {})}

    def totals(self) -> dict[str, Totals]:
        """Of each sync that has ever run."""
        crashed = self.crashed()
        return self._look(lambda store: _read_totals(store, crashed), {})

    def crashed(self) -> collections.Counter[str]:
        """How many runs of each sync have crashed, and no run has come since that would have noted it."""
        none: list[Row] = []
        running = self._look(lambda store: store.rows(RUNNING), none)
        runs = [self.run(sync_id, run_id) for sync_id, run_id in running]
        return collections.Counter(run.sync_id for run in runs if run and run.result is Result.CRASHED)

    def _look(self, read: Callable[[Store], Found], otherwise: Found) -> Found:
        """Return what is read from the file; `otherwise` where there is none, or it can't be read."""
        try:
            with open_existing(self._path, SCHEMA) as store:
                return read(store) if store else otherwise
        except StateError as error:
            self._go_without(error)
        except (ValueError, KeyError, TypeError) as error:
            self._go_without(damage(self._path, str(error), SCHEMA.if_damaged))
        return otherwise

    def _write(self, *statements: tuple[str, Mapping[str, Value]]) -> None:
        try:
            with transaction(self._path, SCHEMA, purpose="writing history") as store:
                for statement, values in statements:
                    store.run(statement, values)
        except StateError as error:
            self._go_without(error)

    def _go_without(self, error: StateError) -> None:
        if self._is_required:
            raise error
        if self.problem is None:
            self.problem = str(error)
            log.warning("the history is left out, and the run goes on: %s", error)


def _read_totals(store: Store, crashed: Mapping[str, int]) -> dict[str, Totals]:
    rows: dict[str, dict[str, int]] = {}
    for sync_id, cell, number in store.rows(TOTALS):
        rows.setdefault(sync_id, {})[cell] = int(number)
    return {
        sync_id: Totals(
            runs=int(runs),
            failed_runs=int(failed) + crashed.get(sync_id, 0),
            interrupted_runs=int(interrupted),
            last_success=datetime.fromisoformat(last.partition(" ")[2]) if last else None,
            rows=rows.get(sync_id, {}),
        )
        for sync_id, runs, failed, interrupted, last in store.rows(STANDINGS)
    }


def _to_row(run: PastRun) -> dict[str, Value]:
    return {
        "sync_id": run.sync_id,
        "run_id": run.run_id,
        "model": run.model,
        "dagster_run_id": run.dagster_run_id,
        "started_at": _to_text(run.started_at),
        "ended_at": _to_text(run.ended_at) if run.ended_at else None,
        "trigger": run.trigger,
        "mode": run.mode,
        "reason": run.reason,
        "version_from": run.version_from,
        "version_to": run.version_to,
        "counts": orjson.dumps(dict(run.counts)).decode(),
        "result": run.result,
        "first_errors": orjson.dumps(run.first_errors).decode(),
    }


def _from_row(row: tuple[Any, ...]) -> PastRun:
    values = dict(zip((field.name for field in dataclasses.fields(PastRun)), row, strict=True))
    values["started_at"] = datetime.fromisoformat(values["started_at"])
    values["ended_at"] = values["ended_at"] and datetime.fromisoformat(values["ended_at"])
    values["mode"] = Mode(values["mode"])
    values["result"] = Result(values["result"])
    values["counts"] = orjson.loads(values["counts"])
    values["first_errors"] = tuple(orjson.loads(values["first_errors"]))
    return PastRun(**values)


def _to_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
