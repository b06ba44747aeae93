"""The fake APIs of random histories: they store rows and fail at random, and tests compare them with the table."""

import dataclasses
import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

import orjson

from ondatra_dagster.delivery.batch_scheduler import CRASHES_BEFORE_SPLIT
from ondatra_dagster.delivery.push.push_interface import PushBatch, PushResult
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.delivery.row_outcome import NO_ROW_KEY, RowOutcome, Verdict
from ondatra_dagster.project.model_kinds import Kind
from ondatra_dagster.row_changes import ChangeType

DestinationRow = dict[str, object]
DestinationContent = dict[str, list[object]]
NEW_VALUE_TYPES = {ChangeType.INSERT, ChangeType.UPDATE_POSTIMAGE}


class SimulatedCrashError(Exception):
    """An error that ends a simulated process; the queue sees a crash."""


class DestinationObjects(Protocol):
    """The objects of a fake API, and the violations: calls that it should never have got."""

    objects: DestinationContent
    violations: list[str]

    def split_into_calls(self, rows: list[DestinationRow]) -> list[list[DestinationRow]]:
        """Return the rows of each call."""

    def apply_call(self, rows: list[DestinationRow]) -> None: ...

    def expected_objects(self) -> DestinationContent:
        """Return the objects of an API that mirrors the table."""


def read_change_type(row: DestinationRow) -> ChangeType:
    return ChangeType(str(row["__ondatra_change_type"]))


def group_rows(rows: list[DestinationRow], name: str) -> list[list[DestinationRow]]:
    groups: dict[object, list[DestinationRow]] = {}
    for row in rows:
        groups.setdefault(row[name], []).append(row)
    return list(groups.values())


class KeyedTable(Protocol):
    """A table whose rows have a key, and each key's values."""

    def content(self) -> dict[str, list[int]]: ...


class RowidTable(Protocol):
    """A table whose rows are identified by rowids, and the content of each of its versions."""

    content_by_version: list[dict[str, list[int]]]

    @property
    def kind(self) -> Kind: ...

    def content_by_key(self) -> dict[str, list[int]]: ...

    def content_by_rowid(self) -> DestinationContent: ...

    def find_change_version(self, rowid: int, change_type: ChangeType) -> int | None: ...


@dataclasses.dataclass
class KeyedObjects:
    """The values of each key. A value smaller than an earlier one is a violation."""

    table: KeyedTable
    objects: DestinationContent = dataclasses.field(default_factory=dict)
    violations: list[str] = dataclasses.field(default_factory=list)
    newest_values: dict[str, int] = dataclasses.field(default_factory=dict)

    def split_into_calls(self, rows: list[DestinationRow]) -> list[list[DestinationRow]]:
        return group_rows(rows, "id")

    def apply_call(self, rows: list[DestinationRow]) -> None:
        key = str(rows[0]["id"])
        values = sorted(int(str(row["value"])) for row in rows if read_change_type(row) in NEW_VALUE_TYPES)
        if not values:
            self.objects.pop(key, None)
            return
        if min(values) < self.newest_values.get(key, 0):
            self.violations.append(f"{key}: {values} after {self.newest_values[key]}")
        self.newest_values[key] = min(values)
        self.objects[key] = list(values)

    def expected_objects(self) -> DestinationContent:
        return {key: list(values) for key, values in self.table.content().items()}


