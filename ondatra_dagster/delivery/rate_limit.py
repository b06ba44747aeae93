"""A limit on requests, kept over all syncs, threads and runs that share a base_url.

The times of the newest sends are kept, not a bucket of permits: a full bucket lets twice the limit through in
one window. A turn is taken before the request goes out: a process that dies has used up its turn and no more.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from ondatra_dagster.delivery.push_config import PushConfig
from ondatra_dagster.store.database import Schema, Store, Value, connect

SCHEMA = Schema(
    "rates",
    (
        (
            "first",
            """
            -- what each sink says of its API: the strictest that was used lately holds for all
            create table rate (
                base_url text not null,
                sink text not null,
                requests integer not null,
                per_seconds real not null,
                used_at real not null,
                primary key (base_url, sink)
            ) without rowid;
            create table send (id integer primary key, base_url text not null, sent_at real not null);
            create index send_newest on send (base_url, sent_at);
            """,
        ),
    ),
)
NOTE_RATE = """
insert into rate values (:base_url, :sink, :requests, :per_seconds, :now)
on conflict (base_url, sink) do update
set requests = excluded.requests, per_seconds = excluded.per_seconds, used_at = excluded.used_at
"""
# a sink that is no more, or that was slowed down by mistake, shouldn't hold back the others for ever
FORGET_RATES = "delete from rate where used_at < :now - 3600"
# when every limit lets the next request through: a window after the send that is as many back as it allows
OPENS_AT = """
select max(sent_at + per_seconds)
from rate join (
    select sent_at, row_number() over (order by sent_at desc) as place from send where base_url = :base_url
) on place = requests
where base_url = :base_url
"""
TAKE_TURN = "insert into send (base_url, sent_at) values (:base_url, :now)"
# the second part: the clock was set back
FORGET_SENDS = """
delete from send where base_url = :base_url and (
    sent_at > :now or sent_at < :now - (select max(per_seconds) from rate where base_url = :base_url)
)
"""
MARGIN_SECONDS = 0.05  # a request may be slower on its way than the one a window later
MARGIN_SHARE = 0.02


class RateLimit:
    """The turns of one sink. Several threads may wait in it."""

    def __init__(
        self,
        path: Path,
        config: PushConfig,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if config.rate_limit is None or config.base_url is None:
            raise ValueError("a sink without rate_limit and base_url has nothing to wait for")
        limit = config.rate_limit
        self._rate: dict[str, Value] = {
            "base_url": config.base_url.rstrip("/").lower(),
            "sink": config.name,
            "requests": limit.requests,
            "per_seconds": limit.per_seconds + max(MARGIN_SECONDS, limit.per_seconds * MARGIN_SHARE),
        }
        self._clock = clock
        self._sleep = sleep
        self._threads = threading.Lock()
        self._lock_file = os.open(_lock_path(path), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        with self._alone():
            self._store: Store = connect(path, SCHEMA, used_by_threads=True)
            # send times that a power cut takes along are no loss
            self._store.run("pragma synchronous = normal")

    @classmethod
    def of(cls, config: PushConfig, path: Path) -> Self | None:
        """The sink's limit, or None when it has none: then nothing is opened and nothing is asked."""
        return cls(path, config) if config.rate_limit and config.base_url else None

    def wait_for_turn(self) -> None:
        """Return when one more request may go out, which then counts as sent."""
        while (wait_seconds := self._take_turn()) > 0:
            self._sleep(wait_seconds)

    def close(self) -> None:
        self._store.close()
        os.close(self._lock_file)

    def _take_turn(self) -> float:
        """Zero when the turn is taken, else in how many seconds to ask again."""
        with self._alone(), self._store.immediate():
            now = self._clock()
            parameters = {**self._rate, "now": now}
            for statement in (NOTE_RATE, FORGET_RATES, FORGET_SENDS):
                self._store.run(statement, parameters)
            ((opens_at,),) = self._store.rows(OPENS_AT, parameters)
            if isinstance(opens_at, float) and opens_at > now:
                return opens_at - now
            self._store.run(TAKE_TURN, parameters)
            return 0.0

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        # SQLite before 3.51.3 can spoil a file when two connections write and checkpoint it at one instant,
        # and its own waiting sleeps: so one thread of one process at a time comes near it
        with self._threads:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)


def _lock_path(path: Path) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.with_suffix(".lock")
