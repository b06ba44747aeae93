"""The table of the checks of `ondatra doctor`: adding one is adding a module and a row."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ondatra_dagster.doctor import (
    disk_check,
    jar_check,
    java_check,
    package_check,
    port_check,
    settings_check,
    spark_check,
    variable_check,
)
from ondatra_dagster.doctor.check_result import CheckResult, Level, warning
from ondatra_dagster.doctor.machine import Machine


class Check(NamedTuple):
    """A check, and those that have to go well before it makes sense."""

    name: str
    run: Callable[[Machine], Iterator[CheckResult]]
    needs: tuple[str, ...] = ()
    starts_spark: bool = False


CHECKS = (
    Check("packages", package_check.check),
    Check("settings", settings_check.check),
    Check("variables", variable_check.check),
    Check("java", java_check.check),
    Check("jars", jar_check.check),
    Check("disk", disk_check.check),
    Check("ports", port_check.check),
    Check("spark", spark_check.check, needs=("packages", "java", "jars", "disk"), starts_spark=True),
)


class Named(NamedTuple):
    """A result with the name of its check."""

    check: str
    result: CheckResult


def run_checks(machine: Machine, *, on_begin: Callable[[str], None] = lambda _: None) -> Iterator[Named]:
    """Run the checks one after the other. `on_begin` is told each one's name before."""
    failures: set[str] = set()
    for check in CHECKS:
        if check.starts_spark and not machine.starts_spark:
            continue
        on_begin(check.name)
        if missing := [name for name in check.needs if name in failures]:
            yield Named(check.name, warning("not tried", f"first mend {' and '.join(missing)}"))
            continue
        for result in check.run(machine):
            if result.level is Level.FAILED:
                failures.add(check.name)
            yield Named(check.name, result)
