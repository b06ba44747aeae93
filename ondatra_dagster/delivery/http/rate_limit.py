"""A limit on requests, shared by all syncs, threads and runs with the same base_url.

The times of the newest requests are stored, not a bucket of permits, because a full bucket allows twice the limit
in one window. A request takes its turn before it is sent. The turn lasts while the request may be under way,
because the server counts a request when it arrives. After a lost packet, making a connection may take seconds, so
that time is recorded separately. A process that crashes uses up its own turn and no more.
"""

import contextlib
import fcntl
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

from ondatra_dagster import interruption
from ondatra_dagster.delivery.http.connections_with_deadline import ConnectHook
from ondatra_dagster.delivery.push.api_dict_parser import parse_api_text
from ondatra_dagster.delivery.push.push_config import PushConfig, RateLimitConfig
from ondatra_dagster.storage.file_errors import explain_file_errors
from ondatra_dagster.storage.file_lock import open_lock
from ondatra_dagster.storage.sqlite_database import SqliteSchema, SqliteStore, SqlValue, open_database

RATES_SCHEMA = SqliteSchema(
    "rates",
    (
        (
            "first",
            """
            -- numbered in the order of their turns. arrived_by: the latest time at which the server has it
            create table send (
                base_url text not null,
                number integer not null,
                taken_at real not null,
                arrived_by real not null,
                primary key (base_url, number)
            ) without rowid;
            create index send_times on send (base_url, taken_at);
            create index slow_sends on send (base_url, number) where arrived_by > taken_at + 1.0;
            """,
        ),
    ),
    damage_advice="move it away: rate limits count from the next request on",
)
SELECT_NEWEST = "select number, taken_at from send where base_url = :base_url order by number desc limit 1"
# the time at which all requests up to that number have arrived, because a later turn may arrive sooner
SELECT_ARRIVAL = """
select max(arrived_by) from (
    select arrived_by from send where base_url = :base_url and number <= :number and taken_at >= (
        select taken_at from send where base_url = :base_url and number = :number
    ) - :on_its_way
    union all
    -- written like the condition of its index
    select arrived_by from send
    where base_url = :base_url and number <= :number and arrived_by > taken_at + 1.0
) where exists (select 1 from send where base_url = :base_url and number = :number)
"""
INSERT_SEND = "insert into send values (:base_url, :number, :now, :now + :on_its_way)"
SET_ARRIVAL = "update send set arrived_by = :arrived_by where base_url = :base_url and number = :number"
LOWER_ARRIVAL = """
update send set arrived_by = min(arrived_by, :now) where base_url = :base_url and number = :number
"""
# deletes two rows for each added one, so that a turn costs the same however many rows there were
DELETE_OLD = """
delete from send where base_url = :base_url and taken_at < :now - :longest and number in (
    select number from send where base_url = :base_url order by number limit 2
)
"""
DELETE_FUTURE = "delete from send where base_url = :base_url and taken_at > :now"
TRANSIT_SECONDS = 1.0  # a request over an open connection takes less, also on a busy machine
CONNECTING_SECONDS = 10.0  # enough for three lost packets in a row; after a kill, other processes wait this long
WAIT_MARGIN_SECONDS = 0.001
RETENTION_SECONDS = 3600.0  # requests are stored at least this long, for limits that users change


