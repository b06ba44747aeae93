"""Whether the jars that Spark needs are there, with the pinned content."""

from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.doctor.check_result import CheckResult, failed, ok, warning
from ondatra_dagster.doctor.machine import Machine
from ondatra_dagster.errors import SetUpError
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.warehouse.jars import S3A_FOLDER, damaged_jars, fetch_needed_jars, missing_jars
from ondatra_dagster.warehouse.pinned_jars import DELTA, S3A, JarSet
from ondatra_dagster.wording import size_of


def check(machine: Machine) -> Iterator[CheckResult]:
    """Fetch the jars that are missing, as a run would, and return whether all are intact."""
    if machine.settings is None:
        return
    if machine.settings.spark.remote:
        yield ok("not needed: spark.remote is set")
        return
    if machine.starts_spark:
        try:
            fetch_needed_jars(machine.settings)
        except SetUpError as error:
            yield failed(str(error))
            return
    yield from (_judge(folder, wanted) for folder, wanted in _needed(machine.settings).items())


def _needed(settings: Settings) -> dict[Path, JarSet]:
    return {settings.jars: DELTA} | ({settings.jars / S3A_FOLDER: S3A} if settings.uses_s3 else {})


def _judge(folder: Path, wanted: JarSet) -> CheckResult:
    if missing := missing_jars(folder, wanted):
        size = size_of(sum(jar.size for jar in missing))
        return warning(f"{wanted.title} are not all in {folder}", f"the next run fetches them: {size}")
    if damaged := damaged_jars(folder, wanted):
        names = ", ".join(str(folder / jar.name) for jar in damaged)
        return failed(
            f"the content is not the pinned one: {names}", "delete it; the next run fetches it again"
        )
    return ok(f"{wanted.title}: {len(wanted.jars)} files, {size_of(wanted.size)}, in {folder}")
