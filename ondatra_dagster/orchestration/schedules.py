"""What runs at its time: a model with a @schedule, and its sync. On from the start, as its file says so."""

import dagster as dg

from ondatra_dagster.orchestration.naming import model_key, op_name, sink_key
from ondatra_dagster.project.model import Model


def model_schedule(model: Model, cron: str) -> dg.ScheduleDefinition:
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
