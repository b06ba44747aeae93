"""The demo API and its rules. It must be right, because the example and many tests rely on it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ondatra_dagster.testing.demo_api import DEMO_KEY, DemoApi, running_demo_api

ADA = {"customer_id": "C-1", "email": "ada@example.com"}
PEN = {"product_id": "P-1", "name": "Pen", "unit_price": "9.90"}
STEP = {"entry_id": "50001 open", "order_id": "50001", "status": "open"}
INVOICE = {"invoice_id": "INV-1", "lines": [{"product": "Ink", "quantity": 2}]}


@pytest.fixture
def client(api: DemoApi) -> Iterator[httpx.Client]:
    with a_client(api) as client:
        yield client


def a_client(api: DemoApi, key: str = DEMO_KEY) -> httpx.Client:
    return httpx.Client(base_url=api.url, headers={"Authorization": f"Bearer {key}"})


def answer_of(response: httpx.Response) -> tuple[int, Any]:
    return response.status_code, response.json() if response.content else None


def test_a_contact_is_created_changed_read_and_deleted(api: DemoApi, client: httpx.Client) -> None:
    """These are the four methods that a merge sync uses."""
    assert (201, ADA) == answer_of(client.post("/crm/contacts", json=ADA))
    assert (200, {**ADA, "name": "Ada"}) == answer_of(client.patch("/crm/contacts/C-1", json={"name": "Ada"}))
    assert {"C-1": {**ADA, "name": "Ada"}} == api.contacts()
    assert (200, [{**ADA, "name": "Ada"}]) == answer_of(client.get("/crm/contacts"))
    assert (204, None) == answer_of(client.delete("/crm/contacts/C-1"))
    assert {} == api.contacts()


def test_an_invoice_is_replaced_completely_and_deleted(api: DemoApi, client: httpx.Client) -> None:
    """These are the two methods that a tracked sync uses. A second PUT replaces the first."""
    shorter = {"invoice_id": "INV-1", "lines": [{"product": "Nib", "quantity": 1}]}
    assert 201 == client.put("/erp/invoices/INV-1", json=INVOICE).status_code
    assert 200 == client.put("/erp/invoices/INV-1", json=shorter).status_code
    assert {"INV-1": shorter} == api.invoices()
    assert 204 == client.delete("/erp/invoices/INV-1").status_code
    assert {} == api.invoices()


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", "/crm/contacts", {"customer_id": "C-2", "email": "ada"}, (422, "email 'ada' isn't an address")),
        ("POST", "/crm/contacts", {"email": "a@b.c"}, (400, "a contact needs its customer_id")),
        ("POST", "/crm/contacts", ["C-2"], (400, "the body isn't a JSON object")),
        ("POST", "/crm/contacts", ADA, (409, "contact C-1 exists already")),
        ("PATCH", "/crm/contacts/C-9", {"name": "Nobody"}, (404, "there is no contact C-9")),
        ("PATCH", "/crm/contacts/C-1", {"customer_id": "C-2"}, (400, "the path says C-1, the body C-2")),
        ("DELETE", "/crm/contacts/C-9", None, (404, "there is no contact C-9")),
        ("PUT", "/erp/invoices/INV-1", {"lines": []}, (422, "an invoice needs at least one line")),
        ("PUT", "/erp/invoices/INV-1", {"lines": [{}]}, (422, "line 1 has no quantity of 1 or more")),
        ("PUT", "/erp/prices", {"prices": ["P-1"]}, (400, "the body needs a list of prices")),
        ("PUT", "/crm/contacts/C-1", ADA, (404, "there is no PUT /crm/contacts/C-1 here")),
    ],
)
def test_a_request_that_breaks_a_rule_is_refused_with_the_reason(
    api: DemoApi, client: httpx.Client, method: str, path: str, body: Any, expected: tuple[int, str]
) -> None:
    """A reject is useful only with its reason. Nothing of a refused request is kept."""
    client.post("/crm/contacts", json=ADA)
    status, reason = expected
    assert (status, {"error": reason}) == answer_of(client.request(method, path, json=body))
    assert ({"C-1": ADA}, {}) == (api.contacts(), api.invoices())


def test_a_price_list_is_accepted_completely_or_not_at_all(api: DemoApi, client: httpx.Client) -> None:
    """Prices that are missing in a new list are deleted. A list with an error changes nothing."""
    client.put("/erp/prices", json={"prices": [PEN, PEN | {"product_id": "P-2"}]})
    client.put("/erp/prices", json={"prices": [PEN]})
    for wrong in ({"product_id": "P-3", "unit_price": "0"}, {"product_id": "P-4"}):
        refused = answer_of(client.put("/erp/prices", json={"prices": [wrong, PEN]}))
        assert (422, {"error": f"{wrong['product_id']} has no price above 0"}) == refused
    refused = answer_of(client.put("/erp/prices", json={"prices": [{"unit_price": "1"}]}))
    assert (422, {"error": "a price needs its product_id"}) == refused
    assert {"P-1": PEN} == api.prices()


def test_an_import_returns_the_result_of_each_entry_at_the_second_poll(api: DemoApi, client: httpx.Client) -> None:
    """At the first poll it is still running."""
    operations = [{"key": "1:insert", "upsert": STEP}, {"key": "2:insert", "upsert": {"status": "open"}}]
    status, job = answer_of(client.post("/crm/imports", json={"operations": operations}))
    assert (202, "running") == (status, job["status"])
    polls = [client.get(f"/crm/imports/{job['id']}").json() for _ in range(2)]
    assert ["running", "complete"] == [poll["status"] for poll in polls]
    nameless = "reject: a timeline entry needs its entry_id"
    assert [["1:insert", "ok"], ["2:insert", nameless]] == polls[1]["results"]
    assert {"50001 open": STEP} == api.timeline()


def test_an_id_may_contain_any_character(api: DemoApi, client: httpx.Client) -> None:
    """A percent-encoded key with a slash is one path segment."""
    client.put("/erp/invoices/2026%2F11%20%C3%A5", json=INVOICE | {"invoice_id": "2026/11 å"})
    assert ["2026/11 å"] == list(api.invoices())


def test_a_wrong_token_is_refused(api: DemoApi) -> None:
    """The user notices a missing key in .env immediately."""
    with a_client(api, key="wrong") as client:
        assert (401, {"error": "the token is missing or wrong"}) == answer_of(client.get("/crm/contacts"))


def test_a_repeated_idempotency_key_gets_the_same_answer_and_no_second_effect(
    api: DemoApi, client: httpx.Client
) -> None:
    """A client can safely repeat a POST whose answer was lost."""
    first, second = (client.post("/crm/contacts", json=ADA, headers={"Idempotency-Key": "k-1"}) for _ in range(2))
    assert (201, 201) == (first.status_code, second.status_code)
    assert [False, True] == [call.is_repeat for call in api.calls]


def test_calls_are_logged_in_their_order(api: DemoApi, client: httpx.Client) -> None:
    """Tests use this log: method, path, body, answer and key of each call."""
    client.post("/crm/contacts", json=ADA, headers={"Idempotency-Key": "k-1"})
    client.delete("/crm/contacts/C-9")
    assert [
        ("POST", "/crm/contacts", ADA, 201, "", "k-1"),
        ("DELETE", "/crm/contacts/C-9", None, 404, "there is no contact C-9", None),
    ] == [(call.method, call.path, call.body, call.status, call.message, call.idempotency_key) for call in api.calls]
    assert ["POST", "DELETE"] == [call["method"] for call in client.get("/calls").json()]


def test_a_fault_applies_only_to_matching_calls_and_a_limited_number(api: DemoApi, client: httpx.Client) -> None:
    """The next two CRM calls fail and the ERP works. After that the CRM works again."""
    api.fail(status=503, times=2, path="/crm/*", headers={"Retry-After": "7"})
    first = client.post("/crm/contacts", json=ADA)
    assert (503, "7") == (first.status_code, first.headers["Retry-After"])
    assert 201 == client.put("/erp/invoices/INV-1", json=INVOICE).status_code
    assert [503, 201] == [client.post("/crm/contacts", json=ADA).status_code for _ in range(2)]


def test_a_page_request_is_not_logged_as_a_call(api: DemoApi, client: httpx.Client) -> None:
    """A browser's request for the icon must not use up a fault that is meant for a sync."""
    api.fail(status=500)
    assert [200, 404] == [client.get(path).status_code for path in ("/", "/favicon.ico")]
    assert 500 == client.get("/crm/contacts").status_code
    assert ["/crm/contacts"] == [call.path for call in api.calls]


