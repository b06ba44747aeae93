"""Records that lie in files, found by run, stage and identifier.

Several files are looked into at once, since the store may be far away; what is read ahead is bounded.
"""

import contextlib
import dataclasses
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import BinaryIO, NamedTuple, Protocol, TypeVar

from ondatra_dagster.tracking.addresses import BatchType, NumberedFile
from ondatra_dagster.tracking.found import Search, Stage
from ondatra_dagster.tracking.parts import Part, newest_first
from ondatra_dagster.tracking.row_groups import FoundGroup, count_found, found_groups, read_group

FILES_AT_ONCE = 8
GROUPS_AT_ONCE = 3  # of one type of a run: they stay in memory until their turn comes

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class RecordFiles(Protocol):
    """What a search needs of a tracking store. Several threads use it at once."""

    def record_files(self, sync_id: str, run_id: str) -> list[NumberedFile]: ...

    def reading_records(
        self, sync_id: str, run_id: str, file: NumberedFile
    ) -> AbstractContextManager[BinaryIO]: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunRecords:
    """Where a run's records are."""

    run_id: str
    files: Sequence[NumberedFile] | None = None  # None: those that are there when its turn comes
    beside: Mapping[BatchType, Iterable[Part]] = dataclasses.field(default_factory=dict)  # newer than files


class _Look(NamedTuple):
    """What one of a run's files has for a search."""

    run: RunRecords
    file: NumberedFile | None  # None: the run has no files
    groups: Sequence[FoundGroup] = ()


def search_runs(
    files: RecordFiles, sync_id: str, search: Search, runs: Iterable[RunRecords]
) -> Iterator[Part]:
    """What is found in these runs, in their order, in each the newest first."""
    pool = ThreadPoolExecutor(FILES_AT_ONCE)
    try:
        yield from _FileSearch(files, sync_id, search, pool).parts(runs)
    finally:
        pool.shutdown(cancel_futures=True)


def count_runs(files: RecordFiles, sync_id: str, search: Search, runs: Iterable[RunRecords]) -> int:
    """How many records are found in these runs, whatever the search's limit is."""
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        return _FileSearch(files, sync_id, search, pool).count(runs)


class _FileSearch:
    """The work of one search."""

    def __init__(self, files: RecordFiles, sync_id: str, search: Search, pool: ThreadPoolExecutor) -> None:
        self._files = files
        self._sync_id = sync_id
        self._search = search
        self._pool = pool

    def parts(self, runs: Iterable[RunRecords]) -> Iterator[Part]:
        listed = self._ahead(self._list, runs, FILES_AT_ONCE)
        looks = self._ahead(self._look, itertools.chain.from_iterable(listed), FILES_AT_ONCE)
        for _, of_run in itertools.groupby(looks, key=lambda look: look.run.run_id):
            found = list(of_run)
            yield from newest_first([self._stream(found, batch_type) for batch_type in BatchType])

    def count(self, runs: Iterable[RunRecords]) -> int:
        chosen = list(runs)
        beside: int = sum(part.num_rows for run in chosen for parts in run.beside.values() for part in parts)
        looks = itertools.chain.from_iterable(self._ahead(self._list, chosen, FILES_AT_ONCE))
        return beside + sum(self._ahead(self._count, looks, FILES_AT_ONCE))

    def _count(self, look: _Look) -> int:
        if look.file:
            with contextlib.suppress(FileNotFoundError), self._opened(look.run, look.file) as file:
                return count_found(file, self._search)
        return 0

    def _list(self, run: RunRecords) -> list[_Look]:
        """The run's files that may have something, the newest of each type first."""
        files = run.files
        if files is None:
            files = self._files.record_files(self._sync_id, run.run_id)
        wanted = [file for file in files if self._may_hold(file[0])]
        return [_Look(run, file) for file in sorted(wanted, reverse=True)] or [_Look(run, None)]

    def _may_hold(self, batch_type: BatchType) -> bool:
        return self._search.stage is None or (batch_type is BatchType.INVALID) == (
            self._search.stage is Stage.INVALID
        )

    def _look(self, look: _Look) -> _Look:
        if look.file is None:
            return look
        with contextlib.suppress(FileNotFoundError), self._opened(look.run, look.file) as file:
            return look._replace(groups=found_groups(file, self._search))
        return look

    def _stream(self, looks: Sequence[_Look], batch_type: BatchType) -> Iterator[Part]:
        """A run's records of one type."""
        yield from looks[0].run.beside.get(batch_type, ())
        groups = [
            (look.run, look.file, group)
            for look in looks
            if look.file and look.file[0] is batch_type
            for group in look.groups
        ]
        for part in self._ahead(self._read, groups, GROUPS_AT_ONCE):
            if part is not None:
                yield part

    def _read(self, found: tuple[RunRecords, NumberedFile, FoundGroup]) -> Part | None:
        run, name, group = found
        if group.part is not None:
            return group.part
        with contextlib.suppress(FileNotFoundError), self._opened(run, name) as file:
            return read_group(file, group)
        return None

    def _opened(self, run: RunRecords, file: NumberedFile) -> AbstractContextManager[BinaryIO]:
        """Who prunes the store doesn't wait for readers: what is gone has no records."""
        return self._files.reading_records(self._sync_id, run.run_id, file)

    def _ahead(self, ask: Callable[[Asked], Answer], items: Iterable[Asked], most: int) -> Iterator[Answer]:
        """The answers in the order of the items, of which so many are asked about before their turn."""
        asked: deque[Future[Answer]] = deque()
        for item in items:
            asked.append(self._pool.submit(ask, item))
            if len(asked) > most:
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()
