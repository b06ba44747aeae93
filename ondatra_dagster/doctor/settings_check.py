"""Whether the settings can be used, and the project's files with them."""

from collections.abc import Iterator

from ondatra_dagster.doctor.check_result import CheckResult, failed, ok, warning
from ondatra_dagster.doctor.machine import Machine
from ondatra_dagster.wording import count


def check(machine: Machine) -> Iterator[CheckResult]:
    """Return a result for each setting that can't be used, or one on the project."""
    if machine.settings_problems:
        yield from (failed(str(problem)) for problem in machine.settings_problems)
    elif not machine.is_project:
        yield warning(
            f"{machine.folder} is in no project, so only this machine is checked",
            "for the rest, change into a project, or create one: ondatra init DIR",
        )
    elif machine.workspace is None:
        found = count(len(machine.project_problems), "problem")
        yield failed(f"the files of {machine.folder} have {found}", "`ondatra validate` names each")
    else:
        models = count(len(machine.workspace.project.models), "model")
        syncs = count(len(machine.workspace.syncs), "sync")
        yield ok(f"{machine.folder}: {models}, {syncs}")
