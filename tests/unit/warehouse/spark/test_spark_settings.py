"""What Spark is started with follows from the settings alone."""

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


def test_keys_stand_on_no_command_line(tmp_path: Path) -> None:
    """Every user of the machine can read it."""
    given = settings(tmp_path, **S3)
    conf = _driver_conf(given, [])
    assert "true" == conf["spark.sql.x"]
    assert "hush" not in str(conf)
    assert {
        "spark.hadoop.fs.s3a.secret.key": "hush-hush",
        "spark.hadoop.fs.s3a.session.token": "hush-too",
    } == _secret_conf(given)


def test_keys_of_other_work_are_not_handed_on(tmp_path: Path) -> None:
    assert {} == _secret_conf(settings(tmp_path, AWS_SECRET_ACCESS_KEY="hush"))


def test_a_clusters_machines_are_told_what_they_need(tmp_path: Path) -> None:
    """Delta's jars, and the time zone that results depend on."""
    conf = {"spark.executor.extraJavaOptions": "-Dmine=1"}
    given = settings(tmp_path, ONDATRA_SPARK_MASTER="spark://host:7077", ONDATRA_SPARK_CONF=str(conf).replace("'", '"'))
    told = _driver_conf(given, [Path("/jars/delta.jar"), Path("/jars/other.jar")])
    assert "/jars/delta.jar,/jars/other.jar" == told["spark.jars"]
    assert "-Duser.timezone=UTC -Dmine=1" == told["spark.executor.extraJavaOptions"]
    assert "spark.driver.bindAddress" not in told


def test_results_are_in_utc_whatever_else_is_set(tmp_path: Path) -> None:
    """The same rows on each machine, and times that an API is told with a Z."""
    for conf in ("{}", '{"spark.sql.session.timeZone": "Asia/Tokyo"}'):
        told = _driver_conf(settings(tmp_path, ONDATRA_SPARK_CONF=conf), [])
        assert "UTC" == told["spark.sql.session.timeZone"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"ONDATRA_WAREHOUSE": "s3a://lake"}, True),
        ({"ONDATRA_SOURCES": '{"crm": "s3a://lake/crm"}'}, True),
        ({"ONDATRA_SOURCES": '{"crm": "main.crm"}'}, False),
    ],
)
def test_s3_is_used_where_tables_are_there(tmp_path: Path, variables: dict[str, str], expected: bool) -> None:
    """Its jars are fetched for those only."""
    assert expected is settings(tmp_path, **variables).uses_s3
