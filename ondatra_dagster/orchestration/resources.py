"""The one resource that all our assets share: the engine, opened when a run begins and closed when it ends.

In process, a run has one of it, and with it at most one JVM.
"""

import contextlib
from collections.abc import Iterator

import dagster as dg

from ondatra_dagster import interruption
from ondatra_dagster.operations.alert_book import SubjectType
from ondatra_dagster.orchestration import dry_events
from ondatra_dagster.orchestration.engine import Engine
from ondatra_dagster.orchestration.opening import OpenEngine, open_engine
from ondatra_dagster.orchestration.run_locks import lock_run
from ondatra_dagster.orchestration.workspace import Workspace
from ondatra_dagster.store.private_folder import keep_private

ENGINE = "ondatra"  # the resource's key, and the prefix of our other keys
POOL = ENGINE  # the pool of each op that may start Spark: dagster.yaml lets one run at a time use it


def engine_resource(workspace: Workspace, opened: OpenEngine = open_engine) -> dg.ResourceDefinition:
    """The engine of the project; Spark isn't started by opening it."""

    @dg.resource(description="The project's engine: one a run, with at most one Spark session")
    def engine(context: dg.InitResourceContext) -> Iterator[Engine]:
        keep_private(workspace.settings.state)
        with contextlib.ExitStack() as stack:
            if context.instance and context.run:
                stack.enter_context(lock_run(context.instance, workspace.settings.state, context.run.run_id))
            opened_engine = stack.enter_context(opened(workspace, is_dry=dry_events.begin(context.run)))
            opened_engine.alerts.dagster_run_id = context.run.run_id if context.run else None
            yield opened_engine

    return engine


@contextlib.contextmanager
def failures(engine: Engine, name: str, of: SubjectType | None = None) -> Iterator[None]:
    """What goes wrong inside is told as a sentence, and fails the step with it.

    That of a model or a sync is something that alerts tell of.
    """
    try:
        yield
    except dg.Failure:
        raise
    except Exception as error:  # the edge: nobody above this explains it
        interruption.check()
        raise dg.Failure(description=engine.explain(name, error, of=of), allow_retries=False) from error
