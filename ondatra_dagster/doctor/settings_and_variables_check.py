"""The checks of the settings, the project's files and the environment variables."""

from collections.abc import Iterator

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.doctor.check_context_and_result import (
    CheckContext,
    CheckResult,
    failed_result,
    ok_result,
    warning_result,
)
from ondatra_dagster.project.settings.environment_warnings import env_file_warnings, unknown_variable_warnings
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings


def check_settings(machine: CheckContext) -> Iterator[CheckResult]:
    """Yield a result for each setting that can't be used. If all can be used, yield one result about the project."""
    if machine.settings_problems:
        yield from (failed_result(str(problem)) for problem in machine.settings_problems)
    elif not machine.is_project:
        yield warning_result(
            f"{machine.folder} is not in an ondatra project, so only this machine is checked",
            "for the rest, change into a project, or create one: ondatra init DIR",
        )
    elif machine.workspace is None:
        problem_count = format_count(len(machine.project_problems), "problem")
        yield failed_result(f"the files of {machine.folder} have {problem_count}", "`ondatra validate` names each")
    else:
        models = format_count(len(machine.workspace.project.models), "model")
        syncs = format_count(len(machine.workspace.syncs), "sync")
        yield ok_result(f"{machine.folder}: {models}, {syncs}")


UNSET_REMEDY = "set it in .env or the environment"


def check_variables(machine: CheckContext) -> Iterator[CheckResult]:
    """Yield a result for each missing or unknown variable and for each problem of .env.

    If there is no problem, yield one result for all variables.
    """
    if machine.settings is None:
        return
    needed_variables = _needed_variables(machine, machine.settings)
    missing_names = [name for name in needed_variables if not machine.settings.secret(name)]
    unknown_warnings = list(unknown_variable_warnings(machine.folder, machine.settings.secrets.names))
    env_warnings = list(env_file_warnings(machine.settings.root))
    for name in missing_names:
        yield failed_result(f"{name} is not set, and {needed_variables[name]} needs it", UNSET_REMEDY)
    for problem in (*unknown_warnings, *env_warnings):
        yield warning_result(f"{problem.file}: {problem.description}", problem.remedy)
    if not missing_names and not unknown_warnings and not env_warnings:
        yield ok_result(
            f"{format_count(len(needed_variables), 'variable')} needed by sinks and alerts: set"
            if needed_variables
            else "none is needed"
        )


def _needed_variables(machine: CheckContext, settings: Settings) -> dict[str, str]:
    """Return the variables that the user has to set, each with the file or section that needs it."""
    syncs = machine.workspace.syncs.values() if machine.workspace else ()
    files_by_variable = {name: sync.push_config.file for sync in syncs for name in sync.push_config.variables}
    return files_by_variable | dict.fromkeys(settings.alerts.required_variables, "[tool.ondatra.alerts]")
