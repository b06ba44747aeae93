"""The context that the checks of `ondatra doctor` get, and the results that they return."""

import dataclasses
import enum
from collections.abc import Sequence
from pathlib import Path

from ondatra_dagster.app.workspace import Workspace, load_workspace
from ondatra_dagster.errors import InvalidSettingsError, Problem, ProjectError
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings, read_settings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """The settings and the project that the checks examine, and the problems that were found while reading them."""

    folder: Path  # the project's folder, or the current folder outside of a project
    settings: Settings | None  # None: the settings can't be used, so most checks yield no result
    settings_problems: Sequence[Problem] = ()
    is_project: bool = False
    workspace: Workspace | None = None  # None outside of a project, or if the project's files have problems
    project_problems: Sequence[Problem] = ()
    starts_spark: bool = True  # whether the checks may start Spark, and fetch its jars


def read_check_context(root: Path | None, *, starts_spark: bool = True) -> CheckContext:
    """Return the context of the checks for the project at `root`. `root` is None outside of a project."""
    folder = root or Path.cwd()
    settings, problems = _settings(folder)
    machine = CheckContext(folder=folder, settings=settings, settings_problems=problems, starts_spark=starts_spark)
    if root is None:
        return machine
    machine = dataclasses.replace(machine, is_project=True)
    if problems:
        return machine
    try:
        return dataclasses.replace(machine, workspace=load_workspace(root))
    except ProjectError as error:
        return dataclasses.replace(machine, project_problems=error.problems)


def _settings(folder: Path) -> tuple[Settings | None, Sequence[Problem]]:
    try:
        return read_settings(folder), ()
    except InvalidSettingsError as error:
        return error.usable_settings, error.problems


class CheckLevel(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"  # no run fails because of the result
    FAILED = "failed"  # a run, or a part of a run, fails because of the result


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check, and what the user should do about it."""

    level: CheckLevel
    description: str
    remedy: str = ""  # empty if the user needn't do anything

    def __str__(self) -> str:
        return f"{self.description}; {self.remedy}" if self.remedy else self.description


def ok_result(description: str) -> CheckResult:
    return CheckResult(level=CheckLevel.OK, description=description)


def warning_result(description: str, remedy: str = "") -> CheckResult:
    return CheckResult(level=CheckLevel.WARNING, description=description, remedy=remedy)


def failed_result(description: str, remedy: str = "") -> CheckResult:
    return CheckResult(level=CheckLevel.FAILED, description=description, remedy=remedy)
