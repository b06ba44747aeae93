"""What runs at its time: models with a @schedule and their syncs, and what keeps the project in order.

On from the start: a model's because its file says so, the others because nobody thinks of them.
"""

from collections.abc import Iterable

import dagster as dg

from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.orchestration.engine import Engine
from ondatra_dagster.orchestration.naming import model_key, op_name, sink_key
from ondatra_dagster.orchestration.resources import POOL, failures
from ondatra_dagster.orchestration.shown import samples_table
from ondatra_dagster.project.cron import ON_CHANGE
from ondatra_dagster.project.model import Model

EACH_SIX_HOURS = "0 */6 * * *"


def model_schedules(models: Iterable[Model]) -> list[dg.ScheduleDefinition]:
    """Those of models that run at times; what runs on change is for a sensor."""
    at_times = (model for model in models if model.schedule != ON_CHANGE)
    return [_model_schedule(model, model.schedule) for model in at_times if model.schedule]


def _model_schedule(model: Model, cron: str) -> dg.ScheduleDefinition:
    """The schedule of one model, in UTC."""
    key = model_key(model)
    return dg.ScheduleDefinition(
        name=op_name(key, "schedule"),
        cron_schedule=cron,
        execution_timezone="UTC",
        target=[key, sink_key(model)] if model.sink else [key],
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Runs {model.name}{' and its sync' if model.sink else ''} at {cron}",
    )


@dg.op(name="ondatra_maintain", description="What frees space and keeps tables quick to read", pool=POOL)
def _maintain(context: dg.OpExecutionContext, ondatra: dg.ResourceParam[Engine]) -> None:
    """Do all duties; those that failed fail the run when all have had their turn."""
    with failures(ondatra, "maintain"):
        ends = list(ondatra.maintain())
        _report(context, ends)
        failed = "; ".join(end.did for end in ends if not end.is_good)
        if failed:
            raise dg.Failure(failed, allow_retries=False)


@dg.op(
    name="ondatra_fact_tables",
    description="What the syncs send from and to, for queries of records",
    pool=POOL,
)
def _fact_tables(context: dg.OpExecutionContext, ondatra: dg.ResourceParam[Engine]) -> None:
    with failures(ondatra, "fact tables"):
        _report(context, [ondatra.refresh_fact_tables()])


@dg.job(name="ondatra_maintain_job", description="What has to be done from time to time")
def maintain_job() -> None:
    _maintain()


@dg.job(name="ondatra_fact_tables_job", description="What has to be done each six hours")
def fact_tables_job() -> None:
    _fact_tables()


def upkeep_schedules(*, maintain_at: str | None, has_syncs: bool) -> list[dg.ScheduleDefinition]:
    """The schedules of a project that has models; the fact tables tell of syncs only."""
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


def _report(context: dg.OpExecutionContext, ends: list[Done]) -> None:
    """Show in Dagster what was done."""
    for end in ends:
        context.log.info("%s: %s", end.duty, end.did)
    numbers = {f"{end.duty}/{name}": number for end in ends for name, number in end.counts.items()}
    single = {f"{end.duty}/each": samples_table(end.each) for end in ends if end.each}
    context.add_output_metadata({**numbers, **single})
