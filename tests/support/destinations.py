"""APIs in plain Python that keep what they are given and fail as chance has it, to be judged as mirrors."""

import dataclasses
import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

import orjson

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.outcome import NO_ROW, Outcome, Verdict
from ondatra_dagster.delivery.push.push_port import Parcel, Pushed
from ondatra_dagster.delivery.revival import CRASHES_BEFORE_SPLIT
from ondatra_dagster.project.kinds import Kind

Row = dict[str, object]
Content = dict[str, list[object]]
COMES = {ChangeType.INSERT, ChangeType.UPDATE_POSTIMAGE}


class KilledError(Exception):
    """The process ends here, as far as the queue can tell."""


class Store(Protocol):
    """What an API makes of a call, and what it should never have been asked."""

    holds: Content
    wrongs: list[str]

    def calls_of(self, rows: list[Row]) -> list[list[Row]]:
        """The rows that go out in one call each."""

    def apply(self, rows: list[Row]) -> None: ...

    def expected(self) -> Content:
        """What it holds when it is a mirror of the table."""


def change_of(row: Row) -> ChangeType:
    return ChangeType(str(row["__ondatra_change_type"]))


def grouped(rows: list[Row], name: str) -> list[list[Row]]:
    found: dict[object, list[Row]] = {}
    for row in rows:
        found.setdefault(row[name], []).append(row)
    return list(found.values())


class ByKey(Protocol):
    """A table whose rows have a key, and each key's values."""

    def content(self) -> dict[str, list[int]]: ...


class ByRow(Protocol):
    """A table whose rows are told apart by their rowids, and what each of its versions held."""

    past: list[dict[str, list[int]]]

    @property
    def kind(self) -> Kind: ...

    def by_part(self) -> dict[str, list[int]]: ...

    def by_rowid(self) -> Content: ...

    def version_of(self, rowid: int, change_type: ChangeType) -> int | None: ...


@dataclasses.dataclass
class KeyStore:
    """Keeps each key's values; they only ever become greater."""

    table: ByKey
    holds: Content = dataclasses.field(default_factory=dict)
    wrongs: list[str] = dataclasses.field(default_factory=list)
    newest: dict[str, int] = dataclasses.field(default_factory=dict)

    def calls_of(self, rows: list[Row]) -> list[list[Row]]:
        return grouped(rows, "id")

    def apply(self, rows: list[Row]) -> None:
        key = str(rows[0]["id"])
        values = sorted(int(str(row["value"])) for row in rows if change_of(row) in COMES)
        if not values:
            self.holds.pop(key, None)
            return
        if min(values) < self.newest.get(key, 0):
            self.wrongs.append(f"{key}: {values} after {self.newest[key]}")
        self.newest[key] = min(values)
        self.holds[key] = list(values)

    def expected(self) -> Content:
        return {key: list(values) for key, values in self.table.content().items()}


@dataclasses.dataclass
class RowStore:
    """Keeps each row under its rowid; one that went never comes back, one that ended never begins again."""

    table: ByRow
    holds: Content = dataclasses.field(default_factory=dict)
    wrongs: list[str] = dataclasses.field(default_factory=list)
    gone: set[str] = dataclasses.field(default_factory=set)
    asked_to_go: set[str] = dataclasses.field(default_factory=set)

    def calls_of(self, rows: list[Row]) -> list[list[Row]]:
        return grouped(rows, "__ondatra_rowid")

    def note(self, rows: list[Row]) -> None:
        """A call arrives, whatever comes of it."""
        self.asked_to_go |= {
            str(row["__ondatra_rowid"]) for row in rows if change_of(row) is ChangeType.DELETE
        }

    def apply(self, rows: list[Row]) -> None:
        rowid = str(rows[0]["__ondatra_rowid"])
        (*_, last) = rows
        if change_of(last) is ChangeType.DELETE:
            self.holds.pop(rowid, None)
            self.gone.add(rowid)
            return
        new = [value for name, value in last.items() if not name.startswith("__ondatra_")]
        self._judge(rowid, change_of(last), new)
        self.holds[rowid] = new

    def _judge(self, rowid: str, change: ChangeType, new: list[object]) -> None:
        before = self.holds.get(rowid)
        if rowid in self.gone:
            self.wrongs.append(f"{rowid} came after it had gone")
        if self.table.kind.keeps_versions and before and before[-1] is False and new[-1] is True:
            self.wrongs.append(f"{rowid} began after it had ended")
        if self.table.kind.replaces_rows and change is ChangeType.INSERT:
            self.wrongs += [f"{rowid} came before {old} went" for old in self._in_the_way_of(int(rowid))]

    def _in_the_way_of(self, rowid: int) -> Iterator[str]:
        """Rows that were replaced in the version that the row came with, or earlier, and weren't deleted."""
        came = self.table.version_of(rowid, ChangeType.INSERT)
        for old in self.holds.keys() - self.asked_to_go:
            went = self.table.version_of(int(old), ChangeType.DELETE)
            if came is not None and went is not None and went <= came:
                yield old

    def expected(self) -> Content:
        return self.table.by_rowid()


