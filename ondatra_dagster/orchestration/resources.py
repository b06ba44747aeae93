"""The Dagster resource that all assets use: the run service, which opens when a run begins and closes when it ends.

An in-process run has one run service, and thus at most one JVM.
"""

import contextlib
from collections.abc import Iterator

import dagster as dg

from ondatra_dagster import interruption
from ondatra_dagster.app.model_and_sync_steps import RunService
from ondatra_dagster.app.open_run_or_dry_run import OpenRunService, open_run_service
from ondatra_dagster.app.workspace import Workspace
from ondatra_dagster.operations.alert_store import SubjectType
from ondatra_dagster.orchestration.run_tags_and_abandoned_runs import lock_run, mark_dry_run
from ondatra_dagster.storage.private_files import make_state_folder_private

RESOURCE_KEY = "ondatra"  # the resource's key, and the prefix of the keys of IO managers
POOL = RESOURCE_KEY  # the pool of each op that may start Spark: dagster.yaml lets one run at a time use it


def run_service_resource(
    workspace: Workspace, open_service: OpenRunService = open_run_service
) -> dg.ResourceDefinition:
    """Return the resource that opens the project's run service. Opening the service doesn't start Spark."""

    @dg.resource(description="The project's run service: one per run, with at most one Spark session")
    def run_service(context: dg.InitResourceContext) -> Iterator[RunService]:
        make_state_folder_private(workspace.settings.state)
        with contextlib.ExitStack() as stack:
            if context.instance and context.run:
                stack.enter_context(lock_run(context.instance, workspace.settings.state, context.run.run_id))
            service = stack.enter_context(open_service(workspace, is_dry=mark_dry_run(context.run)))
            service.alerts.dagster_run_id = context.run.run_id if context.run else None
            yield service

    return run_service


@contextlib.contextmanager
def raise_dagster_failure(
    run_service: RunService, name: str, subject_type: SubjectType | None = None
) -> Iterator[None]:
    """Turn an error inside the block into a sentence, and fail the step with this sentence.

    With `subject_type`, the error of the model or sync `name` is also stored for alerts.
    """
    try:
        yield
    except dg.Failure:
        raise
    except Exception as error:  # the outermost handler: no caller explains the error
        interruption.raise_if_interrupted()
        raise dg.Failure(
            description=run_service.report_error(name, error, subject_type=subject_type), allow_retries=False
        ) from error
