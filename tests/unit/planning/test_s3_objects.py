"""Files on S3 have versions as those on a disk do, and nobody has to read them for that."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.s3_store import S3Store

from ondatra_dagster.planning.file_versions import files_version
from ondatra_dagster.planning.s3_objects import objects_at
from ondatra_dagster.planning.versions import NOT_THERE, UNVERSIONED, input_versions
from ondatra_dagster.project.model import FileInput
from ondatra_dagster.project.settings.settings import read_settings


@pytest.fixture
def store() -> Iterator[S3Store]:
    names = ("in/a.csv", "in/b c.csv", "in/_SUCCESS", "in/day=1/x.csv", "in/.tmp/y.csv", "out/a.csv")
    with S3Store({f"lake/{name}": b"1" for name in names}) as store:
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
def test_an_address_means_what_it_means_to_spark(store: S3Store, address: str, expected: list[str]) -> None:
    found = [each.path.removeprefix("lake/") for each in objects_at(address, store.access)]
    assert expected == found


def test_an_object_that_was_replaced_has_another_version(store: S3Store, tmp_path: Path) -> None:
    """Of the same size, within the same second: its ETag is another."""
    settings = read_settings(tmp_path, store.variables)
    before = files_version(settings, "s3a://lake/in/*.csv")
    assert before == files_version(settings, "s3a://lake/in/*.csv")
    store.objects["lake/in/a.csv"] = b"2"
    assert before != files_version(settings, "s3a://lake/in/*.csv")


def test_a_store_that_does_not_answer_is_for_the_models_own_run_to_tell(
    store: S3Store, tmp_path: Path
) -> None:
    """Other models can go on."""
    settings = read_settings(tmp_path, store.variables)
    read = FileInput(format="csv", path="s3a://lake/none.csv")
    assert NOT_THERE == input_versions((read,), settings, lambda _: None)[read.name]
    store.refuses = True
    assert UNVERSIONED == input_versions((read,), settings, lambda _: None)[read.name]
