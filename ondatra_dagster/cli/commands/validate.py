"""The command `ondatra validate`, which reports all errors in the project's files before anything runs."""

import click

from ondatra_dagster.cli.current_project import open_workspace
from ondatra_dagster.cli.output import indent_lines, print_json, print_message
from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.errors import InvalidSettingsError, Problem, ProjectError
from ondatra_dagster.project.settings.environment_warnings import env_file_warnings


@click.command("validate")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per problem.")
def command(strict: bool, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Check models, push functions and settings, without network access and without Spark."""
    try:
        workspace = open_workspace()
        workspace.check_columns()
    except (ProjectError, InvalidSettingsError) as error:
        for problem in error.problems:
            _print_problem(problem, "error", as_json=as_json)
        print_message(f"{format_count(len(error.problems), 'problem')} found")
        return 1
    warnings = [*workspace.warnings, *env_file_warnings(workspace.settings.root)]
    for warning in warnings:
        _print_problem(warning, "error" if strict else "warning", as_json=as_json)
    if strict and warnings:
        return 1
    models, syncs = (format_count(len(workspace.project.models), "model"), format_count(len(workspace.syncs), "sync"))
    print_message(f"{models} and {syncs}: nothing wrong was found")
    return 0


def _print_problem(problem: Problem, level: str, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "level": level,
                "file": problem.file,
                "line": problem.line,
                "what": problem.description,
                "remedy": problem.remedy,
            }
        )
    else:
        print_message(indent_lines(f"warning: {problem}" if level == "warning" else str(problem)))