@dataclasses.dataclass
class RowidObjects:
    """The rows by rowid. It is a violation when a deleted row returns, or a version that ended is current again.

    It is also a violation when a row arrives before the rows that it replaces are deleted.
    """

    table: RowidTable
    objects: DestinationContent = dataclasses.field(default_factory=dict)
    violations: list[str] = dataclasses.field(default_factory=list)
    deleted_rowids: set[str] = dataclasses.field(default_factory=set)
    delete_requests: set[str] = dataclasses.field(default_factory=set)

    def split_into_calls(self, rows: list[DestinationRow]) -> list[list[DestinationRow]]:
        return group_rows(rows, "__ondatra_rowid")

    def record_delete_request(self, rows: list[DestinationRow]) -> None:
        """Record that a delete was requested, whatever its outcome."""
        self.delete_requests |= {
            str(row["__ondatra_rowid"]) for row in rows if read_change_type(row) is ChangeType.DELETE
        }

    def apply_call(self, rows: list[DestinationRow]) -> None:
        rowid = str(rows[0]["__ondatra_rowid"])
        (*_, last) = rows
        if read_change_type(last) is ChangeType.DELETE:
            self.objects.pop(rowid, None)
            self.deleted_rowids.add(rowid)
            return
        new = [value for name, value in last.items() if not name.startswith("__ondatra_")]
        self._check_call(rowid, read_change_type(last), new)
        self.objects[rowid] = new

    def _check_call(self, rowid: str, change: ChangeType, new: list[object]) -> None:
        before = self.objects.get(rowid)
        if rowid in self.deleted_rowids:
            self.violations.append(f"{rowid} came after it had gone")
        if self.table.kind.keeps_versions and before and before[-1] is False and new[-1] is True:
            self.violations.append(f"{rowid} began after it had ended")
        if self.table.kind.replaces_rows and change is ChangeType.INSERT:
            self.violations += [f"{rowid} came before {old} went" for old in self._rows_to_delete_first(int(rowid))]

    def _rows_to_delete_first(self, rowid: int) -> Iterator[str]:
        """Yield the rows that the new row's version, or an earlier one, replaced, and that aren't deleted."""
        insert_version = self.table.find_change_version(rowid, ChangeType.INSERT)
        for old in self.objects.keys() - self.delete_requests:
            delete_version = self.table.find_change_version(int(old), ChangeType.DELETE)
            if insert_version is not None and delete_version is not None and delete_version <= insert_version:
                yield old

    def expected_objects(self) -> DestinationContent:
        return self.table.content_by_rowid()


@dataclasses.dataclass
class WholeContentObjects:
    """The last content that the API got, of the table or of each partition. An older content is a violation."""

    table: RowidTable
    objects: DestinationContent = dataclasses.field(default_factory=dict)
    violations: list[str] = dataclasses.field(default_factory=list)
    versions: dict[str, int] = dataclasses.field(default_factory=dict)  # by partition: the version of its content

    def split_into_calls(self, rows: list[DestinationRow]) -> list[list[DestinationRow]]:
        return [rows]

    def apply_call(self, rows: list[DestinationRow]) -> None:
        content: DestinationContent = {
            str(of[0]["id"]): sorted(map(_row_value, of), key=str) for of in group_rows(rows, "id")
        }
        if {read_change_type(row) for row in rows} - {ChangeType.INSERT}:
            self.violations.append("something else than inserts")
        if self.table.kind.needs_key:
            for part, values in content.items():
                self._check_call(part, [version.get(part) for version in self.table.content_by_version], values)
            self.objects |= content
        else:
            self._check_call("", [{}, *self.table.content_by_version], content)  # a table is empty at first
            self.objects = content

    def _check_call(self, part: str, past: list[object], new_content: object) -> None:
        same = [version for version, content in enumerate(past) if content == new_content]
        newer = [version for version in same if version >= self.versions.get(part, 0)]
        if not newer:
            self.violations.append(f"{part}: {new_content} after version {self.versions.get(part)}")
        self.versions[part] = min(newer, default=0)

    def expected_objects(self) -> DestinationContent:
        return {key: list(values) for key, values in self.table.content_by_key().items()}


def _row_value(row: DestinationRow) -> object:
    return row["value"]


