"""A thread that owns the event file. Requests that arrive during a commit are committed together after it.

So all waiting requests share one commit, which waits for the disk. A request that arrives alone is committed
alone.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from ondatra_dagster.collector.event_store import EventRequest, EventStore, StoreResult
from ondatra_dagster.errors import StateError

MAX_REQUESTS_PER_COMMIT = 5000
STOPPING_MESSAGE = "the collector is shutting down; send it again"


class _Task(NamedTuple):
    future: "asyncio.Future[Any]"
    request: EventRequest | None
    function: Callable[[EventStore], Any] | None


class GroupCommit:
    """A queue of requests from one event loop. Each request is answered when its events are durable."""

    def __init__(self, open_store: Callable[[], AbstractContextManager[EventStore]]) -> None:
        self._open_store = open_store
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()  # None ends the queue
        self._thread = threading.Thread(target=self._run, name="group-commit")
        self._is_stopped = False
        self._error: BaseException | None = None
        self.commit_count = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Return whether requests can be accepted."""
        return self._thread.is_alive() and not self._is_stopped

    async def store_request(self, intake: EventRequest) -> StoreResult:
        """Store a request; return its result when it is durable. Raise StateError if it can't be stored."""
        result: StoreResult = await self._enqueue_task(intake, None)
        return result

    async def run_function(self, job: Callable[[EventStore], Any]) -> Any:
        """Run a function on the event file between two commits; return its result."""
        return await self._enqueue_task(None, job)

    async def _enqueue_task(self, request: EventRequest | None, job: Callable[[EventStore], Any] | None) -> Any:
        if not self.is_alive:
            raise self._stop_error()
        answer = self._loop.create_future()
        self._tasks.put(_Task(answer, request, job))
        if self._is_stopped:  # the thread has ended just now, and may not have seen this task
            self._fail_remaining()
        return await answer

    def stop(self) -> None:
        """Commit pending requests and close the file.

        Raise the error that ended the thread, unless it is a StateError.
        """
        self._tasks.put(None)
        self._thread.join()
        if self._error and not isinstance(self._error, StateError):
            raise self._error

    def _run(self) -> None:
        try:
            with self._open_store() as file:
                while self._process_tasks(file, self._next_tasks()):
                    pass
        except BaseException as error:  # the thread's outermost level: waiting callers get the error
            self._error = error
        finally:
            self._is_stopped = True
            self._fail_remaining()

    def _next_tasks(self) -> list[_Task | None]:
        """Wait for a task; return it with all other tasks that have arrived by then."""
        tasks = [self._tasks.get()]
        while len(tasks) < MAX_REQUESTS_PER_COMMIT and not self._tasks.empty():
            tasks.append(self._tasks.get())
        return tasks

    def _process_tasks(self, file: EventStore, work: Sequence[_Task | None]) -> bool:
        """Commit the requests, then run the functions; return whether more tasks may come."""
        try:
            request_pairs = [(task.future, task.request) for task in work if task and task.request]
            if request_pairs:
                self._commit(file, *zip(*request_pairs, strict=True))
            for task in work:
                if task and task.function:
                    self._set_results([(task.future, _result_or_error(task.function, file))])
        except BaseException:  # after an unforeseen error no caller may wait for ever
            self._set_results([(task.future, StateError(STOPPING_MESSAGE)) for task in work if task])
            raise
        return None not in work

    def _commit(
        self, file: EventStore, answers: Sequence["asyncio.Future[Any]"], requests: Sequence[EventRequest]
    ) -> None:
        result = _result_or_error(file.store_requests, requests)
        self.commit_count += 1
        results = result if isinstance(result, list) else [result] * len(requests)
        self._set_results(list(zip(answers, results, strict=True)))

    def _fail_remaining(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                if task := self._tasks.get_nowait():
                    self._set_results([(task.future, self._stop_error())])

    def _stop_error(self) -> StateError:
        """Return the error for tasks that arrive after the thread's end."""
        return self._error if isinstance(self._error, StateError) else StateError(STOPPING_MESSAGE)

    def _set_results(self, results: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
        self._loop.call_soon_threadsafe(_complete_futures, results)


def _result_or_error(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the function's result, or the StateError that it raised."""
    try:
        return function(*arguments)
    except StateError as error:
        return error


def _complete_futures(results: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
    for answer, result in results:
        if answer.done():  # the caller no longer waits
            continue
        if isinstance(result, StateError):
            answer.set_exception(result)
        else:
            answer.set_result(result)
