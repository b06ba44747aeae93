"""`ondatra validate`: everything that is wrong with the project's files, before anything runs."""

import dataclasses

import click

from ondatra_dagster.cli.here import open_workspace
from ondatra_dagster.cli.output import indented, put_json, say
from ondatra_dagster.errors import BadSettingsError, Problem, ProjectError
from ondatra_dagster.project.settings.env_file_mode import readable_env_file
from ondatra_dagster.wording import count


@click.command("validate")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option("as_json", "--json", is_flag=True, help="One JSON object a problem on stdout.")
def command(strict: bool, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Look at models, push functions and settings; opens no network, starts no Spark."""
    try:
        workspace = open_workspace()
        workspace.check_columns()
    except (ProjectError, BadSettingsError) as error:
        for problem in error.problems:
            _put(problem, "error", as_json=as_json)
        say(f"{count(len(error.problems), 'problem')} found")
        return 1
    warnings = [*workspace.warnings, *readable_env_file(workspace.settings.root)]
    for warning in warnings:
        _put(warning, "error" if strict else "warning", as_json=as_json)
    if strict and warnings:
        return 1
    models, syncs = count(len(workspace.project.models), "model"), count(len(workspace.syncs), "sync")
    say(f"{models} and {syncs}: nothing wrong was found")
    return 0


def _put(problem: Problem, level: str, *, as_json: bool) -> None:
    if as_json:
        put_json({"level": level, **dataclasses.asdict(problem)})
    else:
        say(indented(f"warning: {problem}" if level == "warning" else str(problem)))
