"""The configuration with which Spark starts. It depends on the settings alone."""

from pathlib import Path

import pytest

from ondatra_dagster.project.settings.read_settings_and_defaults import Settings, read_settings
from ondatra_dagster.warehouse.spark.session import _driver_conf, _secret_conf

S3 = {
    "ONDATRA_WAREHOUSE": "s3a://lake/house",
    "AWS_SECRET_ACCESS_KEY": "hush-hush",
    "ONDATRA_SPARK_CONF": '{"spark.hadoop.fs.s3a.session.token": "hush-too", "spark.sql.x": "true"}',
}


def settings(tmp_path: Path, **variables: str) -> Settings:
    return read_settings(tmp_path, variables)


def test_keys_are_never_on_the_command_line(tmp_path: Path) -> None:
    """Every user of the machine can read the command line."""
    project_settings = settings(tmp_path, **S3)
    conf = _driver_conf(project_settings, [])
    assert "true" == conf["spark.sql.x"]
    assert "hush" not in str(conf)
    assert {
        "spark.hadoop.fs.s3a.secret.key": "hush-hush",
        "spark.hadoop.fs.s3a.session.token": "hush-too",
    } == _secret_conf(project_settings)


def test_s3_keys_are_not_passed_to_spark_without_s3_tables(tmp_path: Path) -> None:
    assert {} == _secret_conf(settings(tmp_path, AWS_SECRET_ACCESS_KEY="hush"))


def test_the_machines_of_a_cluster_get_their_settings(tmp_path: Path) -> None:
    """They need Delta's jars, and the time zone on which results depend."""
    conf = {"spark.executor.extraJavaOptions": "-Dmine=1"}
    project_settings = settings(
        tmp_path, ONDATRA_SPARK_MASTER="spark://host:7077", ONDATRA_SPARK_CONF=str(conf).replace("'", '"')
    )
    driver_conf = _driver_conf(project_settings, [Path("/jars/delta.jar"), Path("/jars/other.jar")])
    assert "/jars/delta.jar,/jars/other.jar" == driver_conf["spark.jars"]
    assert "-Duser.timezone=UTC -Dmine=1" == driver_conf["spark.executor.extraJavaOptions"]
    assert "spark.driver.bindAddress" not in driver_conf


def test_results_are_in_utc_in_spite_of_other_settings(tmp_path: Path) -> None:
    """Each machine computes the same rows, and the times in an API's rows end in Z."""
    for conf in ("{}", '{"spark.sql.session.timeZone": "Asia/Tokyo"}'):
        driver_conf = _driver_conf(settings(tmp_path, ONDATRA_SPARK_CONF=conf), [])
        assert "UTC" == driver_conf["spark.sql.session.timeZone"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"ONDATRA_WAREHOUSE": "s3a://lake"}, True),
        ({"ONDATRA_SOURCES": '{"crm": "s3a://lake/crm"}'}, True),
        ({"ONDATRA_SOURCES": '{"crm": "main.crm"}'}, False),
    ],
)
def test_s3_is_used_only_for_tables_on_s3(tmp_path: Path, variables: dict[str, str], expected: bool) -> None:
    """Its jars are fetched only for them."""
    assert expected is settings(tmp_path, **variables).uses_s3
