"""A `dg dev` process for a test's project, started as a user starts it, and queries to its API."""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import orjson

TEMPLATE = Path(__file__).parents[3] / "ondatra_dagster" / "template"
DG = Path(sys.executable).with_name("dg")
PAGE_SECONDS = 120  # long because the machine may be busy; the page is fast
RUN_SECONDS = 240  # starts a JVM


def write_dagster_files(root: Path) -> None:
    """Write the files by which Dagster finds a project, as `ondatra init` does."""
    for name in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(TEMPLATE / name, root)
    shutil.copytree(TEMPLATE / "ondatra_project", root / "ondatra_project")
    settings, for_dagster = (path / "pyproject.toml" for path in (root, TEMPLATE))
    with settings.open("a") as file:
        file.write(for_dagster.read_text().replace("[tool.ondatra]", ""))  # the project already has that table


class DagsterDevServer:
    """A `dg dev` process in its own process group, with its output in a log file."""

    def __init__(self, root: Path, log: Path) -> None:
        self._port = port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        self._is_ready = threading.Event()
        environ = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
        self._process = subprocess.Popen(
            [DG, "dev", "--port", str(port)],
            cwd=root,
            env=environ | {"ONDATRA_SPARK_MASTER": "local[2]"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # where SIGINT is ignored, as in a background shell, Dagster would ignore every signal to end
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self._log_thread = threading.Thread(target=self._read_log, name="dg-dev-log")
        self._log_thread.start()

    def wait_until_ready(self) -> None:
        assert self._is_ready.wait(PAGE_SECONDS), self._log.read_text()
        assert self._process.poll() is None, self._log.read_text()

    def query_graphql(self, query: str) -> Any:
        """Return what its GraphQL API answers to a query, as the page sends it."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PAGE_SECONDS)
        with contextlib.closing(connection):
            body = orjson.dumps({"query": query})
            connection.request("POST", "/graphql", body, {"content-type": "application/json"})
            response = orjson.loads(connection.getresponse().read())
        assert "errors" not in response, response
        return response["data"]

    def stop(self) -> None:
        """Send SIGINT, as Ctrl-C does, then kill the process group."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._log_thread.join()

    def _read_log(self) -> None:
        assert self._process.stdout
        with self._process.stdout, self._log.open("w") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                if f"on {self.url}" in line:
                    self._is_ready.set()
        self._is_ready.set()  # the process has ended: release the waiting thread


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
