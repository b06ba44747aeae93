"""A project whose models are computed by the test run's one Spark session."""

import contextlib
import csv
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from ondatra_dagster.cli.run import make_plan, run
from ondatra_dagster.orchestration.dry_engine import DryEngine, open_dry_workspace
from ondatra_dagster.orchestration.engine import Engine
from ondatra_dagster.orchestration.opening import SparkTables, engine_over
from ondatra_dagster.orchestration.progress import Progress
from ondatra_dagster.orchestration.workspace import Workspace, load_workspace
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.warehouse.spark_session import Warehouse

HIDDEN = ("_content_hash", "__ondatra_partition", "_commit_version", "_commit_timestamp", "__ondatra_rowid")


class BorrowedTables(SparkTables):
    """The project's tables through a session that others use too, and that isn't closed with them."""

    def __init__(self, settings: Settings, session: SparkSession) -> None:
        super().__init__(settings)
        self._warehouse = Warehouse(settings)
        self._warehouse._session = session

    def __exit__(self, *_: object) -> None:
        """The session is whose test run it is."""


@dataclasses.dataclass(frozen=True)
class SparkProject:
    """One project in a folder."""

    root: Path
    session: SparkSession

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def write_rows(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """data/NAME.csv, with a header; None is an empty cell."""
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
        """`ondatra run`; its exit code. The sync log is only kept if that is asked for: it takes a second."""
        workspace = self.workspace
        plan = make_plan(workspace, is_full=is_full, is_dry=is_dry)
        opened = self.opened if keeps_log else self._opened_without_end
        return run(workspace, plan, as_json=as_json, opened=opened, is_dry=is_dry)

    @contextlib.contextmanager
    def opened(
        self, workspace: Workspace, progress: Progress | None = None, *, is_dry: bool = False
    ) -> Iterator[Engine]:
        """The engine over the session of the test run."""
        if is_dry:
            with self._dry(workspace, progress) as engine:
                yield engine
            return
        tables = BorrowedTables(workspace.settings, self.session)
        with engine_over(tables, workspace, progress) as engine:
            yield engine

    @contextlib.contextmanager
    def _opened_without_end(
        self, workspace: Workspace, progress: Progress | None = None, *, is_dry: bool = False
    ) -> Iterator[Engine]:
        if is_dry:
            with self._dry(workspace, progress) as engine:
                yield engine
            return
        with BorrowedTables(workspace.settings, self.session) as tables:
            yield Engine(workspace, tables, progress=progress)

    @contextlib.contextmanager
    def _dry(self, workspace: Workspace, progress: Progress | None) -> Iterator[Engine]:
        with open_dry_workspace(workspace) as rehearsed:
            tables = BorrowedTables(rehearsed.settings, self.session)
            yield DryEngine(workspace, rehearsed, tables, progress=progress)

    def tables(self) -> BorrowedTables:
        return BorrowedTables(self.workspace.settings, self.session)

    def model(self, name: str) -> Model:
        return self.workspace.project.model(name)

    def path(self, name: str) -> str:
        return str(self.root / ".ondatra" / "warehouse" / name.replace(".", "/"))

    def log_version(self, name: str) -> int:
        """The newest commit of the table, whatever it did."""
        return max(int(path.stem) for path in Path(self.path(name), "_delta_log").glob("*.json"))

    def feed(self, name: str, *, after: int) -> list[tuple[str, tuple[object, ...]]]:
        """The real change feed after that version: change types and visible values, sorted."""
        if self.log_version(name) <= after:
            return []
        reader = self.session.read.format("delta").option("readChangeFeed", "true")
        rows = reader.option("startingVersion", after + 1).load(self.path(name))
        shown = [column for column in rows.columns if column not in (*HIDDEN, "_change_type")]
        told = ((row["_change_type"], tuple(row[name] for name in shown)) for row in rows.collect())
        return sorted(told, key=str)

    def rowids(self, name: str, column: str) -> dict[object, int]:
        rows = self.session.read.format("delta").load(self.path(name)).collect()
        return {row[column]: row["__ondatra_rowid"] for row in rows}