def test_faults_can_be_set_over_http(client: httpx.Client) -> None:
    """The tutorial sets them with curl."""
    assert 201 == client.post("/faults", json={"status": 500, "times": None}).status_code
    assert [500, 500] == [client.get("/crm/contacts").status_code for _ in range(2)]
    assert 204 == client.delete("/faults").status_code
    assert 200 == client.get("/crm/contacts").status_code


@pytest.mark.parametrize(
    "asked", [{"stauts": 500}, {"drop": "now"}, {"times": 0}, {"status": "500"}, {"delay_seconds": -1}, [], None]
)
def test_an_invalid_fault_is_refused(client: httpx.Client, asked: Any) -> None:
    """A misspelled fault without effect would make a test pass without a reason."""
    assert 400 == client.post("/faults", content=json.dumps(asked)).status_code


@pytest.mark.parametrize(("drop", "kept"), [("before", {}), ("after", {"C-1": ADA})])
def test_a_dropped_connection_gives_the_caller_no_answer(
    api: DemoApi, client: httpx.Client, drop: str, kept: dict[str, Any]
) -> None:
    """With `before`, nothing was done. With `after`, it was done, and the caller doesn't know."""
    api.fail(drop=drop)
    with pytest.raises(httpx.TransportError):
        client.post("/crm/contacts", json=ADA, headers={"Idempotency-Key": "k-1"})
    assert (kept, [0]) == (api.contacts(), [call.status for call in api.calls])


