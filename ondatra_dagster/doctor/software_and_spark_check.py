"""The checks of installed packages, Java and Spark's jars, and of a start of Spark."""

import dataclasses
import importlib.metadata
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from ondatra_dagster.count_time_and_size_format import format_elapsed, format_size
from ondatra_dagster.doctor.check_context_and_result import (
    CheckContext,
    CheckResult,
    failed_result,
    ok_result,
    warning_result,
)
from ondatra_dagster.errors import SparkSetupError, WarehouseError
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.warehouse.spark.jar_download import (
    DELTA_JARS,
    S3A_FOLDER,
    S3A_JARS,
    JarSet,
    damaged_jars,
    fetch_needed_jars,
    missing_jars,
)
from ondatra_dagster.warehouse.spark.java_finder import find_java

PACKAGES_SHOWN = ("ondatra", "dagster", "pyspark", "delta-spark")


def check_packages(_: CheckContext) -> Iterator[CheckResult]:
    """Yield a result for each package that doesn't meet ondatra's requirements. If all do, yield one result."""
    problems = [result for requirement in _read_requirements() if (result := _judge_requirement(requirement))]
    versions = [f"{name} {version}" for name in PACKAGES_SHOWN if (version := _installed_version(name))]
    yield from problems or [ok_result(", ".join([*versions, f"Python {platform.python_version()}"]))]


def _read_requirements() -> list[Requirement]:
    """Return the packages that ondatra requires on this machine, without optional extras."""
    requirements = map(Requirement, importlib.metadata.requires("ondatra") or ())
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]


def _judge_requirement(requirement: Requirement) -> CheckResult | None:
    version = _installed_version(requirement.name)
    remedy = f"pip install '{requirement}'"
    if version is None:
        return failed_result(f"{requirement.name} is not installed", remedy)
    if not requirement.specifier.contains(version, prereleases=True):
        return failed_result(f"{requirement.name} is {version}, and ondatra needs {requirement.specifier}", remedy)
    return None


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_java(machine: CheckContext) -> Iterator[CheckResult]:
    """Yield a result that says which Java Spark would use, or which one to install."""
    if machine.settings is None:
        return
    if machine.settings.spark.remote:
        yield ok_result("not needed: spark.remote is set")
        return
    try:
        java = find_java(machine.settings.java_home, setting_name=machine.settings.java_home_setting)
    except SparkSetupError as error:
        yield failed_result(str(error))
    else:
        yield ok_result(f"Java {java.release} at {java.executable}")


def check_jars(machine: CheckContext) -> Iterator[CheckResult]:
    """Fetch the missing jars, as a run does, and yield a result that says whether all jars are intact."""
    if machine.settings is None:
        return
    if machine.settings.spark.remote:
        yield ok_result("not needed: spark.remote is set")
        return
    if machine.starts_spark:
        try:
            fetch_needed_jars(machine.settings)
        except SparkSetupError as error:
            yield failed_result(str(error))
            return
    yield from (_judge_jar_set(folder, jars) for folder, jars in _needed_jar_sets(machine.settings).items())


def _needed_jar_sets(settings: Settings) -> dict[Path, JarSet]:
    return {settings.jars: DELTA_JARS} | ({settings.jars / S3A_FOLDER: S3A_JARS} if settings.uses_s3 else {})


def _judge_jar_set(folder: Path, jar_set: JarSet) -> CheckResult:
    if missing_files := missing_jars(folder, jar_set):
        size = format_size(sum(jar.size for jar in missing_files))
        return warning_result(f"{jar_set.title} are not all in {folder}", f"the next run fetches them: {size}")
    if damaged_files := damaged_jars(folder, jar_set):
        names = ", ".join(str(folder / jar.name) for jar in damaged_files)
        return failed_result(f"the content is not the pinned one: {names}", "delete it; the next run fetches it again")
    return ok_result(f"{jar_set.title}: {len(jar_set.jars)} files, {format_size(jar_set.size)}, in {folder}")


def check_spark(machine: CheckContext) -> Iterator[CheckResult]:
    """Start Spark with the project's settings, and yield a result that says how long that took."""
    if machine.settings is None:
        return
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ondatra-doctor-") as folder:
        try:
            description = _try_spark(_trial_settings(machine, machine.settings, Path(folder)), Path(folder))
        except WarehouseError as error:
            yield failed_result(str(error))
        else:
            yield ok_result(f"{description}, in {format_elapsed(time.monotonic() - started_at)}")


def _trial_settings(machine: CheckContext, settings: Settings, folder: Path) -> Settings:
    """Return the settings for a trial of Spark. Outside of a project, the state folder is a temporary folder."""
    return settings if machine.is_project else dataclasses.replace(settings, state=folder / "state")


def _try_spark(settings: Settings, folder: Path) -> str:
    """Start Spark and run something on it. Return a sentence about what worked. Raises WarehouseError."""
    # imported only here, because pyspark or Java may be missing
    from ondatra_dagster.warehouse.spark.error_messages import explain_spark_errors
    from ondatra_dagster.warehouse.spark.session import Warehouse

    with (
        Warehouse(settings) as warehouse,
        explain_spark_errors("Spark started, and a first query failed", raises=SparkSetupError),
    ):
        session = warehouse.session
        session.range(1).collect()
        if settings.spark.remote or not settings.spark.master.startswith("local"):
            # on a cluster, the disks are those of another machine
            return f"Spark {session.version} started and ran a query"
        table = str(folder / "trial")
        session.range(1).write.format("delta").save(table)
        session.read.format("delta").load(table).collect()
        return f"Spark {session.version} started, and wrote and read a Delta table"
