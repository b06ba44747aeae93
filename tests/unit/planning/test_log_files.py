"""A log is read where it is, whoever holds the files."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.s3_store import S3Store

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.delta_log import read_table_state, table_path
from ondatra_dagster.planning.log_files import LocalLog, open_log
from ondatra_dagster.project.settings.addresses import Address
from ondatra_dagster.project.settings.settings import read_settings

NAME = f"{0:020}.json"
COMMIT = b'{"commitInfo":{}}\n{"metaData":{"id":"t","schemaString":"{\\"fields\\":[]}","configuration":{}}}\n'


@pytest.fixture
def store() -> Iterator[S3Store]:
    with S3Store({f"lake/house/raw/x/_delta_log/{NAME}": COMMIT}) as store:
        yield store


def test_a_log_on_s3_is_read_without_spark(tmp_path: Path, store: S3Store) -> None:
    """Whether a run has anything to do is asked of the logs, wherever they are."""
    settings = read_settings(tmp_path, {"ONDATRA_WAREHOUSE": "s3a://lake/house", **store.variables})
    table = table_path(settings, "raw.x")
    assert "s3a://lake/house/raw/x" == table
    assert [NAME] == open_log(table).names()
    state = read_table_state(table)
    assert state is not None
    assert ("t", 0) == (state.table_id, state.version)
    assert read_table_state(table_path(settings, "raw.nothing")) is None
    with pytest.raises(FileNotFoundError):
        open_log(table).read(f"{9:020}.json")


def test_a_store_that_refuses_is_a_sentence(store: S3Store) -> None:
    """No table is one thing, no answer another: the model would be made anew."""
    store.refuses = True
    with pytest.raises(WarehouseError, match=r"s3a://lake/x/_delta_log can't be read: .*; look at") as error:
        read_table_state(Address("s3a://lake/x", store.access))
    assert str(store.access.secret) not in str(error.value)


def test_no_log_has_no_names(tmp_path: Path) -> None:
    assert [] == LocalLog(tmp_path / "_delta_log").names()
