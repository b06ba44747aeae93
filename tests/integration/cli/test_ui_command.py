"""The command `ondatra ui` as the user sees it: an address to open, and Ctrl-C."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject

PATIENCE_SECONDS = 60  # a busy machine
Served = tuple[subprocess.Popen[str], str]


@pytest.fixture
def ui_process(shop: ShopProject) -> Iterator[Served]:
    """Yield the process of the command and the address that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ondatra_dagster.cli.main", "ui", "--port", "0"],
        cwd=shop.root,
        stderr=subprocess.PIPE,
        text=True,
        # a background shell ignores Ctrl-C, and the process would inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr
    with process, process.stderr:
        yield process, process.stderr.readline()
        process.kill()


def get(address: str) -> tuple[int, str]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_SECONDS)
    connection.request("GET", f"{parts.path}?{parts.query}")
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_printed_address_opens_the_page(ui_process: Served, shop: ShopProject) -> None:
    """An address with another token is refused. The token stays in a file that belongs to the user."""
    process, line = ui_process
    match = re.fullmatch(r"the records page is (http://127\.0\.0\.1:\d+/\?token=(\S+)) ; Ctrl-C ends it\n", line)
    assert match, line
    assert 303 == get(match[1])[0]
    assert 403 == get(match[1].replace(match[2], "x"))[0]
    assert match[2] == (shop.root / ".ondatra" / "ui-token").read_text()
    assert process.poll() is None


def test_ctrl_c_ends_the_command_without_an_error(ui_process: Served) -> None:
    process, _ = ui_process
    process.send_signal(signal.SIGINT)
    assert 0 == process.wait(PATIENCE_SECONDS)
    assert process.stderr
    assert "" == process.stderr.read()


@pytest.mark.usefixtures("shop")
def test_a_port_in_use_is_an_error_message(ondatra: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server_socket:
        port = server_socket.getsockname()[1]
        result = ondatra("ui", "--port", str(port))
    assert (1, "") == (result.exit_code, result.stdout)
    assert f"port {port} is in use, perhaps by another `ondatra ui`; choose another" in result.stderr


def test_outside_a_project_the_command_prints_an_error(ondatra: CommandLine, tmp_path, monkeypatch) -> None:
    (tmp_path / "nothing").mkdir()
    monkeypatch.chdir(tmp_path / "nothing")
    result = ondatra("ui")
    assert (1, "") == (result.exit_code, result.stdout)
    assert "is not in an ondatra project" in result.stderr
