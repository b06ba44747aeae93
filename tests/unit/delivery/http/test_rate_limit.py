"""The rate limit: no window has more requests than allowed, over threads, syncs and processes."""

import http.server
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ondatra_dagster.delivery.http.rate_limit import RateLimit, read_limits
from ondatra_dagster.delivery.push.push_config import PushConfig, RateLimitConfig
from ondatra_dagster.delivery.push.push_interface import PushBatch
from ondatra_dagster.delivery.push.starlark_sink_and_batch_halving import PushContext, open_starlark_sink
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.row_changes import Layout


class RateLimitClock:
    """A clock that only moves when the limit sleeps."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


THREE_IN_TEN = RateLimitConfig(requests=3, per_seconds=10.0)


def a_limit(
    folder: Path, clock: RateLimitClock, *limits: RateLimitConfig, base_url: str = "https://x.test"
) -> RateLimit:
    limits = limits or (THREE_IN_TEN,)
    return RateLimit(folder / "rates.sqlite", base_url, limits, clock=clock, sleep=clock.sleep)


def sent(limit: RateLimit, clock: RateLimitClock, *, on_its_way: float = 0.0) -> float:
    """Take a turn and return the time when the server has the request."""
    with limit.wait_for_turn():
        clock.sleep(on_its_way)
        return clock.now


def crowd(stamps: list[float], per_seconds: float) -> int:
    """Return the highest number of requests in any window of that length."""
    return max(sum(start <= stamp < start + per_seconds for stamp in stamps) for start in stamps)


def test_no_window_has_more_requests_than_the_limit(tmp_path: Path) -> None:
    """A full bucket of permits would allow nearly twice as many at first."""
    clock = RateLimitClock()
    limit = a_limit(tmp_path, clock)
    stamps = []
    for _ in range(20):
        stamps.append(sent(limit, clock))
        clock.sleep(0.1)

    assert crowd(stamps, 10.0) == 3
    assert stamps[-1] - stamps[0] < 65


def test_retries_of_a_call_count_for_the_limit(loopback_api: Any, write_library: Any, tmp_path: Path) -> None:
    """An API counts every request."""
    stamps: list[float] = []

    def reply(handler: http.server.BaseHTTPRequestHandler, _seen: object) -> None:
        stamps.append(time.monotonic())
        handler.send_response(503 if len(stamps) % 2 else 200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    loopback_api.reply_function = reply
    limit = '"rate_limit": {"requests": 3, "per": "500ms"}, "retry": 1, "backoff": 0'
    push = 'def push(rows):\n    for _ in range(4):\n        http.post("/x")\n'
    library = write_library(crm=f'API = {{"base_url": "{loopback_api.url}", {limit}}}\n\n{push}')
    context = PushContext(sync_id="sync.crm", kind="append", key_columns=(), arguments=())
    no_rows = PushBatch(
        number=1, layout=Layout(()), rows_json='{"columns":[],"rows":[]}', result_keys=(), units=(), layouts={}
    )
    with open_starlark_sink(library, context, secrets={}.get, rates=tmp_path / "rates.sqlite") as pusher:
        assert 4 == pusher(no_rows, ResponseJournal.in_memory("seed")).calls
    assert len(stamps) == 8
    assert crowd(stamps, 0.5) <= 3


def test_a_late_request_counts_when_it_arrives(tmp_path: Path) -> None:
    """The server uses its own clock. A delayed request may arrive in the same window as the next one."""
    clock = RateLimitClock()
    limit = a_limit(tmp_path, clock, RateLimitConfig(requests=1, per_seconds=1.0))
    ways = (0.4, 0.0, 0.3, 0.0, 0.0)
    stamps = [sent(limit, clock, on_its_way=way) for way in ways]

    assert crowd(stamps, 1.0) == 1


def test_a_slow_answer_does_not_delay_other_requests(tmp_path: Path) -> None:
    """The request arrived long before, and the rest of the time is the server's work."""
    clock = RateLimitClock()
    limit = a_limit(tmp_path, clock, RateLimitConfig(requests=1, per_seconds=1.0))
    began_at = clock.now
    with limit.wait_for_turn():
        sent(limit, clock)

    assert clock.now - began_at < 2.1


def test_a_slow_connection_counts_when_it_is_open(tmp_path: Path) -> None:
    """A lost packet is repeated after one second, and then after two. No other request passes it."""
    clock = RateLimitClock()
    limit = a_limit(tmp_path, clock, RateLimitConfig(requests=1, per_seconds=1.0))
    with limit.wait_for_turn() as connecting, connecting():
        clock.sleep(3.0)
        _, wait_seconds = limit._try_turn()
    assert wait_seconds == 1.0
    arrived_at = clock.now

    assert sent(limit, clock) >= arrived_at + 1.0
    assert sent(limit, clock) < arrived_at + 2.1


def test_the_limit_waits_for_a_process_killed_while_connecting(tmp_path: Path) -> None:
    """Its request may still have been sent, so later requests wait as if it had arrived."""
    clock = RateLimitClock()
    one_a_second = RateLimitConfig(requests=1, per_seconds=1.0)
    dying = a_limit(tmp_path, clock, one_a_second)
    number, _ = dying._try_turn()
    connecting = dying._extend_while_connecting(number)
    connecting.__enter__()  # the killed process never reports the connection
    began_at = clock.now
    waited_seconds = sent(a_limit(tmp_path, clock, one_a_second), clock) - began_at

    assert 11.0 <= waited_seconds < 11.1


