"""The versions of files on S3: they work as on a disk, and the files aren't read for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.apis.minimal_s3_server import MinimalS3Server

from ondatra_dagster.planning.input_versions import (
    INPUT_NOT_FOUND,
    UNVERSIONED,
    compute_files_version,
    read_input_versions,
)
from ondatra_dagster.project.model import FileInput
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
from ondatra_dagster.storage.s3_filesystem_and_listing import list_objects


@pytest.fixture
def store() -> Iterator[MinimalS3Server]:
    names = ("in/a.csv", "in/b c.csv", "in/_SUCCESS", "in/day=1/x.csv", "in/.tmp/y.csv", "out/a.csv")
    with MinimalS3Server({f"lake/{name}": b"1" for name in names}) as store:
        yield store


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("s3a://lake/in/a.csv", ["in/a.csv"]),
        ("s3://lake/in/*.csv", ["in/a.csv", "in/b c.csv"]),
        ("s3a://lake/{in,out}/a.csv", ["in/a.csv", "out/a.csv"]),
        ("s3a://lake/in/", ["in/a.csv", "in/b c.csv", "in/day=1/x.csv"]),
        ("s3a://lake/*/day=*", ["in/day=1/x.csv"]),
        ("s3a://lake/none", []),
    ],
)
def test_an_s3_address_matches_the_same_objects_as_in_spark(
    store: MinimalS3Server, address: str, expected: list[str]
) -> None:
    paths = [file.path.removeprefix("lake/") for file in list_objects(address, store.access)]
    assert expected == paths


def test_an_object_that_was_replaced_has_another_version(store: MinimalS3Server, tmp_path: Path) -> None:
    """Its size and its second may be the same, but its ETag differs."""
    settings = read_settings(tmp_path, store.variables)
    before = compute_files_version(settings, "s3a://lake/in/*.csv")
    assert before == compute_files_version(settings, "s3a://lake/in/*.csv")
    store.objects["lake/in/a.csv"] = b"2"
    assert before != compute_files_version(settings, "s3a://lake/in/*.csv")


def test_a_store_that_refuses_access_is_reported_by_the_run_of_the_model(
    store: MinimalS3Server, tmp_path: Path
) -> None:
    """Other models can still run."""
    settings = read_settings(tmp_path, store.variables)
    read = FileInput(format="csv", path="s3a://lake/none.csv")
    assert INPUT_NOT_FOUND == read_input_versions((read,), settings, lambda _: None)[read.name]
    store.denies_access = True
    assert UNVERSIONED == read_input_versions((read,), settings, lambda _: None)[read.name]
