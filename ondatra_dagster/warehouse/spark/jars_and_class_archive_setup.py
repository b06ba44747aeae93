"""The set-up of a machine before Spark's first start: Delta's jars, and an archive of the JVM's classes.

A run fetches missing jars itself. The archive makes each later start of Spark some seconds faster.
"""

import datetime
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.errors import OndatraError
from ondatra_dagster.project.model import Model
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings, SparkSettings, read_settings
from ondatra_dagster.warehouse.change_feed import ChangeFeed
from ondatra_dagster.warehouse.model_run import evaluate_query, write_model
from ondatra_dagster.warehouse.model_write_request import ModelWrite
from ondatra_dagster.warehouse.spark.jar_download import (
    DELTA_JARS,
    S3A_JARS,
    FetchListener,
    fetch_needed_jars,
    jar_addresses,
)
from ondatra_dagster.warehouse.spark.java_finder import Java, find_java
from ondatra_dagster.warehouse.spark.jvm_process import class_archive_path
from ondatra_dagster.warehouse.spark.session import Warehouse

# queries with every kind of statement that a run makes, so that the archive has the classes for all
TRAINING_KINDS = ("table", "merge", "tracked")
TRAINING_QUERIES = ("select 1 as id, 'a' as text, 1.5 as amount", "select 1 as id, 'b' as text, 2.5 as amount")


class StderrFetchListener(FetchListener):
    """A listener that prints the progress of a fetch to stderr."""

    def on_start(self, message: str) -> None:
        _print_line(message)

    def on_progress(self, received_bytes: int, total: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{received_bytes * 100 // total} %" + ("\n" if received_bytes >= total else ""))


def main(arguments: Sequence[str] = ()) -> int:
    """Set up the machine, or list the files to download. Print an error as one sentence. Return the exit code."""
    try:
        settings = read_settings(Path.cwd())
        if "--list" in arguments:
            jars = S3A_JARS if "s3" in arguments else DELTA_JARS
            sys.stdout.writelines(f"{line}\n" for line in jar_addresses(settings.maven_mirror, jars))
            return 0
        java = find_java(settings.java_home, setting_name=settings.java_home_setting)
        archive = class_archive_path(java, fetch_needed_jars(settings, StderrFetchListener()))
        if not archive.exists():
            _print_line("making an archive of Java's classes, with which Spark starts faster: about a minute")
            _make_archive(archive, settings, java)
    except OndatraError as error:
        _print_line(str(error))
        return 1
    sys.stdout.write(f"Delta's jars are in {settings.jars}\n")
    return 0


def _print_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _make_archive(archive: Path, settings: Settings, java: Java) -> None:
    """Make the archive: start a JVM like that of a run, and do a run's work in it.

    The JVM archives the classes that it has loaded when it exits.
    """
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".archiving-") as folder:
        root = Path(folder)
        new_archive = root / archive.name
        training_settings = Settings(
            root=root,
            state=root / "state",
            warehouse=str(root / "warehouse"),
            tracking=str(root / "tracking"),
            jars=settings.jars,
            java_home=java.executable.parent.parent,
            spark=SparkSettings(master="local[1]"),
        )
        with Warehouse(training_settings, java_options=[f"-XX:ArchiveClassesAtExit={new_archive}"]) as warehouse:
            for model in _training_models():
                _run_model(warehouse, model)
        if new_archive.exists():
            new_archive.rename(archive)


def _training_models() -> Iterator[Model]:
    for kind in map(KINDS.__getitem__, TRAINING_KINDS):
        for sql in TRAINING_QUERIES:
            yield Model(
                name=f"exercise.{kind.name}",
                path=Path("exercise.sql"),
                file="exercise.sql",
                kind=kind,
                sql=sql,
                sql_line=1,
                definition="",
                key_columns=("id",) if kind.needs_key else (),
            )


def _run_model(warehouse: Warehouse, model: Model) -> None:
    run_id = f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}-set-up"
    note = CommitMetadata(definition="", inputs={}, run_id=run_id)
    result = write_model(warehouse, ModelWrite(model=model, frame=evaluate_query(warehouse, model, {}), note=note))
    feed = ChangeFeed(
        warehouse=warehouse,
        table=warehouse.table_path(model.id),
        key_columns=model.key_columns,
        groups_by_key=model.kind.delivers_by_key,
    )
    for segment in feed.segments(result.version - 1, result.version):
        for _ in segment.pages:
            pass
