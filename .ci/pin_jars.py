"""Write warehouse/spark/pinned_jars.txt for the releases that the settings name. Run it when one of them changes.

Spark's own resolver finds what they need. What pyspark brings is left out, in whichever version.
"""

import hashlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.project.settings.read_settings_and_defaults import AWS_VERSION, DELTA_VERSION, HADOOP_VERSION
from ondatra_dagster.warehouse.spark.jar_download import PINS_FILE
from ondatra_dagster.warehouse.spark.java_finder import find_java
from ondatra_dagster.warehouse.spark.jvm_process import JvmLaunch, pyspark_jars, start_jvm

WANTED = {
    "delta": [f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}"],
    "s3a": [
        f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
        *(f"software.amazon.awssdk:{name}:{AWS_VERSION}" for name in ("s3", "s3-transfer-manager", "sts")),
    ],
}
EXCLUDED = "software.amazon.awssdk:bundle"  # all of AWS, 686 MB
HEAD = "# The jars that ondatra fetches: set, Maven coordinate, bytes, SHA-256."
# the scala version and Spark's are part of an artifact's name: delta-spark_4.2_2.13-4.4.0
NAME = re.compile(r"(?P<group>[^_]+)_(?P<artifact>.+?)-(?P<version>\d[^_]*)")


def resolve(work: Path, coordinates: list[str]) -> list[Path]:
    conf = {"spark.jars.packages": ",".join(coordinates), "spark.jars.ivy": str(work), "spark.jars.excludes": EXCLUDED}
    start_jvm(JvmLaunch(java=find_java(None), conf=conf, log=work / "resolver.log")).end(wait_seconds=30)
    return sorted((work / "jars").glob("*.jar"))


def pins() -> Iterator[str]:
    known = {re.sub(r"-\d[\w.+-]*$", "", jar.stem) for jar in pyspark_jars()}
    for name, coordinates in WANTED.items():
        with tempfile.TemporaryDirectory() as work:
            for jar in resolve(Path(work), coordinates):
                found = NAME.fullmatch(jar.stem)
                assert found, jar  # noqa: S101 - a maintainer reads it
                if found["artifact"] not in known:
                    known.add(found["artifact"])
                    content = jar.read_bytes()
                    digest = hashlib.sha256(content).hexdigest()
                    yield f"{name} {':'.join(found.groups())} {len(content)} {digest}"


if __name__ == "__main__":
    PINS_FILE.write_text("\n".join([HEAD, *pins()]) + "\n", encoding="utf-8")