def test_a_repeat_after_a_lost_answer_gets_that_answer(api: DemoApi, client: httpx.Client) -> None:
    """The key is the same after `drop: after`. The contact is created once, and the caller gets the answer."""
    api.fail(drop="after")
    headers = {"Idempotency-Key": "k-1"}
    with pytest.raises(httpx.TransportError):
        client.post("/crm/contacts", json=ADA, headers=headers)
    assert 201 == client.post("/crm/contacts", json=ADA, headers=headers).status_code


def test_a_repeat_of_a_call_dropped_before_its_effect_is_executed(api: DemoApi, client: httpx.Client) -> None:
    """No answer is stored for a call that had no effect."""
    api.fail(drop="before")
    headers = {"Idempotency-Key": "k-1"}
    with pytest.raises(httpx.TransportError):
        client.post("/crm/contacts", json=ADA, headers=headers)
    client.post("/crm/contacts", json=ADA, headers=headers)
    assert {"C-1": ADA} == api.contacts()


def test_a_delay_makes_the_caller_wait() -> None:
    """It is for tests of deadlines. The server is separate: the late call must not be in the next test's log."""
    with running_demo_api() as api, a_client(api) as client:
        api.fail(delay_seconds=0.3)
        with pytest.raises(httpx.ReadTimeout):
            client.get("/crm/contacts", timeout=0.05)


def test_the_state_file_restores_everything(tmp_path: Path) -> None:
    """Two runs of the example have the same destination, also after a kill between call and answer."""
    file = tmp_path / "kept" / "demo api.json"
    headers = {"Idempotency-Key": "k-1"}
    with running_demo_api(state=file) as api, a_client(api) as client:
        client.post("/crm/contacts", json=ADA, headers=headers)
        client.put("/erp/invoices/INV-1", json=INVOICE)
        client.put("/erp/prices", json={"prices": [PEN]})
        job = client.post("/crm/imports", json={"operations": [{"key": "1:insert", "upsert": STEP}]})
        before = api.calls
    with running_demo_api(state=file) as api, a_client(api) as client:
        assert ({"C-1": ADA}, {"INV-1": INVOICE}, before) == (api.contacts(), api.invoices(), api.calls)
        assert ({"P-1": PEN}, {"50001 open": STEP}) == (api.prices(), api.timeline())
        assert 200 == client.get(f"/crm/imports/{job.json()['id']}").status_code
        assert 201 == client.post("/crm/contacts", json=ADA, headers=headers).status_code


def test_the_page_shows_the_stored_rows_and_escapes_them(api: DemoApi, client: httpx.Client) -> None:
    """Values of rows are always text and never markup: in a cell, a path or a reason."""
    evil = "<script>alert(1)</script>"
    client.post("/crm/contacts", json=ADA | {"name": evil})
    client.put("/erp/invoices/INV-1", json=INVOICE)
    client.post("/crm/contacts", json=ADA | {"customer_id": "C-2", "email": evil})
    client.get(f"/crm/{evil}")
    page = client.get("/")
    assert "text/html; charset=utf-8" == page.headers["content-type"]
    assert "<script" not in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
    assert "<td>2 Ink</td>" in page.text
    assert "4 in all, 2 refused" in page.text


