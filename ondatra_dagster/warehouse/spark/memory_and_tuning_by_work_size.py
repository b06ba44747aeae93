"""The tuning of Spark: the memory of its JVM, and options by the size of the work.

Options that make large work fast make small work slow. Compiling a query and running more tasks are only worth it if
more than a megabyte or two is read.
"""

import os

from pyspark.sql import SparkSession

from ondatra_dagster.deltalog.log_reader import read_table_size
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.planning.input_versions import local_files_size
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings

DEFAULT_MEMORY = "2g"  # the JVM's heap, unless spark.driver.memory is set
LOCAL_JVM_OPTIONS = (  # for a JVM that lives for seconds: garbage collections are rare
    *("-Xss4m", "-Xmn400m", "-XX:+UseSerialGC"),
    *("-XX:MetaspaceSize=256m", "-XX:ReservedCodeCacheSize=240m"),
)
SMALL_BYTES = 2_000_000  # bytes of files: a hundred thousand rows or so
LARGE_BYTES = 20_000_000  # bytes of files: a million rows or more
# the JVM compiles quickly, and doesn't optimize frequently used code later
QUICK_COMPILER_OPTION = "-XX:TieredStopAtLevel=1"
SMALL_WORK_CONF = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
LARGE_WORK_CONF = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}


def estimate_model_bytes(settings: Settings, model: Model) -> float:
    """Return the maximum number of bytes that a run of the model reads; infinity if the size of an input is unknown."""
    table_size = read_table_size(table_path(settings, model.id)) or 0
    return table_size + sum(_input_bytes(settings, source) for source in model.inputs)


def compiler_options(size: float) -> tuple[str, ...]:
    """Return the compiler options for a JVM that will read `size` bytes.

    The JVM only optimizes code for large work, because that takes seconds.
    """
    return (QUICK_COMPILER_OPTION,) if size <= LARGE_BYTES else ()


def tune_for_size(session: SparkSession, settings: Settings, size: float) -> None:
    """Set Spark's options for work of this size. Keep the options that the user set, and set nothing on a cluster."""
    if settings.spark.remote or not settings.spark.master.startswith("local"):
        return
    for name, value in (SMALL_WORK_CONF if size <= SMALL_BYTES else LARGE_WORK_CONF).items():
        if name not in settings.spark.conf:
            session.conf.set(name, value)


def _input_bytes(settings: Settings, source: Input) -> float:
    if isinstance(source, ModelInput):
        return read_table_size(table_path(settings, source.model)) or 0
    size = local_files_size(settings, source.path) if isinstance(source, FileInput) else None
    return float("inf") if size is None else size
