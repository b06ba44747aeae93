"""An archive of the JVM's classes: with it Spark is up in half the time.

Java makes one when a process ends that was asked to. It fits that Java and those jars only, so both are in
its name. Without one everything works, only later.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ondatra_dagster.warehouse.jars import fingerprint
from ondatra_dagster.warehouse.java import Java
from ondatra_dagster.warehouse.spark_jvm import pyspark_jars


def archive_path(java: Java, jars: Sequence[Path]) -> Path:
    """Where the archive for this Java and these jars is, or would be."""
    made_of = f"{java.executable} {java.release} {fingerprint([*pyspark_jars(), *jars])}"
    return jars[0].parent / f"classes-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jsa"
