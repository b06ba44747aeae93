"""Never more requests in a window than the limit says, over threads, syncs and processes."""

import subprocess
import sys
from pathlib import Path

from ondatra_dagster.delivery.push_config import PushConfig, RateLimitConfig
from ondatra_dagster.delivery.rate_limit import RateLimit


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def a_config(
    requests: int = 3,
    per_seconds: float = 10.0,
    *,
    name: str = "crm",
    base_url: str | None = "https://x.test",
) -> PushConfig:
    limit = RateLimitConfig(requests=requests, per_seconds=per_seconds)
    return PushConfig(
        name=name, file="lib/x.star", destination="x", object="x", base_url=base_url, rate_limit=limit
    )


def a_limit(path: Path, config: PushConfig, clock: Clock) -> RateLimit:
    return RateLimit(path, config, clock=clock, sleep=clock.sleep)


def crowd(stamps: list[float], per_seconds: float) -> int:
    """The most sends in any window of that length."""
    return max(sum(start <= stamp < start + per_seconds for stamp in stamps) for start in stamps)


def test_no_window_holds_more_than_the_limit(tmp_path: Path) -> None:
    """A bucket that starts full would let nearly twice as many through at first."""
    clock = Clock()
    limit = a_limit(tmp_path / "rates.sqlite", a_config(), clock)
    stamps = []
    for _ in range(20):
        limit.wait_for_turn()
        stamps.append(clock.now)
        clock.sleep(0.1)

    assert crowd(stamps, 10.0) == 3
    assert stamps[-1] - stamps[0] < 65


def test_a_pause_is_no_credit(tmp_path: Path) -> None:
    """After an hour of silence the limit is what it was."""
    clock = Clock()
    limit = a_limit(tmp_path / "rates.sqlite", a_config(), clock)
    limit.wait_for_turn()
    clock.sleep(3600)
    stamps = []
    for _ in range(8):
        limit.wait_for_turn()
        stamps.append(clock.now)

    assert crowd(stamps, 10.0) == 3


def test_sinks_of_one_api_share_the_stricter_limit(tmp_path: Path) -> None:
    """The API counts what arrives, whichever sink sent it."""
    clock = Clock()
    path = tmp_path / "rates.sqlite"
    loose = a_limit(path, a_config(100, 10.0, name="loose", base_url="https://X.test/"), clock)
    strict = a_limit(path, a_config(2, 10.0, name="strict"), clock)
    other = a_limit(path, a_config(1, 10.0, name="other", base_url="https://y.test"), clock)
    strict.wait_for_turn()
    stamps = [clock.now]
    for limit in (other, loose, loose, strict, loose):
        limit.wait_for_turn()
        stamps += [clock.now] if limit is not other else []

    assert crowd(stamps, 10.0) == 2


def test_an_edited_limit_holds_at_once(tmp_path: Path) -> None:
    """A limit that was too strict isn't remembered against its own sink."""
    clock = Clock()
    path = tmp_path / "rates.sqlite"
    a_limit(path, a_config(1, 1000.0), clock).wait_for_turn()
    began_at = clock.now
    edited = a_limit(path, a_config(100, 1.0), clock)
    for _ in range(50):
        edited.wait_for_turn()

    assert began_at == clock.now


def test_a_clock_that_is_set_back_stops_nobody(tmp_path: Path) -> None:
    """Sends in the future are forgotten."""
    clock = Clock()
    limit = a_limit(tmp_path / "rates.sqlite", a_config(1, 10.0), clock)
    limit.wait_for_turn()
    clock.now -= 86_400
    began_at = clock.now
    limit.wait_for_turn()

    assert began_at == clock.now


def test_without_a_limit_nothing_is_opened(tmp_path: Path) -> None:
    """What isn't asked for costs nothing."""
    config = PushConfig(name="x", file="lib/x.star", destination="x", object="x", base_url="https://x.test")

    assert RateLimit.of(config, tmp_path / "rates.sqlite") is None
    assert [] == list(tmp_path.iterdir())


SEND_IN_THREADS = """
import pathlib, sys, threading, time
from ondatra_dagster.delivery.push_config import PushConfig, RateLimitConfig
from ondatra_dagster.delivery.rate_limit import RateLimit
rate = RateLimitConfig(requests=3, per_seconds=0.25)
config = PushConfig(name="x", file="f", destination="x", object="x", base_url="http://x", rate_limit=rate)
looked = threading.local()
def clock():
    looked.at = time.time()
    return looked.at
limit = RateLimit(pathlib.Path(sys.argv[1]), config, clock=clock)
def send():
    for _ in range(3):
        limit.wait_for_turn()
        sys.stdout.write(f"{looked.at}\\n")
workers = [threading.Thread(target=send) for _ in range(2)]
for worker in workers: worker.start()
for worker in workers: worker.join()
"""


def test_threads_and_processes_take_turns(tmp_path: Path) -> None:
    """Two processes of two threads each, on real time: the moments at which they took their turns judge."""
    path = tmp_path / "rates.sqlite"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", SEND_IN_THREADS, str(path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    stamps = [float(line) for child in children for line in child.communicate()[0].split()]

    assert [0, 0] == [child.returncode for child in children]
    assert len(stamps) == 12
    assert crowd(stamps, 0.25) <= 3
