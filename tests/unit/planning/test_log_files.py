"""A log is read where it is, whoever holds the files."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.planning.delta_log import read_table_state, table_path
from ondatra_dagster.planning.log_files import LocalLog, open_log
from ondatra_dagster.project.addresses import Address
from ondatra_dagster.project.s3_access import S3Access
from ondatra_dagster.project.settings import read_settings

NAME = f"{0:020}.json"
COMMIT = b'{"commitInfo":{}}\n{"metaData":{"id":"t","schemaString":"{\\"fields\\":[]}","configuration":{}}}\n'
LISTING = f"""<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<Name>lake</Name><IsTruncated>false</IsTruncated><KeyCount>1</KeyCount>
<Contents><Key>house/raw/x/_delta_log/{NAME}</Key><Size>{len(COMMIT)}</Size>
<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>""".encode()


class Store(http.server.BaseHTTPRequestHandler):
    """As much of S3 as the reading of a log asks for."""

    def do_GET(self) -> None:
        if self.server.is_closed:  # type: ignore[attr-defined]
            self._answer(403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
        elif "list-type=2" in self.path:
            self._answer(200, LISTING)
        elif self.path.startswith(f"/lake/house/raw/x/_delta_log/{NAME}"):
            self._answer(200, COMMIT)
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def do_HEAD(self) -> None:
        self._answer(200 if self.path.endswith(NAME) else 404, COMMIT)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quietly."""


@pytest.fixture
def store() -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    server.is_closed = False  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_log_on_s3_is_read_without_spark(tmp_path: Path, store: http.server.ThreadingHTTPServer) -> None:
    """Whether a run has anything to do is asked of the logs, wherever they are."""
    variables = {
        "ONDATRA_WAREHOUSE": "s3a://lake/house",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.server_port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    table = table_path(read_settings(tmp_path, variables), "raw.x")
    assert "s3a://lake/house/raw/x" == table
    assert [NAME] == open_log(table).names()
    state = read_table_state(table)
    assert state is not None
    assert ("t", 0) == (state.table_id, state.version)
    with pytest.raises(FileNotFoundError):
        open_log(table).read(f"{9:020}.json")


def test_a_store_that_refuses_is_a_sentence(store: http.server.ThreadingHTTPServer) -> None:
    """No table is one thing, no answer another: the model would be made anew."""
    store.is_closed = True  # type: ignore[attr-defined]
    access = S3Access(endpoint=f"http://127.0.0.1:{store.server_port}", key="k", secret="hush")
    with pytest.raises(WarehouseError, match=r"s3a://lake/x/_delta_log can't be read: .*; look at") as error:
        read_table_state(Address("s3a://lake/x", access))
    assert "hush" not in str(error.value)


def test_no_log_has_no_names(tmp_path: Path) -> None:
    assert [] == LocalLog(tmp_path / "_delta_log").names()
