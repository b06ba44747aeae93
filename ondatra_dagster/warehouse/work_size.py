"""Tune Spark to the size of the work: what makes large work fast makes small work slow.

To compile a query costs more than to interpret it until a megabyte or two is read; so do more tasks.
"""

import os

from pyspark.sql import SparkSession

from ondatra_dagster.planning.delta_log import table_bytes, table_path
from ondatra_dagster.planning.file_versions import bytes_here
from ondatra_dagster.project.model import FileInput, Input, Model, ModelInput
from ondatra_dagster.project.settings.settings import Settings

SMALL_BYTES = 2_000_000  # of files: a hundred thousand rows or so
LARGE_BYTES = 20_000_000  # of files: a million rows or more
COMPILES_ONCE = "-XX:TieredStopAtLevel=1"  # quickly, and never again for what turns out to be used much
FOR_SMALL_WORK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
FOR_LARGE_WORK = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}


def model_bytes(settings: Settings, model: Model) -> float:
    """How much a run of the model reads at most, as far as its inputs tell; infinite when one doesn't."""
    own = table_bytes(table_path(settings, model.id)) or 0
    return own + sum(_input_bytes(settings, source) for source in model.inputs)


def compiler_options(size: float) -> tuple[str, ...]:
    """How a JVM that is going to read so much is to compile: good code takes seconds to make."""
    return (COMPILES_ONCE,) if size <= LARGE_BYTES else ()


def tune(session: SparkSession, settings: Settings, size: float) -> None:
    """Have what comes next run as befits its size; on a cluster nothing is touched, nor what the user set."""
    if settings.spark.remote or not settings.spark.master.startswith("local"):
        return
    for name, value in (FOR_SMALL_WORK if size <= SMALL_BYTES else FOR_LARGE_WORK).items():
        if name not in settings.spark.conf:
            session.conf.set(name, value)


def _input_bytes(settings: Settings, source: Input) -> float:
    if isinstance(source, ModelInput):
        return table_bytes(table_path(settings, source.model)) or 0
    size = bytes_here(settings, source.path) if isinstance(source, FileInput) else None
    return float("inf") if size is None else size
