"""One thread that has the file: what comes in while it commits goes into its next commit, all of it.

So a commit, which waits for the disk, is shared by all who wait for it, and one who comes alone has it alone.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias

from ondatra_dagster.collector.event_file import EventFile, Intake, Taken
from ondatra_dagster.errors import StateError

MOST_IN_A_COMMIT = 5000
GONE = "the collector is ending; send it again"


class _Coming(NamedTuple):
    intake: Intake
    answer: "asyncio.Future[Taken]"


class _Job(NamedTuple):
    do: Callable[[EventFile], Any]
    answer: "asyncio.Future[Any]"


_Work: TypeAlias = _Coming | _Job | None  # None: nothing comes after it


class GroupCommit:
    """Takes intakes from one event loop, and answers each when it is durable."""

    def __init__(self, opened: Callable[[], AbstractContextManager[EventFile]]) -> None:
        self._opened = opened
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="group-commit")
        self._is_over = False
        self._fault: BaseException | None = None
        self.commits = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether anything can be taken."""
        return self._thread.is_alive() and not self._is_over

    async def take(self, intake: Intake) -> Taken:
        """What became of it, once that is durable; raises StateError when it can't be kept."""
        taken: Taken = await self._put(lambda answer: _Coming(intake, answer))
        return taken

    async def do(self, job: Callable[[EventFile], Any]) -> Any:
        """What the job gives, done between two commits."""
        return await self._put(lambda answer: _Job(job, answer))

    async def _put(self, made: Callable[["asyncio.Future[Any]"], _Work]) -> Any:
        if not self.is_alive:
            raise self._refusal()
        answer = self._loop.create_future()
        self._work.put(made(answer))
        if self._is_over:  # it has ended just now, and may not have seen this
            self._refuse_rest()
        return await answer

    def end(self) -> None:
        """Commit what is in hand, and let go of the file; raises what the thread ended by, unforeseen."""
        self._work.put(None)
        self._thread.join()
        if self._fault and not isinstance(self._fault, StateError):
            raise self._fault

    def _run(self) -> None:
        try:
            with self._opened() as file:
                while self._turn(file, self._next()):
                    pass
        except BaseException as error:  # the edge of the thread: who asked for it hears
            self._fault = error
        finally:
            self._is_over = True
            self._refuse_rest()

    def _next(self) -> list[_Work]:
        """What there is to do: waits for the first, and takes along all that is there by then."""
        work = [self._work.get()]
        while len(work) < MOST_IN_A_COMMIT and not self._work.empty():
            work.append(self._work.get())
        return work

    def _turn(self, file: EventFile, work: Sequence[_Work]) -> bool:
        """Commit, then do the jobs; whether there is more to come."""
        try:
            coming = [each for each in work if isinstance(each, _Coming)]
            if coming:
                self._commit(file, coming)
            for each in work:
                if isinstance(each, _Job):
                    self._answer([(each.answer, _outcome(each.do, file))])
        except BaseException:  # nobody foresaw it, and nobody may wait for ever
            self._answer([(each.answer, StateError(GONE)) for each in work if each])
            raise
        return None not in work

    def _commit(self, file: EventFile, coming: Sequence[_Coming]) -> None:
        answers = [each.answer for each in coming]
        taken = _outcome(file.take, [each.intake for each in coming])
        self.commits += 1
        results = taken if isinstance(taken, list) else [taken] * len(coming)
        self._answer(list(zip(answers, results, strict=True)))

    def _refuse_rest(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                if work := self._work.get_nowait():
                    self._answer([(work.answer, self._refusal())])

    def _refusal(self) -> StateError:
        """Why nothing can be done any more."""
        return self._fault if isinstance(self._fault, StateError) else StateError(GONE)

    def _answer(self, results: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
        self._loop.call_soon_threadsafe(_tell, results)


def _outcome(do: Callable[..., Any], *arguments: Any) -> Any:
    """What it gives, or why it can't."""
    try:
        return do(*arguments)
    except StateError as error:
        return error


def _tell(results: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
    for answer, result in results:
        if answer.done():  # who asked is gone
            continue
        if isinstance(result, StateError):
            answer.set_exception(result)
        else:
            answer.set_result(result)
