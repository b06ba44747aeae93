"""The command `ondatra maintain`, which runs the same maintenance tasks as Dagster's schedules."""

import click

from ondatra_dagster import interruption
from ondatra_dagster.app.open_run_or_dry_run import OpenRunService, open_run_service
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.cli.current_project import open_workspace
from ondatra_dagster.cli.output import indent_lines, print_json, print_message
from ondatra_dagster.row_changes import Json


@click.command("maintain")
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per task.")
@click.pass_obj
def command(open_service: OpenRunService | None, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Free the space that is no longer needed, and keep tables quick to read.

    First each sync enqueues the new changes of its table, and the sync log gets the new records, so nothing is lost.
    Spark starts only if one of the tasks needs it.
    """
    return run_maintenance(open_workspace(), as_json=as_json, open_service=open_service or open_run_service)


def run_maintenance(workspace: Workspace, *, as_json: bool, open_service: OpenRunService = open_run_service) -> int:
    """Run the maintenance tasks and report the result of each. Return 1 if a task failed, otherwise 0."""
    is_successful = True
    with interruption.graceful_shutdown(), open_service(workspace) as run_service:
        for task_result in run_service.run_maintenance():
            is_successful = is_successful and task_result.is_successful
            if as_json:
                details: dict[str, Json] = (
                    {"each": [dict(task_details) for task_details in task_result.details]}
                    if task_result.details
                    else {}
                )
                print_json(
                    {
                        "task": task_result.task,
                        "ok": task_result.is_successful,
                        "did": task_result.message,
                        **task_result.counts,
                        **details,
                    }
                )
            print_message(
                f"{'✓' if task_result.is_successful else '✗'} {task_result.task}: {indent_lines(task_result.message)}"
            )
    return 0 if is_successful else 1
