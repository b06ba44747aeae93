"""The exceptions of the package, grouped by what the reader of the message can do.

    OndatraError
    ├── ProjectError               fix a file of the project; carries all problems together
    ├── SettingsError              fix pyproject.toml, .env or a variable
    │   └── InvalidSettingsError   as for SettingsError; carries all problems together
    ├── SelectionError             name something that the project has
    ├── PushContractError          fix a lib/*.star file
    ├── WarehouseError             look at Spark, Java or the Delta tables
    │   └── SparkSetupError        give the machine what Spark needs: no model is wrong
    ├── ChecksFailedError          fix the rows that fail a model's checks, or fix the checks
    └── StateError                 look at the .ondatra folder
        ├── BusyError              another process works on the same thing: wait, or end it
        ├── DiskFullError          the disk is full: make room
        ├── OtherStateFolderError  another machine delivers the same sync: let only one of them do it
        └── ResyncNeededError      the content of the API is unknown: decide with `ondatra resync`

A message says what happened, where, and what to do. The packages cli and orchestration decide how to show it.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any


class OndatraError(Exception):
    """The base class of all errors that ondatra raises. The error's text is meant for the user."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """A problem in one file or variable of the project."""

    file: str  # relative to the project, with forward slashes; or the name of a variable
    line: int  # 0 for a variable, which has no lines
    description: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.description}; {self.remedy}"


class ProjectError(OndatraError):
    """The error for a project with problems in its files. `problems` has all problems, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))  # two files that load the same file may both report its problems
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SettingsError(OndatraError):
    """The error for a setting or variable that can't be used."""


class InvalidSettingsError(SettingsError):
    """The error for settings that can't be used. `problems` has all their problems."""

    def __init__(self, problems: Sequence[Problem], *, usable: Any = None) -> None:
        self.problems = tuple(sorted(problems))
        self.usable_settings = usable  # the settings without the invalid ones, if the project can be checked with them
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SelectionError(OndatraError):
    """The error for a model or sync that the project doesn't have."""


class PushContractError(OndatraError):
    """The error for a lib/*.star file that breaks the push contract."""


class WarehouseError(OndatraError):
    """The error for a problem with Spark, Java or a Delta table."""


class SparkSetupError(WarehouseError):
    """The error for a machine that lacks what Spark needs to start, such as Java, jars or memory."""


class ChecksFailedError(OndatraError):
    """The error for rows that fail a @constraint or an @audit. Nothing was written.

    `findings` has the result of each check.
    """

    def __init__(self, text: str, findings: Sequence[Any]) -> None:
        # of type RowCheckResult, which is in the package warehouse, a layer above this module
        self.findings = tuple(findings)
        super().__init__(text)


class StateError(OndatraError):
    """The error for a file below .ondatra that can't be used."""


class BusyError(StateError):
    """The error for a file, table or other resource that another process holds."""


class DiskFullError(StateError):
    """The error for a disk that has no room for the next write."""


class OtherStateFolderError(StateError):
    """The error for a sync that a run with another state folder already delivers.

    The other state folder is on another machine, or it is a copy of this one.
    """


class ResyncNeededError(StateError):
    """The error for an API whose content is unknown. Nothing is sent until the user decides how to continue."""
