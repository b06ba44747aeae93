"""The payload schema: the JSON type of each Spark type."""

import pytest

from ondatra_dagster.records.metadata_and_heartbeat_format import build_payload_schema
from ondatra_dagster.row_changes import Column


@pytest.mark.parametrize(
    ("spark_type", "json_type"),
    [
        ("string", "string"),
        ("varchar(10)", "string"),
        ("BIGINT", "number"),
        ("int", "number"),
        ("integer", "number"),
        ("long", "number"),
        ("tinyint", "number"),
        ("double", "number"),
        ("boolean", "boolean"),
        ("decimal(10,2)", "string"),
        ("date", "string"),
        ("timestamp", "string"),
        ("timestamp_ntz", "string"),
        ("binary", "string"),
        ("interval day to second", "string"),
        ("array<struct<a:int,b:map<string,int>>>", "array"),
        ("struct<a:array<int>>", "object"),
        ("map<string,int>", "object"),
        ("void", "string"),
    ],
)
def test_a_column_has_the_type_of_its_values_in_a_payload(spark_type: str, json_type: str) -> None:
    """Decimals and dates are strings in a payload, so that no digit is lost."""
    assert {"a b": json_type} == build_payload_schema([Column("a b", spark_type)])
