"""The address of a table: it remains one text when a path is appended to it."""

from pathlib import Path

import pytest

from ondatra_dagster.project.settings.storage_access import (
    S3Access,
    StorageAddress,
    local_path,
    read_s3_access,
    s3_access_of,
    scheme_of,
)

ACCESS = S3Access(endpoint="http://127.0.0.1:9000", region="eu", key="k", secret="s", token="t")


def test_an_address_below_another_keeps_its_access():
    """The table of invalid rows is next to the model's own table."""
    below = StorageAddress("s3a://lake/house/", ACCESS).join_names("raw", "x") + "__invalid"
    assert "s3a://lake/house/raw/x__invalid" == below
    assert ACCESS is s3_access_of(below)
    assert S3Access() == s3_access_of("s3a://lake/house")


@pytest.mark.parametrize(
    ("address", "expected"), [("/a b/c", Path("/a b/c")), ("file:///a%20b/c", Path("/a b/c")), ("s3a://b/c", None)]
)
def test_an_address_on_this_machine_is_a_path(address, expected):
    assert expected == local_path(address)


def test_a_scheme_may_be_written_in_any_case():
    assert ("s3a", None) == (scheme_of("S3A://b/c"), scheme_of(Path("/a:b")))


def test_the_access_is_translated_to_spark_settings():
    """Spark and the planner have to read the same store."""
    conf = ACCESS.spark_conf()
    assert "true" == conf["spark.hadoop.fs.s3a.path.style.access"]
    assert ACCESS == read_s3_access({"AWS_ACCESS_KEY_ID": "other"}, conf)
    assert {} == S3Access().spark_conf()


def test_secrets_of_an_access_are_not_shown():
    assert "S3Access(endpoint='http://127.0.0.1:9000', region='eu')" == repr(ACCESS)


@pytest.mark.parametrize(
    ("conf", "expected"),
    [({}, "https://minio:9000"), ({"spark.hadoop.fs.s3a.connection.ssl.enabled": "false"}, "http://minio:9000")],
)
def test_an_endpoint_may_be_a_host_without_a_scheme(conf, expected):
    """Hadoop's own settings allow it."""
    conf = {"spark.hadoop.fs.s3a.endpoint": "minio:9000", **conf}
    assert expected == read_s3_access({}, conf).endpoint


def test_the_newer_variable_for_an_endpoint_wins():
    variables = {"AWS_ENDPOINT_URL": "http://all", "AWS_ENDPOINT_URL_S3": "http://s3", "AWS_REGION": ""}
    assert S3Access(endpoint="http://s3") == read_s3_access(variables, {})
