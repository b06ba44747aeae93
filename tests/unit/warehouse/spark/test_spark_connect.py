"""An unusable Spark Connect server: a sentence in seconds. The client would wait for minutes, or end the process."""

import socket

import pytest

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.warehouse.spark import spark_connect
from ondatra_dagster.warehouse.spark.spark_connect import connect_to_server


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))
        return int(bound_socket.getsockname()[1])


def test_a_server_that_is_down_is_reported(closed_port: int) -> None:
    pattern = rf"no Spark Connect server answers at 127\.0\.0\.1:{closed_port} .*: start it, or correct spark"
    with pytest.raises(WarehouseError, match=pattern) as error:
        connect_to_server(f"sc://127.0.0.1:{closed_port}/;token=hush-hush", {})
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("remote", ["127.0.0.1:15002", "spark://127.0.0.1:7077", "sc://"])
def test_an_invalid_address_is_reported(remote: str) -> None:
    with pytest.raises(WarehouseError, match=r"isn't an address of Spark Connect; write sc://host:port"):
        connect_to_server(remote, {})


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pandas the client ends the process with exit code 0."""
    monkeypatch.setattr(spark_connect, "REQUIRED_PACKAGES", ("pyspark", "nothing_like_it", "nothing.like.it"))
    with pytest.raises(WarehouseError, match=r"needs nothing_like_it, nothing\.like\.it: .*ondatra\[connect\]"):
        connect_to_server("sc://127.0.0.1", {})
