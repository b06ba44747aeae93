"""Whether variables that sinks and alerts need are set, all are known, and .env is its owner's only."""

from collections.abc import Iterator

from ondatra_dagster.doctor.check_result import CheckResult, failed, ok, warning
from ondatra_dagster.doctor.machine import Machine
from ondatra_dagster.project.settings.env_file_mode import readable_env_file
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.project.settings.unknown_variables import unknown_variables
from ondatra_dagster.wording import count

REMEDY = "set it in .env or the environment"


def check(machine: Machine) -> Iterator[CheckResult]:
    """Return a result for each variable that is missing or unknown and for .env, or one for all."""
    if machine.settings is None:
        return
    needed = _needed(machine, machine.settings)
    missing = [name for name in needed if not machine.settings.secret(name)]
    unknown = list(unknown_variables(machine.folder, machine.settings.secrets.names))
    readable = list(readable_env_file(machine.settings.root))
    for name in missing:
        yield failed(f"{name} is not set, and {needed[name]} needs it", REMEDY)
    for problem in (*unknown, *readable):
        yield warning(f"{problem.file}: {problem.what}", problem.remedy)
    if not missing and not unknown and not readable:
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
