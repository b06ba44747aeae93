"""The checks of `ondatra doctor`, and their runner. To add a check, add a function, and a row to CHECKS."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ondatra_dagster.doctor import disk_and_port_check, settings_and_variables_check, software_and_spark_check
from ondatra_dagster.doctor.check_context_and_result import CheckContext, CheckLevel, CheckResult, warning_result


class DoctorCheck(NamedTuple):
    """A check, and the names of the checks that must not fail before it."""

    name: str
    run_check: Callable[[CheckContext], Iterator[CheckResult]]
    required_checks: tuple[str, ...] = ()
    starts_spark: bool = False


CHECKS = (
    DoctorCheck("packages", software_and_spark_check.check_packages),
    DoctorCheck("settings", settings_and_variables_check.check_settings),
    DoctorCheck("variables", settings_and_variables_check.check_variables),
    DoctorCheck("java", software_and_spark_check.check_java),
    DoctorCheck("jars", software_and_spark_check.check_jars),
    DoctorCheck("disk", disk_and_port_check.check_disks),
    DoctorCheck("ports", disk_and_port_check.check_ports),
    DoctorCheck(
        "spark",
        software_and_spark_check.check_spark,
        required_checks=("packages", "java", "jars", "disk"),
        starts_spark=True,
    ),
)


def run_checks(
    machine: CheckContext, *, on_begin: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[str, CheckResult]]:
    """Run the checks one after the other, and yield each result with the name of its check.

    Before each check, `on_begin` is called with the check's name. A check isn't run if a check that it requires failed.
    """
    failures: set[str] = set()
    for check in CHECKS:
        if check.starts_spark and not machine.starts_spark:
            continue
        on_begin(check.name)
        if failed_checks := [name for name in check.required_checks if name in failures]:
            yield check.name, warning_result("not tried", f"first correct {' and '.join(failed_checks)}")
            continue
        for result in check.run_check(machine):
            if result.level is CheckLevel.FAILED:
                failures.add(check.name)
            yield check.name, result
