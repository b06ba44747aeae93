"""The group commit: requests that arrive during a commit share the next one, and are answered when it is durable."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence

import pytest

from ondatra_dagster.collector.event_store import EventRequest, StoreResult
from ondatra_dagster.collector.group_commit import GroupCommit
from ondatra_dagster.errors import DiskFullError, StateError


class SlowFile:
    """A file whose commits end when the test releases them."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.began = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.fault: BaseException | None = None

    def store_requests(self, intakes: Sequence[EventRequest]) -> list[StoreResult]:
        self.groups.append(len(intakes))
        self.began.release()
        self.may_end.acquire()
        if self.fault:
            raise self.fault
        return [StoreResult.NEW] * len(intakes)

    @contextlib.contextmanager
    def opened(self) -> Iterator["SlowFile"]:
        yield self


INTAKE = EventRequest("events.views", 1, 1, b"{}")


async def until(semaphore: threading.Semaphore) -> None:
    await asyncio.to_thread(semaphore.acquire)


def test_requests_that_arrive_during_a_commit_share_the_next_one() -> None:
    """A disk can do a few hundred commits per second, of any size."""

    async def run() -> None:
        file = SlowFile()
        commits = GroupCommit(file.opened)  # type: ignore[arg-type]
        commits.start(asyncio.get_running_loop())
        first = asyncio.create_task(commits.store_request(INTAKE))
        await until(file.began)
        others = [asyncio.create_task(commits.store_request(INTAKE)) for _ in range(20)]
        await asyncio.sleep(0)  # each request has been passed to the thread
        assert not first.done()
        file.may_end.release()
        await until(file.began)
        assert StoreResult.NEW is await first
        assert not any(other.done() for other in others)  # no answer before the events are durable
        file.may_end.release()
        assert [StoreResult.NEW] * 20 == await asyncio.gather(*others)
        assert [1, 20] == file.groups
        commits.stop()

    asyncio.run(run())


def test_a_stop_commits_all_requests_and_accepts_no_new_ones() -> None:
    """A deployment must not lose an event."""

    async def run() -> None:
        file = SlowFile()
        commits = GroupCommit(file.opened)  # type: ignore[arg-type]
        commits.start(asyncio.get_running_loop())
        tasks = [asyncio.create_task(commits.store_request(INTAKE)) for _ in range(3)]
        await until(file.began)
        file.may_end.release()
        file.may_end.release()
        await asyncio.to_thread(commits.stop)
        assert [StoreResult.NEW] * 3 == await asyncio.gather(*tasks)
        with pytest.raises(StateError, match="the collector is shutting down"):
            await commits.store_request(INTAKE)

    asyncio.run(run())


def test_a_failed_commit_fails_its_request_and_the_next_one_is_tried() -> None:
    """The disk may have room again."""

    async def run() -> None:
        file = SlowFile()
        file.fault = DiskFullError("full")
        commits = GroupCommit(file.opened)  # type: ignore[arg-type]
        commits.start(asyncio.get_running_loop())
        file.may_end.release()
        with pytest.raises(DiskFullError):
            await commits.store_request(INTAKE)
        file.fault = None
        file.may_end.release()
        assert StoreResult.NEW is await commits.store_request(INTAKE)
        commits.stop()

    asyncio.run(run())


def test_an_unexpected_error_ends_the_thread_and_fails_waiting_requests() -> None:
    """A missing answer is worse than a refusal."""

    async def run() -> None:
        file = SlowFile()
        file.fault = ZeroDivisionError()
        commits = GroupCommit(file.opened)  # type: ignore[arg-type]
        commits.start(asyncio.get_running_loop())
        task = asyncio.create_task(commits.store_request(INTAKE))
        await until(file.began)
        file.may_end.release()
        with pytest.raises(StateError):
            await task
        with pytest.raises(ZeroDivisionError):
            commits.stop()
        assert not commits.is_alive

    asyncio.run(run())


def test_a_file_that_can_not_be_opened_is_an_error_for_the_caller() -> None:
    """Another collector may hold it."""

    @contextlib.contextmanager
    def open_file() -> Iterator[SlowFile]:
        raise StateError("held by process 7")
        yield SlowFile()

    async def run() -> None:
        commits = GroupCommit(open_file)  # type: ignore[arg-type]
        commits.start(asyncio.get_running_loop())
        with pytest.raises(StateError, match="held by process 7"):
            await commits.run_function(lambda file: file)
        commits.stop()

    asyncio.run(run())
