"""Whether the variables are set that sinks and alerts need, and all ONDATRA_ variables mean something."""

from collections.abc import Iterator

from ondatra_dagster.doctor.check_result import CheckResult, failed, ok, warning
from ondatra_dagster.doctor.machine import Machine
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.project.settings.unknown_variables import unknown_variables
from ondatra_dagster.wording import count

REMEDY = "set it in .env or the environment"


def check(machine: Machine) -> Iterator[CheckResult]:
    """Return a result for each variable that is missing or unknown, or one for all."""
    if machine.settings is None:
        return
    needed = _needed(machine, machine.settings)
    missing = [name for name in needed if not machine.settings.secret(name)]
    unknown = list(unknown_variables(machine.folder, machine.settings.secrets.names))
    for name in missing:
        yield failed(f"{name} is not set, and {needed[name]} needs it", REMEDY)
    for problem in unknown:
        yield warning(f"{problem.file}: {problem.what}", problem.remedy)
    if not missing and not unknown:
        yield ok(
            f"{count(len(needed), 'variable')} needed by sinks and alerts: set"
            if needed
            else "none is needed"
        )


def _needed(machine: Machine, settings: Settings) -> dict[str, str]:
    """Return the variables that have to be set, with what needs each."""
    syncs = machine.workspace.syncs.values() if machine.workspace else ()
    needed = {name: sync.config.file for sync in syncs for name in sync.config.variables}
    return needed | dict.fromkeys(settings.alerts.variables, "[tool.ondatra.alerts]")
