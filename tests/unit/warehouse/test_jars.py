"""Delta's jars are there whole, or what to run is said."""

import json
import zipfile
from pathlib import Path

import pytest

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.settings.settings import HADOOP_VERSION
from ondatra_dagster.warehouse.jars import DELTA, _check, _keep, delta_jars, fetch_jars, s3a_jars
from ondatra_dagster.warehouse.java import Java
from ondatra_dagster.warehouse.spark_jvm import pyspark_jars


def a_jar(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("A.class", "x" * 100)
    return path


def test_missing_jars_say_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match=r"run `python -m ondatra_dagster\.warehouse\.jars`"):
        delta_jars(tmp_path / "nothing")


def test_a_jar_that_was_cut_short_is_seen(tmp_path: Path) -> None:
    jar = a_jar(tmp_path / "a.jar")
    (tmp_path / "manifest.json").write_text(json.dumps({"sizes": {"a.jar": jar.stat().st_size}}))
    assert (jar,) == delta_jars(tmp_path)
    jar.write_bytes(jar.read_bytes()[:-1])
    with pytest.raises(WarehouseError):
        delta_jars(tmp_path)


def test_what_pyspark_brings_is_not_kept(tmp_path: Path) -> None:
    """Two versions of a class on one path are a riddle for whoever comes after."""
    shipped = pyspark_jars()[0].name
    jars = [
        a_jar(tmp_path / f"org.example_{shipped}"),
        a_jar(tmp_path / "io.delta_delta-spark_4.2_2.13-4.4.0.jar"),
        a_jar(tmp_path / "io.delta_delta-storage-4.4.0.jar"),
    ]
    kept = tmp_path / "kept"
    kept.mkdir()
    assert {jar.name for jar in jars[1:]} == set(_keep(jars, kept, DELTA))
    with pytest.raises(WarehouseError, match="try again"):
        _keep(jars[:1], kept, DELTA)


def test_a_broken_jar_is_not_kept(tmp_path: Path) -> None:
    broken = tmp_path / "x.jar"
    broken.write_bytes(b"no zip")
    with pytest.raises(WarehouseError, match=r"x\.jar arrived broken"):
        _check(broken)


def test_what_the_resolver_says_is_one_sentence(tmp_path: Path) -> None:
    """It prints several hundred lines; and nothing half fetched stays."""
    java = tmp_path / "java"
    java.write_text(
        "#!/bin/sh\necho ':: UNRESOLVED DEPENDENCIES'\necho 'unresolved dependency: io.delta'\nexit 1\n"
    )
    java.chmod(0o755)
    folder = tmp_path / "cache" / "4.4.0"
    with pytest.raises(WarehouseError, match="set maven_mirror") as failure:
        fetch_jars(folder, java=Java(executable=java, release="17"))
    assert "\n" not in str(failure.value)
    assert [] == list(folder.parent.iterdir())


def test_missing_jars_for_s3_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match=r"The jars for S3 are not in .*s3a; run `python -m"):
        s3a_jars(tmp_path)


def test_the_jars_for_s3_are_of_pysparks_hadoop() -> None:
    """Of another release they fail at the first file, in the words of a class loader."""
    assert f"hadoop-client-api-{HADOOP_VERSION}.jar" in {jar.name for jar in pyspark_jars()}
