"""Threads that do one kind of work, and hand back what came of it to the one that gave it to them."""

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class Done(NamedTuple, Generic[Task, Result]):
    """A task that came to its end."""

    task: Task
    result: Result | None
    error: BaseException | None = None  # what was raised in place of a result


class Workers(Generic[Task, Result]):
    """At most so many threads, each begun when there is a task for it.

    They don't keep the process from ending: whoever gives the tasks sees to what is left of them.
    """

    def __init__(self, work: Callable[[Task], Result], count: int) -> None:
        self._work = work
        self._count = count
        self._threads: list[threading.Thread] = []
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Done[Task, Result] | None] = queue.SimpleQueue()  # None: look up

    def give(self, task: Task) -> None:
        """Have it done when a thread is free, in the order in which tasks are given."""
        if len(self._threads) < self._count:
            thread = threading.Thread(target=self._run, name=f"push-{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._tasks.put(task)

    def next_done(self, timeout_seconds: float | None = None) -> list[Done[Task, Result]]:
        """The next task that ends, and all that have ended by then, in that order.

        None of them when time is up, or wake() was called.
        """
        done = []
        with contextlib.suppress(queue.Empty):
            done.append(self._done.get(timeout=timeout_seconds))
            while True:
                done.append(self._done.get_nowait())
        return [each for each in done if each]

    def wake(self) -> None:
        """Let next_done() return."""
        self._done.put(None)

    def end(self) -> None:
        """Wait for all that was given, then for the threads."""
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                done = Done(task, self._work(task))
            except BaseException as error:  # raised again where the task came from
                done = Done(task, None, error)
            self._done.put(done)
