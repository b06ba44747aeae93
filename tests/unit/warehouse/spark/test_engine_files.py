"""The fingerprint of an engine: it differs for everything that makes an engine unusable for a run."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ondatra_dagster.warehouse.spark import engine_files
from ondatra_dagster.warehouse.spark.engine_files import EngineLaunch
from ondatra_dagster.warehouse.spark.java_finder import Java
from ondatra_dagster.warehouse.spark.jvm_process import JvmLaunch

JVM = JvmLaunch(
    java=Java(executable=Path("/java"), release="17.0.1"),
    conf={"spark.master": "local[2]"},
    log=Path("/state/logs/spark.log"),
    jars=[Path("/jars/delta.jar")],
    options=["-Xmx2g"],
)
LAUNCH = EngineLaunch(state=Path("/state"), jvm=JVM, secret_conf={"key": "a"}, idle_seconds=60)


@pytest.mark.parametrize(
    "changes",
    [
        {"java": Java(executable=Path("/java"), release="21.0.1")},
        {"conf": {"spark.master": "local[4]"}},
        {"jars": [Path("/jars/other.jar")]},
        {"options": ["-Xmx4g"]},
    ],
    ids=lambda changes: str(*changes),
)
def test_another_jvm_is_another_engine(changes: Mapping[str, Any]) -> None:
    other = dataclasses.replace(LAUNCH, jvm=dataclasses.replace(JVM, **changes))
    assert LAUNCH.fingerprint != other.fingerprint


def test_other_keys_are_another_engine() -> None:
    """Hadoop keeps a connection to S3 with the keys of its start."""
    assert LAUNCH.fingerprint != dataclasses.replace(LAUNCH, secret_conf={"key": "b"}).fingerprint


def test_another_ondatra_is_another_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprint = LAUNCH.fingerprint
    monkeypatch.setattr(engine_files, "ondatra_version", lambda: "9.9")
    assert LAUNCH.fingerprint != fingerprint


def test_the_time_until_an_idle_engine_ends_is_not_part_of_its_fingerprint() -> None:
    assert LAUNCH.fingerprint == dataclasses.replace(LAUNCH, idle_seconds=5).fingerprint


def test_a_launch_survives_the_way_to_the_engine() -> None:
    assert LAUNCH.fingerprint == EngineLaunch.load(LAUNCH.dump()).fingerprint
