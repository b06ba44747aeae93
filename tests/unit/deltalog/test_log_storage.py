"""The reading of a Delta log on a disk and on S3."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.apis.minimal_s3_server import MinimalS3Server

from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.deltalog.log_storage import LocalLogStorage, open_log
from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
from ondatra_dagster.project.settings.storage_access import StorageAddress

NAME = f"{0:020}.json"
COMMIT = b'{"commitInfo":{}}\n{"metaData":{"id":"t","schemaString":"{\\"fields\\":[]}","configuration":{}}}\n'


@pytest.fixture
def store() -> Iterator[MinimalS3Server]:
    with MinimalS3Server({f"lake/house/raw/x/_delta_log/{NAME}": COMMIT}) as store:
        yield store


def test_a_log_on_s3_is_read_without_spark(tmp_path: Path, store: MinimalS3Server) -> None:
    """A run reads the logs to find out whether it has work, wherever they are."""
    settings = read_settings(tmp_path, {"ONDATRA_WAREHOUSE": "s3a://lake/house", **store.variables})
    table = table_path(settings, "raw.x")
    assert "s3a://lake/house/raw/x" == table
    assert [NAME] == open_log(table).list_files()
    state = read_table_state(table)
    assert state is not None
    assert ("t", 0) == (state.table_id, state.version)
    assert read_table_state(table_path(settings, "raw.nothing")) is None
    with pytest.raises(FileNotFoundError):
        open_log(table).read_file(f"{9:020}.json")


def test_a_store_that_refuses_access_raises_a_clear_error(store: MinimalS3Server) -> None:
    """A refusal must not count as a missing table, because the model would be built again."""
    store.denies_access = True
    with pytest.raises(WarehouseError, match=r"s3a://lake/x/_delta_log can't be read: .*; check") as error:
        read_table_state(StorageAddress("s3a://lake/x", store.access))
    assert str(store.access.secret) not in str(error.value)


def test_a_missing_log_has_no_files(tmp_path: Path) -> None:
    assert [] == LocalLogStorage(tmp_path / "_delta_log").list_files()