def test_an_idle_hour_does_not_raise_the_limit(tmp_path: Path) -> None:
    clock = RateLimitClock()
    limit = a_limit(tmp_path, clock)
    sent(limit, clock)
    clock.sleep(3600)

    assert crowd([sent(limit, clock) for _ in range(8)], 10.0) == 3


def test_a_restart_does_not_raise_the_limit(tmp_path: Path) -> None:
    """The times are in a file. A process that crashed during a call has used its turn."""
    clock = RateLimitClock()
    dying = a_limit(tmp_path, clock)
    stamps = [sent(dying, clock) for _ in range(2)]
    dying._try_turn()  # the crashed process never reports its arrival
    stamps.append(clock.now + 0.9)
    again = a_limit(tmp_path, clock)
    stamps += [sent(again, clock) for _ in range(4)]

    assert crowd(stamps, 10.0) == 3


def test_two_limits_hold_at_the_same_time(tmp_path: Path) -> None:
    """One may be for bursts, and the other for a day."""
    clock = RateLimitClock()
    burst = RateLimitConfig(requests=2, per_seconds=1.0)
    limit = a_limit(tmp_path, clock, burst, THREE_IN_TEN)
    stamps = [sent(limit, clock) for _ in range(12)]

    assert (2, 3) == (crowd(stamps, 1.0), crowd(stamps, 10.0))


def test_the_sinks_of_one_api_share_its_limit(tmp_path: Path) -> None:
    """The API counts the requests of every sink. Another API doesn't."""
    clock = RateLimitClock()
    one = a_limit(tmp_path, clock, base_url="https://X.test/")
    two = a_limit(tmp_path, clock)
    other = a_limit(tmp_path, clock, base_url="https://y.test")
    stamps = []
    for limit in (one, other, two, one, other, two, one):
        stamp = sent(limit, clock)
        stamps += [stamp] if limit is not other else []

    assert crowd(stamps, 10.0) == 3


def test_an_edited_limit_applies_immediately(tmp_path: Path) -> None:
    """A former limit that was too strict has no effect."""
    clock = RateLimitClock()
    sent(a_limit(tmp_path, clock, RateLimitConfig(requests=1, per_seconds=1000.0)), clock)
    began_at = clock.now
    edited = a_limit(tmp_path, clock, RateLimitConfig(requests=100, per_seconds=1.0))
    for _ in range(50):
        sent(edited, clock)

    assert began_at == clock.now


def test_a_clock_that_is_set_back_delays_no_request(tmp_path: Path) -> None:
    """Requests with a time in the future are ignored."""
    clock = RateLimitClock()
    limit = a_limit(tmp_path, clock, RateLimitConfig(requests=1, per_seconds=10.0))
    sent(limit, clock)
    clock.now -= 86_400
    began_at = clock.now
    sent(limit, clock)

    assert began_at == clock.now


def a_config(base_url: str | None = "https://x.test") -> PushConfig:
    return PushConfig(name="x", file="lib/x.star", destination="x", object="x", base_url=base_url)


def test_without_a_limit_no_file_is_created(write_library: Callable[..., Path], tmp_path: Path) -> None:
    """A sink that needs no limit has no cost."""
    folder = write_library(x="def push(rows):\n    pass").parent
    for config in (a_config(), a_config(None)):
        assert RateLimit.from_config(config, tmp_path / "rates.sqlite", lib=folder) is None

    assert not (tmp_path / "rates.sqlite").exists()


def test_a_limit_applies_to_every_sink_of_its_api(write_library: Callable[..., Path]) -> None:
    """This includes sinks without a limit. A file that can't be read has none."""
    text = 'API = {"base_url": "%s", "rate_limit": {"requests": %d, "per": "1s"}}'
    folder = write_library(
        a=text % ("https://X.test/", 1),
        b=text % ("https://x.test", 2),
        c=text % ("https://y.test", 3),
        d='API = {"base_url": "https://x.test"}',
        e="rate_limit(",
    ).parent

    request_limits = [limit.requests for limit in read_limits("https://x.test", folder)]
    assert [1, 2] == request_limits


SEND_IN_THREADS = """
import pathlib, sys, threading, time
from ondatra_dagster.delivery.push.push_config import RateLimitConfig
from ondatra_dagster.delivery.http.rate_limit import RateLimit
rate = RateLimitConfig(requests=3, per_seconds=0.25)
limit = RateLimit(pathlib.Path(sys.argv[1]), "http://x", [rate])
def send():
    for _ in range(3):
        with limit.wait_for_turn():
            at = time.time()
        sys.stdout.write(f"{at}\\n")
workers = [threading.Thread(target=send) for _ in range(2)]
for worker in workers: worker.start()
for worker in workers: worker.join()
"""


def test_threads_and_processes_share_the_limit(tmp_path: Path) -> None:
    """Two processes with two threads each run in real time and print when they took their turns."""
    path = tmp_path / "rates.sqlite"
    children = [
        subprocess.Popen([sys.executable, "-c", SEND_IN_THREADS, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    stamps = [float(line) for child in children for line in child.communicate()[0].split()]

    assert [0, 0] == [child.returncode for child in children]
    assert len(stamps) == 12
    assert crowd(stamps, 0.25) <= 3
