"""Every exception of the engine, grouped by what the reader of its message can do.

    OndatraError
    ├── ProjectError            fix a file of the project: carries all problems together
    ├── SettingsError           fix pyproject.toml, .env or a variable
    │   └── BadSettingsError    the same: carries all problems together
    ├── SelectionError          name something that the project has
    ├── PushContractError       fix a lib/*.star file
    ├── WarehouseError          look at Spark, Java or the Delta tables
    │   └── SetUpError          give the machine what Spark needs: no model is at fault
    ├── ChecksFailedError       mend the rows that a model's checks refuse, or the checks
    └── StateError              look at the .ondatra folder
        ├── BusyError           another process works on the same thing: wait, or end it
        ├── FullError           the disk is full: make room
        ├── OtherStateError     another machine delivers the same sync: let only one of them
        └── ResyncNeededError   what the API holds is unknown: say how to go on with `ondatra resync`

A message says where, what, and what to do. How an error is shown belongs to cli and orchestration.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any


class OndatraError(Exception):
    """Anything that ondatra itself raises; its text is meant for the person who runs it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """One thing that is wrong in one file of the project."""

    file: str  # relative to the project, with forward slashes
    line: int  # 0: a variable, which has no lines
    description: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.description}; {self.remedy}"


class ProjectError(OndatraError):
    """The project can't be read as it stands; `problems` has every reason, not just the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))  # what two files load may be found twice
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SettingsError(OndatraError):
    """A setting, or a variable that stands for one, can't be used."""


class InvalidSettingsError(SettingsError):
    """What the project's settings say can't be used; `problems` has all of it."""

    def __init__(self, problems: Sequence[Problem], *, usable: Any = None) -> None:
        self.problems = tuple(sorted(problems))
        self.usable_settings = usable  # the Settings without them, where the rest of the project can be judged by those
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SelectionError(OndatraError):
    """A model or sync was asked for that the project doesn't have."""


class PushContractError(OndatraError):
    """A lib/*.star file breaks the push contract."""


class WarehouseError(OndatraError):
    """Spark, Java or a Delta table is not as a model needs it."""


class SparkSetupError(WarehouseError):
    """The machine lacks what Spark needs to start: Java, jars, memory."""


class ChecksFailedError(OndatraError):
    """Rows fail a @constraint or an @audit, so nothing was written; `findings` has what each check found."""

    def __init__(self, text: str, findings: Sequence[Any]) -> None:
        self.findings = tuple(findings)  # project.finding.Finding, which is a layer above
        super().__init__(text)


class StateError(OndatraError):
    """A file below .ondatra can't be used as it is."""


class BusyError(StateError):
    """Another process holds what this one needs."""


class DiskFullError(StateError):
    """The disk has no room for what is to be written."""


class OtherStateFolderError(StateError):
    """A run of another state folder, on another machine or of a copy, delivers the same sync."""


class ResyncNeededError(StateError):
    """Nobody knows any more what the API holds, so nothing is sent until the user says how to go on."""
