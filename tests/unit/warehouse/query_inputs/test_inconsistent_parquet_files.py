"""The comparison of the columns of Parquet files. It reads only the files' own schemas, without Spark."""

import dataclasses
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.apis.minimal_s3_server import MinimalS3Server

from ondatra_dagster.project.model import FileInput, Input, SourceInput
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings, read_settings
from ondatra_dagster.warehouse.query_inputs.inconsistent_files import differing_columns_problem


def a_parquet(**columns: list[object]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return a project with three Parquet files, one of which lacks a column."""
    for name, columns in {"a": {"id": [1], "x": [1]}, "b": {"id": [2]}, "c": {"id": [3], "x": [3]}}.items():
        file = tmp_path / "lake" / "in" / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(a_parquet(**columns))
    return read_settings(tmp_path, {})


def files(path: str, **options: str) -> FileInput:
    return FileInput(format="parquet", path=path, options=tuple(options.items()))


@pytest.mark.parametrize(
    "source",
    [files("lake/in"), files("lake/*/[ab]*"), SourceInput(source="s", table="in", location="lake")],
    ids=["folder", "pattern", "source"],
)
def test_a_missing_column_is_reported_with_both_files(settings: Settings, source: Input) -> None:
    assert str(differing_columns_problem(settings, source)).startswith(
        "lake/in/b.parquet has no column 'x', which lake/in/a.parquet has; "
    )


@pytest.mark.parametrize(
    "source",
    [
        files("lake/in/[ac]*"),
        files("lake/in", pathGlobFilter="[ac]*"),
        files("lake/in", mergeschema="TRUE"),
        files("lake/in/b.parquet"),
        files("lake"),  # Spark reads no subfolders, except partitions
        files("hdfs://host/in"),
        FileInput(format="csv", path="lake/in"),
    ],
    ids=repr,
)
def test_equal_files_and_files_that_are_not_compared_are_no_problem(settings: Settings, source: Input) -> None:
    assert differing_columns_problem(settings, source) is None


def test_subfolders_are_compared_if_spark_reads_them(settings: Settings) -> None:
    assert differing_columns_problem(settings, files("lake", recursiveFileLookup="true"))
    (settings.root / "lake" / "in").rename(settings.root / "lake" / "day=1")
    assert differing_columns_problem(settings, files("lake"))


def test_sparks_merge_schema_setting_is_respected_too(settings: Settings) -> None:
    spark = dataclasses.replace(settings.spark, conf={"spark.sql.parquet.mergeSchema": "true"})
    merging = dataclasses.replace(settings, spark=spark)
    assert differing_columns_problem(merging, files("lake/in")) is None
    assert differing_columns_problem(merging, files("lake/in", mergeSchema="false"))


def test_a_file_that_is_not_parquet_is_left_to_spark(settings: Settings) -> None:
    """Spark reports it."""
    (settings.root / "lake" / "in" / "b.parquet").write_text("id\n")
    assert differing_columns_problem(settings, files("lake/in")) is None


def test_files_on_s3_are_compared_too(tmp_path: Path) -> None:
    with MinimalS3Server({"lake/in/a.parquet": a_parquet(id=[1]), "lake/in/b.parquet": a_parquet(id=["1"])}) as store:
        settings = dataclasses.replace(read_settings(tmp_path, {}), s3=store.access)
        assert str(differing_columns_problem(settings, files("s3a://lake/in/*.parquet"))).startswith(
            "column 'id' is bigint in lake/in/a.parquet and string in lake/in/b.parquet; "
        )


def test_files_on_s3_that_only_spark_can_read_are_left_to_spark(tmp_path: Path) -> None:
    """Spark may have other keys."""
    with MinimalS3Server({"lake/in/a.parquet": a_parquet(id=[1])}) as store:
        store.denies_access = True
        settings = dataclasses.replace(read_settings(tmp_path, {}), s3=store.access)
        assert differing_columns_problem(settings, files("s3a://lake/in")) is None
