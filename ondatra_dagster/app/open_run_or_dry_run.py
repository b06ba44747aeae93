"""The opening of a run service: with Spark on the real tables, or on clones and copies for a dry run."""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from ondatra_dagster import interruption
from ondatra_dagster.app.compute_write_and_read_tables import RunTables, SparkTables
from ondatra_dagster.app.dry_run_service import DryRunService, open_dry_workspace
from ondatra_dagster.app.model_and_sync_steps import RunService
from ondatra_dagster.app.run_events import RunProgress
from ondatra_dagster.app.workspace import Workspace


class OpenRunService(Protocol):
    """A function that opens a run service for the duration of a run."""

    def __call__(
        self, workspace: Workspace, progress: RunProgress | None = None, *, is_dry: bool = False
    ) -> AbstractContextManager[RunService]: ...


@contextlib.contextmanager
def open_run_service(
    workspace: Workspace, progress: RunProgress | None = None, *, is_dry: bool = False
) -> Iterator[RunService]:
    """Open a project's run service; at the end, close all that it started. A dry run leaves no files."""
    interruption.clear_earlier_signal()
    notice = progress.on_wait if progress else None
    with contextlib.ExitStack() as stack:
        if not is_dry:
            tables = stack.enter_context(SparkTables(workspace.settings, notice))
            yield stack.enter_context(open_service_on_tables(tables, workspace, progress))
            return
        dry_workspace = stack.enter_context(open_dry_workspace(workspace))
        tables = stack.enter_context(SparkTables(dry_workspace.settings, notice))
        yield DryRunService(workspace, dry_workspace, tables, progress=progress)


@contextlib.contextmanager
def open_service_on_tables(
    tables: RunTables, workspace: Workspace, progress: RunProgress | None = None
) -> Iterator[RunService]:
    """Open a run service on open tables. At the end of a run that didn't fail, send alerts and fill the sync log."""
    run_service = RunService(workspace, tables, progress=progress)
    yield run_service
    run_service.finish_run()
