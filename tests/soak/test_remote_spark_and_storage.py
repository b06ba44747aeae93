"""The kinds' own tests with Spark or the tables elsewhere: only settings differ, and not a line of code.

Each test runs them in a separate process, with the settings in variables, so two drivers never run at once.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.apis.moto_s3_server import BUCKET, running_moto_s3
from support.spark.spark_servers import SMALL_TABLE_CONF, running_connect_server, running_standalone_cluster

from ondatra_dagster.project.settings.read_settings_and_defaults import Settings, read_settings
from ondatra_dagster.warehouse.spark.jar_download import S3A_FOLDER, S3A_JARS, fetch_jar_set

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[2]
TESTS = (
    "test_kind_changes.py",
    "test_pinned_inputs.py",
    "test_file_inputs.py",
    "test_malformed_rows.py",
    "test_parquet_columns.py",
    "test_invalid_rows.py",
    "test_data_types.py",
    "test_optimize_vacuum_storage.py",
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings(tmp_path)


def run_tests(*names: str, environment: Mapping[str, str] | None = None, **settings: str) -> str:
    """Run these files of tests/spark, and return pytest's output; settings have the names of their variables."""
    variables = {f"ONDATRA_TEST_{name}": value for name, value in settings.items()}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "spark", "-x", "--tb=short"]
        + [str(ROOT / "tests" / "spark" / name) for name in names],
        cwd=ROOT,
        env={**os.environ, **variables, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == ended.returncode, ended.stdout[-6000:] + ended.stderr[-2000:]
    return ended.stdout


def as_setting(conf: dict[str, str]) -> str:
    return "{" + ", ".join(f'"{name}": "{value}"' for name, value in conf.items()) + "}"


def test_the_kinds_work_through_spark_connect(settings: Settings, tmp_path: Path) -> None:
    """A server that is already running saves each run its start."""
    with running_connect_server(settings, tmp_path / "server.log") as address:
        assert "passed" in run_tests(*TESTS, SPARK_REMOTE=address)


def test_the_kinds_work_on_a_standalone_cluster(settings: Settings, tmp_path: Path) -> None:
    """The workers must get the settings that the driver has."""
    conf = {**SMALL_TABLE_CONF, "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    with running_standalone_cluster(settings, tmp_path / "cluster.log") as master:
        assert "passed" in run_tests(*TESTS, SPARK_MASTER=master, SPARK_CONF=as_setting(conf))


def test_the_kinds_work_with_tables_on_s3(settings: Settings) -> None:
    """The tables' logs and files are read there without Spark, too."""
    fetch_jar_set(settings.jars / S3A_FOLDER, S3A_JARS, settings.maven_mirror)
    with running_moto_s3() as access:
        output = run_tests(
            *TESTS, "test_table_reader_matches_spark.py", environment=access, WAREHOUSE=f"s3a://{BUCKET}"
        )
    assert "passed" in output
