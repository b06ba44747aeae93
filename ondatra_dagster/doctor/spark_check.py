"""The doctor's check of Spark: it starts, runs a query, and writes and reads a Delta table."""

import dataclasses
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.doctor.check_context import CheckContext
from ondatra_dagster.doctor.check_result import CheckResult, failed_result, ok_result
from ondatra_dagster.errors import SparkSetupError, WarehouseError
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.text_format import format_elapsed


def check_spark(machine: CheckContext) -> Iterator[CheckResult]:
    """Start Spark with the project's settings and return how long that took."""
    if machine.settings is None:
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ondatra-doctor-") as folder:
        try:
            done = _try_spark(_trial_settings(machine, machine.settings, Path(folder)), Path(folder))
        except WarehouseError as error:
            yield failed_result(str(error))
        else:
            yield ok_result(f"{done}, in {format_elapsed(time.monotonic() - began)}")


def _trial_settings(machine: CheckContext, settings: Settings, folder: Path) -> Settings:
    """Return the settings; outside of a project nothing is left behind."""
    return settings if machine.is_project else dataclasses.replace(settings, state=folder / "state")


def _try_spark(settings: Settings, folder: Path) -> str:
    """Start Spark and use it; return what went well. Raises WarehouseError."""
    # imported here: pyspark may be missing, or Java
    from ondatra_dagster.warehouse.spark.error_messages import explain_spark_errors
    from ondatra_dagster.warehouse.spark.session import Warehouse

    with (
        Warehouse(settings) as warehouse,
        explain_spark_errors("Spark started, and a first query failed", raises=SparkSetupError),
    ):
        session = warehouse.session
        session.range(1).collect()
        if settings.spark.remote or not settings.spark.master.startswith("local"):
            return f"Spark {session.version} started and ran a query"  # its disk is another machine's
        table = str(folder / "trial")
        session.range(1).write.format("delta").save(table)
        session.read.format("delta").load(table).collect()
        return f"Spark {session.version} started, and wrote and read a Delta table"
