"""A project whose models are computed in the test run's one Spark session."""

import contextlib
import csv
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from ondatra_dagster.app.compute_write_and_read_tables import SparkTables
from ondatra_dagster.app.dry_run_service import DryRunService, open_dry_workspace
from ondatra_dagster.app.model_and_sync_steps import RunService
from ondatra_dagster.app.open_run_or_dry_run import open_service_on_tables
from ondatra_dagster.app.run_events import RunProgress
from ondatra_dagster.app.workspace import Workspace, load_workspace
from ondatra_dagster.cli.commands.run import RunCommandOptions, execute_plan, plan_run
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.warehouse.spark.session import Warehouse

HIDDEN_COLUMNS = ("_content_hash", "__ondatra_partition", "_commit_version", "_commit_timestamp", "__ondatra_rowid")


class SharedSessionTables(SparkTables):
    """The project's tables through a shared session, which isn't closed with them."""

    def __init__(self, settings: Settings, session: SparkSession) -> None:
        super().__init__(settings)
        self._warehouse = Warehouse(settings)
        self._warehouse._session = session

    def __exit__(self, *_: object) -> None:
        """Leave the session open: it belongs to the test run."""


@dataclasses.dataclass(frozen=True)
class SparkProject:
    """A project in a folder."""

    root: Path
    session: SparkSession

    def write_files(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def write_rows(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Write data/NAME.csv with a header; None becomes an empty cell."""
        path = self.root / "data" / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([columns, *rows])

    @property
    def workspace(self) -> Workspace:
        return load_workspace(self.root)

    def run(
        self, *, is_dry: bool = False, is_full: bool = False, as_json: bool = False, keeps_log: bool = False
    ) -> int:
        """Do what `ondatra run` does; return its exit code. The sync log takes a second: only `keeps_log` writes it."""
        workspace = self.workspace
        plan = plan_run(workspace, is_full=is_full, is_dry=is_dry)
        opened = self.open_engine if keeps_log else self._open_engine_without_sync_log
        return execute_plan(workspace, plan, RunCommandOptions(as_json=as_json, is_dry=is_dry), open_service=opened)

    @contextlib.contextmanager
    def open_engine(
        self, workspace: Workspace, progress: RunProgress | None = None, *, is_dry: bool = False
    ) -> Iterator[RunService]:
        """Yield the engine on the test run's session."""
        if is_dry:
            with self._open_dry_engine(workspace, progress) as engine:
                yield engine
            return
        tables = SharedSessionTables(workspace.settings, self.session)
        with open_service_on_tables(tables, workspace, progress) as engine:
            yield engine

    @contextlib.contextmanager
    def _open_engine_without_sync_log(
        self, workspace: Workspace, progress: RunProgress | None = None, *, is_dry: bool = False
    ) -> Iterator[RunService]:
        if is_dry:
            with self._open_dry_engine(workspace, progress) as engine:
                yield engine
            return
        with SharedSessionTables(workspace.settings, self.session) as tables:
            yield RunService(workspace, tables, progress=progress)

    @contextlib.contextmanager
    def _open_dry_engine(self, workspace: Workspace, progress: RunProgress | None) -> Iterator[RunService]:
        with open_dry_workspace(workspace) as rehearsed:
            tables = SharedSessionTables(rehearsed.settings, self.session)
            yield DryRunService(workspace, rehearsed, tables, progress=progress)

    def open_tables(self) -> SharedSessionTables:
        return SharedSessionTables(self.workspace.settings, self.session)

    def model(self, name: str) -> Model:
        return self.workspace.project.model(name)

    def table_path(self, name: str) -> str:
        return str(self.root / ".ondatra" / "warehouse" / name.replace(".", "/"))

    def log_version(self, name: str) -> int:
        """Return the version of the table's newest commit, whatever that changed."""
        return max(int(path.stem) for path in Path(self.table_path(name), "_delta_log").glob("*.json"))

    def read_feed(self, name: str, *, after: int) -> list[tuple[str, tuple[object, ...]]]:
        """Return Delta's change feed after that version: change types and visible values, sorted."""
        if self.log_version(name) <= after:
            return []
        reader = self.session.read.format("delta").option("readChangeFeed", "true")
        rows = reader.option("startingVersion", after + 1).load(self.table_path(name))
        shown = [column for column in rows.columns if column not in (*HIDDEN_COLUMNS, "_change_type")]
        changes = ((row["_change_type"], tuple(row[name] for name in shown)) for row in rows.collect())
        return sorted(changes, key=str)

    def rowids_by_value(self, name: str, column: str) -> dict[object, int]:
        rows = self.session.read.format("delta").load(self.table_path(name)).collect()
        return {row[column]: row["__ondatra_rowid"] for row in rows}
