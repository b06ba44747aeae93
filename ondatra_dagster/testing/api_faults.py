"""Faults on request: errors that a fake API makes because a caller asked for them."""

import dataclasses
import fnmatch
import threading
from collections.abc import Mapping
from typing import Literal, Self, get_args

from ondatra_dagster.row_changes import Json

DropMoment = Literal["before", "after"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to the next `times` calls that match, instead of the right answer."""

    method: str = "*"
    path: str = "*"  # as a shell would match it: /crm/*
    times: int | None = 1  # None: until the faults are cleared
    delay_seconds: float = 0  # before anything else; alone, the answer is right and late
    status: int | None = None  # answered without doing anything
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    message: str = "a fault that was asked for"
    drop: DropMoment | None = None  # end the connection before the call is looked at, or after it was done

    def __post_init__(self) -> None:
        if self.drop not in (None, *get_args(DropMoment)):
            raise ValueError(f"drop is 'before' or 'after', not {self.drop!r}")
        if self.times is not None and not (isinstance(self.times, int) and self.times >= 1):
            raise ValueError(f"times is 1 or more, or null for always, not {self.times!r}")
        if self.status is not None and not (isinstance(self.status, int) and 200 <= self.status <= 599):
            raise ValueError(f"status is an HTTP status from 200, not {self.status!r}")
        if not (isinstance(self.delay_seconds, int | float) and self.delay_seconds >= 0):
            raise ValueError(f"delay_seconds is 0 or more, not {self.delay_seconds!r}")

    @classmethod
    def parse(cls, asked: Json) -> Self:
        """A fault as POST /faults spells it; ValueError says what is wrong with it."""
        known = {field.name for field in dataclasses.fields(cls)}
        fields = asked if isinstance(asked, dict) else {"": asked}
        if unknown := sorted(set(fields) - known):
            raise ValueError(f"unknown {unknown}; a fault is an object of {', '.join(sorted(known))}")
        return cls(**fields)

    def matches(self, method: str, path: str) -> bool:
        return fnmatch.fnmatchcase(method, self.method) and fnmatch.fnmatchcase(path, self.path)


class FaultQueue:
    """The faults that are still to come, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._pending: list[Fault] = []
        self._lock = threading.Lock()  # a test asks from its own thread

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._pending.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._pending.clear()

    def pending_faults(self) -> tuple[Fault, ...]:
        with self._lock:
            return tuple(self._pending)

    def take_fault(self, method: str, path: str) -> Fault | None:
        """The fault for this call, counted; None when it is to be answered rightly."""
        with self._lock:
            for position, fault in enumerate(self._pending):
                if fault.matches(method, path):
                    self._count_use(position, fault)
                    return fault
        return None

    def _count_use(self, position: int, fault: Fault) -> None:
        if fault.times == 1:
            del self._pending[position]
        elif fault.times is not None:
            self._pending[position] = dataclasses.replace(fault, times=fault.times - 1)


@dataclasses.dataclass(slots=True)
class ScriptedFaults:
    """Faults by the place of a call among all that were made, by its path, or for all."""

    call_count: int = 0
    at: dict[int, Fault] = dataclasses.field(default_factory=dict)  # from 1
    paths: dict[str, Fault] = dataclasses.field(default_factory=dict)
    always: Fault | None = None

    def take_fault(self, _method: str, path: str) -> Fault | None:
        self.call_count += 1
        return self.at.get(self.call_count) or self.paths.get(path) or self.always

    def clear(self) -> None:
        """Let all go well from here on, and count anew."""
        self.call_count = 0
        self.at.clear()
        self.paths.clear()
        self.always = None
