"""The tuning of Spark: the memory of its JVM, and options by the size of the work.

Options that make large work fast make small work slow: compiling a query, or running more tasks, pays only
when more than a megabyte or two is read.
"""

import os

from pyspark.sql import SparkSession

from ondatra_dagster.deltalog.log_reader import read_table_size
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.planning.input_versions import local_files_size
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings

DEFAULT_MEMORY = "2g"  # the JVM's heap, unless spark.driver.memory is set
LOCAL_JVM_OPTIONS = (  # a JVM that lives for seconds: collect seldom
    *("-Xss4m", "-Xmn400m", "-XX:+UseSerialGC"),
    *("-XX:MetaspaceSize=256m", "-XX:ReservedCodeCacheSize=240m"),
)
SMALL_BYTES = 2_000_000  # of files: a hundred thousand rows or so
LARGE_BYTES = 20_000_000  # of files: a million rows or more
QUICK_COMPILER_OPTION = "-XX:TieredStopAtLevel=1"  # quickly, and never again for what turns out to be used much
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
    """How much a run of the model reads at most, as far as its inputs tell; infinite when one doesn't."""
    own = read_table_size(table_path(settings, model.id)) or 0
    return own + sum(_input_bytes(settings, source) for source in model.inputs)


def compiler_options(size: float) -> tuple[str, ...]:
    """How a JVM that is going to read so much is to compile: good code takes seconds to make."""
    return (QUICK_COMPILER_OPTION,) if size <= LARGE_BYTES else ()


def tune_for_size(session: SparkSession, settings: Settings, size: float) -> None:
    """Have what comes next run as befits its size; on a cluster nothing is touched, nor what the user set."""
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
