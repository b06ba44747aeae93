"""Whether there is a Java that Spark runs on."""

from collections.abc import Iterator

from ondatra_dagster.doctor.check_result import CheckResult, failed, ok
from ondatra_dagster.doctor.machine import Machine
from ondatra_dagster.errors import SetUpError
from ondatra_dagster.warehouse.java import find_java


def check(machine: Machine) -> Iterator[CheckResult]:
    """Return which Java Spark would use, or which to get."""
    if machine.settings is None:
        return
    if machine.settings.spark.remote:
        yield ok("not needed: spark.remote is set")
        return
    try:
        java = find_java(machine.settings.java_home, setting=machine.settings.java_home_setting)
    except SetUpError as error:
        yield failed(str(error))
    else:
        yield ok(f"Java {java.release} at {java.executable}")