@dataclasses.dataclass
class WholeStore:
    """Keeps what it was given last, of the table or of each of its parts; only ever something newer."""

    table: ByRow
    holds: Content = dataclasses.field(default_factory=dict)
    wrongs: list[str] = dataclasses.field(default_factory=list)
    versions: dict[str, int] = dataclasses.field(default_factory=dict)  # by part, of what it holds

    def calls_of(self, rows: list[Row]) -> list[list[Row]]:
        return [rows]

    def apply(self, rows: list[Row]) -> None:
        given: Content = {str(of[0]["id"]): sorted(map(_value, of), key=str) for of in grouped(rows, "id")}
        if {change_of(row) for row in rows} - {ChangeType.INSERT}:
            self.wrongs.append("something else than inserts")
        if self.table.kind.needs_key:
            for part, values in given.items():
                self._judge(part, [version.get(part) for version in self.table.past], values)
            self.holds |= given
        else:
            self._judge("", [{}, *self.table.past], given)  # a table begins empty
            self.holds = given

    def _judge(self, part: str, past: list[object], given: object) -> None:
        same = [version for version, content in enumerate(past) if content == given]
        newer = [version for version in same if version >= self.versions.get(part, 0)]
        if not newer:
            self.wrongs.append(f"{part}: {given} after version {self.versions.get(part)}")
        self.versions[part] = min(newer, default=0)

    def expected(self) -> Content:
        return {key: list(values) for key, values in self.table.by_part().items()}


def _value(row: Row) -> object:
    return row["value"]


@dataclasses.dataclass
class Destination:
    """The way to a store: errors, rejects, silence, kills; several batches at once."""

    store: Store
    random: random.Random
    faults: bool = True
    stores_answers: bool = False  # a repeated call gets its first answer, as with Stripe
    answered: dict[tuple[str, str], tuple[Verdict, bool]] = dataclasses.field(
        default_factory=dict
    )  # what a journal would know of a batch's calls
    on_their_way: set[str] = dataclasses.field(default_factory=set)  # keys in batches that push has
    kills: Counter[str] = dataclasses.field(default_factory=Counter)  # by rowid: of processes that sent it
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def __call__(self, parcel: Parcel, journal: Journal) -> Pushed:
        batch = orjson.loads(parcel.text)
        rows = [dict(zip(batch["columns"], row, strict=True)) for row in batch["rows"]]
        keys = {unit.belongs_to or unit.key for unit in parcel.units}
        with self.lock:
            if keys & self.on_their_way:
                self.store.wrongs.append(f"{keys & self.on_their_way} in two batches at once")
            self.on_their_way |= keys
        try:
            return self._take(rows, parcel, journal)
        except KilledError:
            with self.lock:
                self._note_kill(rows)
            raise
        finally:
            with self.lock:
                self.on_their_way -= keys

    def _take(self, rows: list[Row], parcel: Parcel, journal: Journal) -> Pushed:
        self._may_die(0.05)
        if not (self.stores_answers or journal.is_rerun):  # a journal that is gone knows nothing
            self._forget(journal.seed)
        outcomes: dict[str, Outcome] = {}
        unanswered = 0
        for call in self.store.calls_of(rows):
            with self.lock:  # others may come in between two calls
                verdict, is_answered = self._call(journal, call)
            unanswered += not is_answered
            names = [f"{row['__ondatra_rowid']}:{row['__ondatra_change_type']}" for row in call] or [NO_ROW]
            outcomes |= dict.fromkeys(names, Outcome(verdict))
        assert {*parcel.keys} == {*outcomes} - {NO_ROW}
        self._may_die(0.05)
        return Pushed(outcomes, calls=len(rows), unanswered=unanswered)

    def _note_kill(self, rows: list[Row]) -> None:
        """Note a row that alone ended its process for the third time: inserts don't wait for dead letters."""
        rowids = {str(row["__ondatra_rowid"]) for row in rows}
        self.kills.update(rowids)
        is_given_up = len(rowids) == 1 and self.kills[rowids.pop()] >= CRASHES_BEFORE_SPLIT
        if is_given_up and isinstance(self.store, RowStore):
            self.store.note(rows)

    def _forget(self, seed: str) -> None:
        with self.lock:
            self.answered = {call: answer for call, answer in self.answered.items() if call[0] != seed}

    def _may_die(self, probability: float) -> None:
        with self.lock:
            if self._happens(probability):
                raise KilledError

    def _call(self, journal: Journal, rows: list[Row]) -> tuple[Verdict, bool]:
        """A call's verdict, and whether that is all there is to know of it."""
        call = journal.seed, repr(rows)
        if call in self.answered:
            return self.answered[call]
        if isinstance(self.store, RowStore):
            self.store.note(rows)
        verdict, is_applied, is_answered = self._fault()
        if is_applied:
            self.store.apply(rows)
        if self._happens(0.03):
            raise KilledError
        # one that a dead process may have made, and that fails now, may have been taken then
        is_certain = is_answered and (verdict is Verdict.OK or not journal.is_rerun)
        if is_answered:
            self.answered[call] = verdict, is_certain
        return verdict, is_certain

    def _happens(self, probability: float) -> bool:
        return self.faults and self.random.random() < probability

    def _fault(self) -> tuple[Verdict, bool, bool]:
        if self._happens(0.2):
            return Verdict.ERROR, False, True
        if self._happens(0.2):
            return Verdict.ERROR, self.random.random() < 0.5, False  # no answer: it may have been taken
        if self._happens(0.2):
            return Verdict.REJECT, False, True
        return Verdict.OK, True, True
