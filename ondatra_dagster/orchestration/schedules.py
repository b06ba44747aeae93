"""The Dagster schedules: for models with a @schedule and their syncs, and for maintenance. All are on by default."""

from collections.abc import Iterable

import dagster as dg

from ondatra_dagster.app.model_and_sync_steps import RunService
from ondatra_dagster.operations.enqueue_report_and_refresh_tasks import refresh_fact_tables
from ondatra_dagster.operations.maintenance_task_runner import TaskResult
from ondatra_dagster.orchestration.asset_keys import model_key, op_name, sync_key
from ondatra_dagster.orchestration.dagster_metadata import samples_table
from ondatra_dagster.orchestration.resources import POOL, raise_dagster_failure
from ondatra_dagster.project.header_value_parsers import ON_CHANGE
from ondatra_dagster.project.model import Model

EACH_SIX_HOURS = "0 */6 * * *"


def model_schedules(models: Iterable[Model]) -> list[dg.ScheduleDefinition]:
    """Return the schedules of models that run at fixed times, in UTC. Models on change have a sensor instead."""
    schedules = []
    for model in models:
        if model.schedule and model.schedule != ON_CHANGE:
            key = model_key(model)
            schedules.append(
                dg.ScheduleDefinition(
                    name=op_name(key, "schedule"),
                    cron_schedule=model.schedule,
                    execution_timezone="UTC",
                    target=[key, sync_key(model)] if model.sink else [key],
                    default_status=dg.DefaultScheduleStatus.RUNNING,
                    description=f"Runs {model.name}{' and its sync' if model.sink else ''} at {model.schedule}",
                )
            )
    return schedules


@dg.op(name="ondatra_maintain", description="Tasks that free space and keep tables fast to read", pool=POOL)
def _maintain_op(context: dg.OpExecutionContext, ondatra: dg.ResourceParam[RunService]) -> None:
    """Run all maintenance tasks. After the last task, fail the Dagster run if any task failed."""
    with raise_dagster_failure(ondatra, "maintain"):
        task_results = list(ondatra.run_maintenance())
        _report_results(context, task_results)
        failure_text = "; ".join(task_result.message for task_result in task_results if not task_result.is_successful)
        if failure_text:
            raise dg.Failure(failure_text, allow_retries=False)


@dg.op(name="ondatra_fact_tables", description="The syncs' sources and destinations, for queries of records", pool=POOL)
def _fact_tables_op(context: dg.OpExecutionContext, ondatra: dg.ResourceParam[RunService]) -> None:
    with raise_dagster_failure(ondatra, "fact tables"):
        workspace = ondatra.workspace
        _report_results(context, [refresh_fact_tables(workspace.tracking, workspace.syncs.values())])


@dg.job(name="ondatra_maintain_job", description="The maintenance tasks that are due")
def maintain_job() -> None:
    _maintain_op()


@dg.job(name="ondatra_fact_tables_job", description="The source and destination tables, every six hours")
def fact_tables_job() -> None:
    _fact_tables_op()


def maintenance_schedules(*, maintain_at: str | None, has_syncs: bool) -> list[dg.ScheduleDefinition]:
    """Return the maintenance schedules of a project with models. The schedule of fact tables needs a sync."""
    return [
        dg.ScheduleDefinition(
            name=name,
            cron_schedule=cron,
            execution_timezone="UTC",
            job=job,
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
        for name, cron, job in (
            *((("ondatra_fact_tables", EACH_SIX_HOURS, fact_tables_job),) if has_syncs else ()),
            *((("ondatra_maintain", maintain_at, maintain_job),) if maintain_at else ()),
        )
    ]


def _report_results(context: dg.OpExecutionContext, results: list[TaskResult]) -> None:
    """Show the results of maintenance tasks in Dagster's log and metadata."""
    for end in results:
        context.log.info("%s: %s", end.task, end.message)
    numbers = {f"{end.task}/{name}": number for end in results for name, number in end.counts.items()}
    single = {f"{end.task}/each": samples_table(end.details) for end in results if end.details}
    context.add_output_metadata({**numbers, **single})
