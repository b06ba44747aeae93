"""The duty that keeps tables quick to read and their space in bounds: OPTIMIZE, VACUUM, old commits.

What somebody still reads stays, however old: needed_versions says what that is. Whether anything pays is told
by the logs; Spark starts where it does, and one table after the other is held while it is worked on.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from ondatra_dagster.changes import Json
from ondatra_dagster.errors import BusyError, OndatraError
from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.planning.delta_log import TableState, read_table_state
from ondatra_dagster.planning.live_files import BeyondUsError, live_table
from ondatra_dagster.planning.table_past import (
    Past,
    commit_metrics,
    is_lowered,
    kept_since,
    past_of,
    remove_log_files,
)
from ondatra_dagster.project.settings.addresses import Address
from ondatra_dagster.wording import count, size_of

TABLES = "tables"
DAY_SECONDS = 86_400
SMALL_BYTES = 16_000_000  # of a file: to open it costs as much as to read it
NUMBERS = ("mended", "small_files", "became", "files", "bytes", "log_files")


class UpkeepTable(Protocol):
    """A table in the warehouse."""

    def held(self) -> AbstractContextManager[None]:
        """Keep others from writing it; BusyError says who does."""

    def mend(self) -> None:
        """Put back what a VACUUM that was cut off has lowered."""

    def optimize(self, *, small_bytes: int) -> None:
        """Put small files together."""

    def vacuum(self, *, since: float, upto: int, clock: Callable[[], float]) -> bool:
        """Remove files that were taken out before that moment, by commits up to that one; whether it did."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """A table that is looked after."""

    name: str
    lock: str  # the name under which its writers hold it
    address: Address
    needed: Callable[[TableState], int]  # the oldest version from which somebody still reads; -1: all


Opened = Callable[[Maintained], UpkeepTable]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """From what on something pays."""

    small_files: int = 20  # so many more than need be make reading slow
    files: int = 10  # for which a VACUUM takes its seconds; or so many bytes
    size: int = 64_000_000
    log_files: int = 20  # two a commit


WORTH = Worth()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Chores:
    """What pays for one table."""

    state: TableState
    past: Past
    mends: bool
    optimizes: bool
    frees: bool
    shortens: bool

    @property
    def are_there(self) -> bool:
        return self.mends or self.optimizes or self.frees or self.shortens


class Upkeep:
    """One round over the tables."""

    def __init__(
        self,
        opened: Opened,
        *,
        days: int | None,
        clock: Callable[[], float],
        worth: Worth = WORTH,
    ) -> None:
        self._opened = opened
        self._clock = clock  # a round may take hours
        self._worth = worth
        self._before = -math.inf if days is None else clock() - days * DAY_SECONDS
        self._done: list[Mapping[str, Json]] = []
        self._busy: list[str] = []
        self._late: list[str] = []
        self._failed: list[str] = []

    def go(self, tables: Iterable[Maintained]) -> Done:
        """Look after each; one that is held or fails leaves the others to be done."""
        for table in tables:
            try:
                self._look_after(table)
            except BusyError:
                self._busy.append(table.name)
            except OndatraError as error:
                self._failed.append(f"{table.name}: {error}")
        return self._told()

    def _look_after(self, table: Maintained) -> None:
        if not self._chores(table):
            return
        opened = self._opened(table)
        with opened.held():
            if chores := self._chores(table):  # as it is now that nobody else writes it
                self._done.append({"table": table.name, **self._do(table, opened, chores)})

    def _chores(self, table: Maintained) -> Chores | None:
        state = read_table_state(table.address)
        if state is None:
            return None
        past = past_of(table.address, state, needed=table.needed(state), before=self._before)
        chores = Chores(
            state=state,
            past=past,
            mends=is_lowered(state),
            optimizes=superfluous_files(table.address) >= self._worth.small_files,
            frees=past.files >= self._worth.files or past.size >= self._worth.size,
            shortens=len(past.log_files) >= self._worth.log_files,
        )
        return chores if chores.are_there else None

    def _do(self, table: Maintained, opened: UpkeepTable, chores: Chores) -> dict[str, Json]:
        if chores.mends:
            opened.mend()
        if chores.optimizes:
            opened.optimize(small_bytes=SMALL_BYTES)
        if chores.frees:
            since = kept_since(table.address, chores.past, before=self._before)
            if not opened.vacuum(since=since, upto=chores.past.upto, clock=self._clock):
                self._late.append(table.name)
        log_bytes = remove_log_files(table.address, chores.past) if chores.shortens else 0
        counted = commit_metrics(table.address, after=chores.state.log_version)
        removed = {name: counted.get(name, {}) for name in ("OPTIMIZE", "VACUUM START", "VACUUM END")}
        return {
            "mended": int(chores.mends),
            "small_files": _number(removed["OPTIMIZE"], "numRemovedFiles"),
            "became": _number(removed["OPTIMIZE"], "numAddedFiles"),
            "files": _number(removed["VACUUM END"], "numDeletedFiles"),
            "bytes": _number(removed["VACUUM START"], "sizeOfDataToDelete") + log_bytes,
            "log_files": len(chores.past.log_files) if chores.shortens else 0,
        }

    def _told(self) -> Done:
        total: collections.Counter[str] = collections.Counter(dict.fromkeys(NUMBERS, 0))
        for done in self._done:
            total.update({name: number for name, number in done.items() if isinstance(number, int)})
        told = [*_sentences(len(self._done), total), *self._failed]
        if self._busy:
            told.append(f"at work, and left for the next time: {', '.join(self._busy)}")
        if self._late:
            told.append(
                f"left for the next time, for the machine stood still meanwhile: {', '.join(self._late)}"
            )
        return Done(
            duty=TABLES,
            did="; ".join(told) or "no table needs anything",
            counts={TABLES: len(self._done), **total},
            each=tuple(self._done),
            is_good=not self._failed,
        )


def _sentences(tables: int, total: Mapping[str, int]) -> Iterable[str]:
    """What was done, less what wasn't."""
    told = (
        (tables, f"{count(tables, 'table')} looked after"),
        (total["small_files"], f"{count(total['small_files'], 'small file')} put into {total['became']}"),
        (total["files"], f"{count(total['files'], 'file')} that nobody needs removed"),
        (total["log_files"], f"{count(total['log_files'], 'file')} of old commits removed"),
        (total["bytes"], f"{size_of(total['bytes'])} freed"),
        (total["mended"], f"the retention of {count(total['mended'], 'table')} put back after a killed run"),
    )
    return [sentence for number, sentence in told if number]


def superfluous_files(address: Address) -> int:
    """How many files fewer an OPTIMIZE leaves: it makes one of a partition's small ones."""
    try:
        live = live_table(address)
    except BeyondUsError:
        return 0
    if live is None:
        return 0
    small = collections.Counter(
        tuple(sorted(file.partition.items(), key=str)) for file in live.files if file.size < SMALL_BYTES
    )
    return sum(number - 1 for number in small.values())


def _number(metrics: Mapping[str, str], name: str) -> int:
    return int(metrics.get(name, 0))