def a_demo(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start `python -m ondatra_dagster.testing.demo_api` with these arguments."""
    command = [sys.executable, "-m", "ondatra_dagster.testing.demo_api", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        command,
        text=True,
        start_new_session=True,
        # if the parent ignores Ctrl-C, as a background shell does, every child would ignore it too
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **pipes,
    )


POST_A_CONTACT = """
import http.client, json, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
headers = {"Authorization": "Bearer " + sys.argv[2]}
connection.request("POST", "/crm/contacts", json.dumps({"customer_id": "C-1", "email": "a@b.c"}), headers)
sys.exit(connection.getresponse().status - 200)
"""

WAIT_FOR_CTRL_C = """
import signal, sys
try:
    print("up", flush=True)
    signal.pause()
except KeyboardInterrupt:
    sys.exit(7)
"""


def test_it_serves_while_a_command_runs_and_reports_the_calls(tmp_path: Path) -> None:
    """`make run` has the exit code of the command, and a report of its calls."""
    port = a_free_port()
    command = [sys.executable, "-c", POST_A_CONTACT, str(port), DEMO_KEY]
    with a_demo("--port", str(port), "--state", tmp_path / "state.json", "--", *command) as demo:
        out, err = demo.communicate(timeout=30)
    assert (1, "") == (demo.returncode, out)  # stdout belongs to the command
    assert "The demo API got 1 call:\n  POST /crm/contacts → 201\n" in err
    assert "The CRM holds 1 contact with 0 timeline entries; the ERP holds 0 invoices and 0 prices." in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command(number: signal.Signals) -> None:
    """Ctrl-C in a terminal reaches both processes, and SIGTERM is forwarded. The exit code is that of the command."""
    with a_demo("--port", "0", "--", sys.executable, "-c", WAIT_FOR_CTRL_C) as demo:
        assert demo.stdout is not None
        assert "up\n" == demo.stdout.readline()
        if number == signal.SIGINT:
            os.killpg(demo.pid, number)  # a terminal does this
        else:
            demo.send_signal(number)
        demo.communicate(timeout=30)
    assert {signal.SIGINT: 7, signal.SIGTERM: 128 + signal.SIGTERM}[number] == demo.returncode


def test_a_port_in_use_is_reported_in_a_sentence() -> None:
    """The command isn't run against another program."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as stranger:
        port = stranger.getsockname()[1]
        with a_demo("--port", str(port), "--", "false") as demo:
            _, err = demo.communicate(timeout=30)
    assert 1 == demo.returncode
    assert f"Error: port {port} is in use by another program: end it, or write another port" in err


def test_the_projects_own_demo_api_is_shared(tmp_path: Path) -> None:
    """`make run` next to `make dev` delivers to the same destination."""
    state = tmp_path / "state.json"
    with running_demo_api(state=state) as api:
        port = api.url.rpartition(":")[2]
        command = [sys.executable, "-c", POST_A_CONTACT, port, DEMO_KEY]
        with a_demo("--port", port, "--state", state, "--", *command) as demo:
            _, err = demo.communicate(timeout=30)
        assert ["C-1"] == list(api.contacts())
    assert f"using the demo API that already runs at http://127.0.0.1:{port}" in err


def a_free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


def test_a_batch_is_accepted_completely_or_not_at_all(api: DemoApi, client: httpx.Client) -> None:
    """The refusal names the operations that caused it."""
    good = {"key": "1", "upsert": {"customer_id": "C-1", "email": "a@example.com"}}
    bad = {"key": "2", "upsert": {"customer_id": "C-2", "email": "no address"}}
    refused = client.post("/crm/batches", json={"operations": [good, bad]})
    assert (422, {"error": "2: email 'no address' isn't an address"}) == (refused.status_code, refused.json())
    assert {} == api.contacts()
    client.post("/crm/batches", json={"operations": [good, {"key": "2", "delete": "C-2"}]})
    assert {"C-1"} == set(api.contacts())
    assert 400 == client.post("/crm/batches", json={"operations": [{"key": "1"}]}).status_code


def test_a_job_returns_its_results_after_enough_polls(api: DemoApi, client: httpx.Client) -> None:
    """A refused operation doesn't stop the other operations of the job."""
    operations = [
        {"key": "1", "upsert": {"customer_id": "C-1", "email": "a@example.com"}},
        {"key": "2", "upsert": {"email": "b@example.com"}},
    ]
    begun = client.post("/crm/jobs", json={"operations": operations})
    assert (202, "running") == (begun.status_code, begun.json()["status"])
    assert "running" == client.get("/crm/jobs/J-1").json()["status"]
    assert {
        "id": "J-1",
        "status": "complete",
        "results": [["1", "ok"], ["2", "reject: a contact needs its customer_id"]],
    } == client.get("/crm/jobs/J-1").json()
    assert (("J-1",), {"C-1"}) == (api.jobs(), set(api.contacts()))
    assert 404 == client.get("/crm/jobs/J-2").status_code