@dataclasses.dataclass
class FaultyDestination:
    """A push function for a fake API, with random errors, rejects, missing answers and crashes."""

    objects_store: DestinationObjects
    rng: random.Random
    has_faults: bool = True
    stores_responses: bool = False  # a repeated call gets its first answer, as with Stripe
    stored_responses: dict[tuple[str, str], tuple[Verdict, bool]] = dataclasses.field(
        default_factory=dict
    )  # the responses that a journal would have of a batch's calls
    keys_in_flight: set[str] = dataclasses.field(default_factory=set)  # keys in batches that are being pushed
    crashes_by_rowid: Counter[str] = dataclasses.field(default_factory=Counter)  # by rowid: crashes while it was pushed
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def __call__(self, parcel: PushBatch, journal: ResponseJournal) -> PushResult:
        batch = orjson.loads(parcel.rows_json)
        rows = [dict(zip(batch["columns"], row, strict=True)) for row in batch["rows"]]
        keys = {unit.belongs_to or unit.key for unit in parcel.units}
        with self.lock:
            if keys & self.keys_in_flight:
                self.objects_store.violations.append(f"{keys & self.keys_in_flight} in two batches at once")
            self.keys_in_flight |= keys
        try:
            return self._handle_batch(rows, parcel, journal)
        except SimulatedCrashError:
            with self.lock:
                self._record_crash(rows)
            raise
        finally:
            with self.lock:
                self.keys_in_flight -= keys

    def _handle_batch(self, rows: list[DestinationRow], parcel: PushBatch, journal: ResponseJournal) -> PushResult:
        self._maybe_crash(0.05)
        if not (self.stores_responses or journal.is_rerun):  # a lost journal has no responses
            self._discard_responses(journal.batch_key)
        outcomes: dict[str, RowOutcome] = {}
        unanswered = 0
        for call in self.objects_store.split_into_calls(rows):
            with self.lock:  # other batches may run between two calls
                verdict, is_answered = self._handle_call(journal, call)
            unanswered += not is_answered
            names = [f"{row['__ondatra_rowid']}:{row['__ondatra_change_type']}" for row in call] or [NO_ROW_KEY]
            outcomes |= dict.fromkeys(names, RowOutcome(verdict))
        assert {*parcel.result_keys} == {*outcomes} - {NO_ROW_KEY}
        self._maybe_crash(0.05)
        return PushResult(outcomes, calls=len(rows), unanswered_calls=unanswered)

    def _record_crash(self, rows: list[DestinationRow]) -> None:
        """Count a crash. A row alone at its third crash becomes a dead letter: inserts don't wait for it."""
        rowids = {str(row["__ondatra_rowid"]) for row in rows}
        self.crashes_by_rowid.update(rowids)
        is_given_up = len(rowids) == 1 and self.crashes_by_rowid[rowids.pop()] >= CRASHES_BEFORE_SPLIT
        if is_given_up and isinstance(self.objects_store, RowidObjects):
            self.objects_store.record_delete_request(rows)

    def _discard_responses(self, seed: str) -> None:
        with self.lock:
            self.stored_responses = {call: answer for call, answer in self.stored_responses.items() if call[0] != seed}

    def _maybe_crash(self, probability: float) -> None:
        with self.lock:
            if self._draw_fault(probability):
                raise SimulatedCrashError

    def _handle_call(self, journal: ResponseJournal, rows: list[DestinationRow]) -> tuple[Verdict, bool]:
        """Carry out a call; return its verdict, and whether that verdict is certain."""
        call = journal.batch_key, repr(rows)
        if call in self.stored_responses:
            return self.stored_responses[call]
        if isinstance(self.objects_store, RowidObjects):
            self.objects_store.record_delete_request(rows)
        verdict, is_applied, is_answered = self._draw_outcome()
        if is_applied:
            self.objects_store.apply_call(rows)
        if self._draw_fault(0.03):
            raise SimulatedCrashError
        # a call that fails now may have been carried out before, by a process that crashed
        is_certain = is_answered and (verdict is Verdict.OK or not journal.is_rerun)
        if is_answered:
            self.stored_responses[call] = verdict, is_certain
        return verdict, is_certain

    def _draw_fault(self, probability: float) -> bool:
        return self.has_faults and self.rng.random() < probability

    def _draw_outcome(self) -> tuple[Verdict, bool, bool]:
        if self._draw_fault(0.2):
            return Verdict.ERROR, False, True
        if self._draw_fault(0.2):
            return Verdict.ERROR, self.rng.random() < 0.5, False  # no answer: the call may have been carried out
        if self._draw_fault(0.2):
            return Verdict.REJECT, False, True
        return Verdict.OK, True, True