class RateLimit:
    """The rate limit of one base_url. Each request takes a turn; several threads may wait for turns."""

    def __init__(
        self,
        path: Path,
        base_url: str,
        limits: Iterable[RateLimitConfig],
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = interruption.sleep,
    ) -> None:
        self._base_url = _normalize_url(base_url)
        self._limits = tuple(limits)
        self._retention_seconds = max([RETENTION_SECONDS, *(limit.per_seconds for limit in self._limits)])
        self._clock = clock
        self._sleep = sleep
        self._thread_lock = threading.Lock()
        lock = path.with_suffix(".lock")
        with explain_file_errors(lock):
            self._lock_file = open_lock(lock)
        with self._locked():
            self._store: SqliteStore = open_database(path, RATES_SCHEMA, used_by_threads=True)
            # it does no harm if a power cut deletes send times
            self._store.execute("pragma synchronous = normal")

    @classmethod
    def from_config(cls, config: PushConfig, path: Path, *, lib: Path) -> Self | None:
        """Return the rate limit for the sink's base_url, which any file of `lib` may set.

        If no file sets a limit, return None and open nothing.
        """
        limits = tuple(read_limits(config.base_url, lib)) if config.base_url else ()
        return cls(path, config.base_url, limits) if config.base_url and limits else None

    @contextlib.contextmanager
    def wait_for_turn(self) -> Iterator[ConnectHook]:
        """Wait until one more request may be sent. The `with` block sends the request and reads its answer."""
        number, wait_seconds = self._try_turn()
        while wait_seconds > 0:
            self._sleep(wait_seconds)
            number, wait_seconds = self._try_turn()
        try:
            yield functools.partial(self._extend_while_connecting, number)
        finally:
            self._update_send(LOWER_ARRIVAL, number, now=self._clock())

    @contextlib.contextmanager
    def _extend_while_connecting(self, number: int) -> Iterator[None]:
        """Delay the stored arrival time of a turn's request during the `with` block, which makes its connection."""
        self._update_send(SET_ARRIVAL, number, arrived_by=self._clock() + CONNECTING_SECONDS)
        try:
            yield
        finally:
            self._update_send(SET_ARRIVAL, number, arrived_by=self._clock() + TRANSIT_SECONDS)

    def _update_send(self, statement: str, number: int, **times: float) -> None:
        with self._locked(), self._store.write_transaction():
            self._store.execute(statement, self._parameters(number=number, **times))

    def close(self) -> None:
        with self._locked():  # an abandoned thread may be in the middle of its turn
            self._store.close()
        os.close(self._lock_file)
        self._lock_file = -1  # the descriptor's number may soon belong to another file

    def _try_turn(self) -> tuple[int, float]:
        """Take a turn if the limit allows it. Return the turn's number, and zero or the seconds until the next try."""
        with self._locked(), self._store.write_transaction():
            now = self._clock()
            number = self._last_number(now) + 1
            wait_seconds = max(self._wait_seconds(limit, number, now) for limit in self._limits)
            if wait_seconds <= 0:
                self._store.execute(DELETE_OLD, self._parameters(now=now, longest=self._retention_seconds))
                self._store.execute(INSERT_SEND, self._parameters(number=number, now=now, on_its_way=TRANSIT_SECONDS))
            return number, wait_seconds

    def _last_number(self, now: float) -> int:
        for number, taken_at in self._store.fetch_rows(SELECT_NEWEST, self._parameters()):
            if taken_at <= now + TRANSIT_SECONDS:
                return int(number)
            # the clock was set back: times in the future can't be waited for
            self._store.execute(DELETE_FUTURE, self._parameters(now=now))
            return self._last_number(now)
        return 0

    def _wait_seconds(self, limit: RateLimitConfig, number: int, now: float) -> float:
        parameters = self._parameters(number=number - limit.requests, on_its_way=TRANSIT_SECONDS)
        ((arrival_time,),) = self._store.fetch_rows(SELECT_ARRIVAL, parameters)
        if arrival_time is None:
            return 0.0
        wait_seconds: float = arrival_time + limit.per_seconds + WAIT_MARGIN_SECONDS - now
        if arrival_time > now:  # the request is under way, and will most likely arrive sooner than this
            return max(min(wait_seconds - TRANSIT_SECONDS, limit.per_seconds), WAIT_MARGIN_SECONDS)
        return wait_seconds

    def _parameters(self, **parameters: SqlValue) -> Mapping[str, SqlValue]:
        return {"base_url": self._base_url, **parameters}

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # SQLite before 3.51.3 can damage a file when two connections write and checkpoint it at the same moment. To
        # wait for a lock, SQLite sleeps. So one thread of one process at a time uses the file.
        with self._thread_lock:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)


def read_limits(base_url: str, lib: Path) -> Iterator[RateLimitConfig]:
    """Yield the limits of all sinks with this base_url, because the API counts the requests of all of them."""
    for file in sorted(lib.glob("*.star")):
        text = file.read_text(encoding="utf-8-sig", errors="replace")
        if "rate_limit" not in text:  # most files have none, and parsing one costs a millisecond
            continue
        config, _ = parse_api_text(text, file.name)
        if config and config.rate_limit and _normalize_url(config.base_url or "") == _normalize_url(base_url):
            yield config.rate_limit


def _normalize_url(base_url: str) -> str:
    return base_url.rstrip("/").lower()
