"""Whether Spark starts, and writes and reads a Delta table: the proof that all before it can't give."""

import dataclasses
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.doctor.check_result import CheckResult, failed, ok
from ondatra_dagster.doctor.machine import Machine
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.wording import took


def check(machine: Machine) -> Iterator[CheckResult]:
    """Start Spark with the project's settings and return how long that took."""
    if machine.settings is None:
        return
    from ondatra_dagster.warehouse.spark_trial import try_spark  # here: pyspark may be what is missing

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ondatra-doctor-") as folder:
        try:
            done = try_spark(_settings(machine, machine.settings, Path(folder)), Path(folder))
        except WarehouseError as error:
            yield failed(str(error))
        else:
            yield ok(f"{done}, in {took(time.monotonic() - began)}")


def _settings(machine: Machine, settings: Settings, folder: Path) -> Settings:
    """Return the settings; outside of a project nothing is left behind."""
    return settings if machine.is_project else dataclasses.replace(settings, state=folder / "state")
