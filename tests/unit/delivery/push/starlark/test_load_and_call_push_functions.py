"""The loading and calling of a `.star` file: its arguments, its functions and its errors."""

import hashlib
import hmac
import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from ondatra_dagster.delivery.http.api_client import ApiClient, BatchCalls, RetryClock
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import PushContext, PushLibrary, load_library
from ondatra_dagster.errors import ProjectError, PushContractError
from ondatra_dagster.row_changes import Column

Lib = Callable[..., Path]
COLUMNS = (Column("id", "int"), Column("name", "string"), Column("price", "decimal(10,2)"))
ROWS = ((1, "Ada", "1.50"), (2, "Bo", None))
SECRETS = {"KEY": "s3cr3t-key"}


def a_batch(rows: Iterable[tuple[Any, ...]] = ROWS, columns: tuple[Column, ...] = COLUMNS) -> str:
    names = [*(column.name for column in columns), "__ondatra_rowid", "__ondatra_change_type"]
    return json.dumps({"columns": names, "rows": [[*row, 10 * row[0], "insert"] for row in rows]})


def an_ok_server(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"ok": True})


def calls_of(library: PushLibrary, server: Callable[[httpx.Request], httpx.Response] = an_ok_server) -> BatchCalls:
    transport = httpx.MockTransport(server)
    retry_clock = RetryClock(sleep=lambda _: None)
    return ApiClient(library.config, secrets=SECRETS.get, transport=transport, retry_clock=retry_clock).begin_calls()


def push(
    library: PushLibrary,
    *,
    server: Callable[[httpx.Request], httpx.Response] = an_ok_server,
    calls: BatchCalls | None = None,
    batch: str | None = None,
    arguments: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    context = PushContext(
        sync_id="", kind="merge", key_columns=["id"], arguments=arguments, batch_number=3, columns=COLUMNS, **options
    )
    return library.call_function("push", batch or a_batch(), http=calls or calls_of(library, server), context=context)


def result_of(write_library: Lib, text: str, **options: Any) -> Any:
    return push(load_library(write_library(crm=text)), **options)


# --- the arguments of push


def test_rows_are_dicts_of_the_columns_of_the_model_and_of_ondatra(write_library: Lib) -> None:
    """They have the table's order, and the two hidden columns are last."""
    rows = result_of(write_library, "def push(rows):\n    return [list(row.items()) for row in rows]")

    hidden = [["__ondatra_rowid", 10], ["__ondatra_change_type", "insert"]]
    assert [["id", 1], ["name", "Ada"], ["price", "1.50"], *hidden] == rows[0]


def test_arguments_are_passed_by_name(write_library: Lib) -> None:
    """They may have any order, and only declared ones are passed."""
    text = """
API = {"push": {"args": ["team", "list_id"]}}
def push(list_id, columns, rows, key_columns, kind, team, batch_number):
    return [list_id, columns[2], len(rows), key_columns, kind, team, batch_number]
"""
    expected = ["7", {"name": "price", "type": "decimal(10,2)"}, 2, ["id"], "merge", "red", 3]
    assert expected == result_of(write_library, text, arguments=("red", "7"))


def test_defaults_of_parameters_are_replaced(write_library: Lib) -> None:
    """Defaults are for manual calls. A run passes a value for each of them."""
    text = """
def push(rows=[], batch_number=1, kind="tracked", key_columns=[]):
    return [len(rows), batch_number, kind, key_columns]
"""
    assert [2, 3, "merge", ["id"]] == result_of(write_library, text)


@pytest.mark.parametrize(
    ("signature", "expected"), [("rows", 2), ("rows, **others", 2), ("*, rows", 2), ("batch_number", 3)]
)
def test_push_may_declare_fewer_parameters(write_library: Lib, signature: str, expected: int) -> None:
    """Only declared parameters are passed."""
    name = "rows" if "rows" in signature else "batch_number"
    text = f"def push({signature}):\n    return len({name}) if type({name}) == 'list' else {name}"

    assert expected == result_of(write_library, text)


def test_decimals_are_exact_text_or_numbers(write_library: Lib) -> None:
    """Some APIs accept only numbers. A null stays null."""
    text = 'API = {"push": {"decimals": "%s"}}\ndef push(rows):\n    return [row["price"] for row in rows]'

    assert ["1.50", None] == result_of(write_library, text % "string")
    assert [1.5, None] == result_of(write_library, text % "number")


@pytest.mark.parametrize(
    "value",
    ["emoji 🦊", 'quote " \\ \n', "", None, True, 1.5, 2**63 - 1, -(2**63), [1, None, ["x"]], {"b": 1, "a": {}}],
)
def test_every_value_arrives_unchanged(write_library: Lib, value: object) -> None:
    """It is passed to push() and returned."""
    rows = result_of(write_library, "def push(rows):\n    return rows", batch=a_batch([(1, value, None)]))

    assert value == rows[0]["name"]


def test_push_may_change_rows(write_library: Lib) -> None:
    """The shortest way to omit a column is to pop it."""
    text = "def push(rows):\n    rows[0].pop('name')\n    rows[0]['x'] = 1\n    return rows[0]"

    assert {"id", "price", "x", "__ondatra_rowid", "__ondatra_change_type"} == set(result_of(write_library, text))


# --- the functions that push may call


def test_http_sends_requests_with_five_methods(write_library: Lib) -> None:
    """The response has five fields."""
    text = """
API = {"base_url": "https://api.test", "auth": {"env": "KEY"}}
def push(rows):
    answers = [
        http.get("/a", params = {"q": 1}),
        http.post("/a", json = {"id": 1, "name": "é", "none": None}, headers = {"X-A": "b"}),
        http.put("/a", data = "text"),
        http.patch("/a", json = []),
        http.delete("/a", timeout = 1.5),
    ]
    return [[a.ok, a.status_code, a.text, a.json, a.headers.get("x-seen")] for a in answers]
"""
    requests = []

    def server(request: httpx.Request) -> httpx.Response:
        requests.append((request.method, str(request.url), request.content.decode()))
        return httpx.Response(200, text='{"n": 1}', headers={"X-Seen": request.headers.get("x-a", "-")})

    answers = result_of(write_library, text, server=server)

    assert [
        ("GET", "https://api.test/a?q=1", ""),
        ("POST", "https://api.test/a", '{"id":1,"name":"é","none":null}'),
        ("PUT", "https://api.test/a", "text"),
        ("PATCH", "https://api.test/a", "[]"),
        ("DELETE", "https://api.test/a", ""),
    ] == requests
    assert [True, 200, '{"n": 1}', {"n": 1}, "b"] == answers[1]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"id": "1"}', {"id": "1"}),
        ("[1, 2.5, null]", [1, 2.5, None]),
        ("\ufeff[1]", [1]),
        ('{"id": 123456789012345678901234567890}', {"id": 123456789012345678901234567890}),
        ("18446744073709551616", 18446744073709551616),
        ("", None),
        ("<html>", None),
        ("1e400", None),
        ("[NaN]", None),
        ('"\\ud800"', None),
        ("[" * 500 + "]" * 500, None),
        ('["[[[[[[[[[[[[["]', ["[[[[[[[[[[[[["]),
        (json.dumps([[[]]] * 100), [[[]]] * 100),
    ],
)
def test_the_json_of_a_response_is_exact_or_none(write_library: Lib, body: str, expected: object) -> None:
    """No body of an API can raise an error in push()."""
    text = 'API = {"base_url": "https://x.test"}\ndef push(rows):\n    return [http.get("/").json]'

    assert [expected] == result_of(write_library, text, server=lambda _: httpx.Response(200, text=body))


def test_http_never_raises(write_library: Lib) -> None:
    """Starlark has no `try`, so the response contains the error."""
    text = """
API = {"base_url": "https://x.test", "retry": 1}
def push(rows):
    answers = [http.get(url) for url in ["/", "https://evil.test/", None]]
    return [[a.ok, a.status_code, a.text, a.json] for a in answers]
"""

    def server(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("timed out")

    first, second, third = result_of(write_library, text, server=server)

    assert [False, 0, "no answer: timed out (ConnectTimeout)", None] == first
    assert [False, 0] == second[:2]
    assert "https://evil.test may not be called" in second[2]
    assert [False, 0] == third[:2]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('md5("é")', hashlib.md5("é".encode()).hexdigest()),
        ('sha256("abc")', "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ('sha1("abc", encoding = "base64")', "qZk+NkcGgWq6PiVxeFDCbJzQ2J0="),
        ('len(sha512("abc"))', 128),
        ('hmac_sha256("key", "text")', hmac.new(b"key", b"text", "sha256").hexdigest()),
        ('base64.encode("hä")', "aMOk"),
        ('base64.decode("aMOk")', "hä"),
        ('url_quote("a/b c?ä")', "a%2Fb%20c%3F%C3%A4"),
        ("url_quote(17)", "17"),
        ('url_quote("a/b", safe = "/")', "a/b"),
        ('time.parse("2026-11-18T12:00:00Z")', 1795003200.0),
        ('time.parse("2026-11-18T13:00:00+01:00") - time.parse("2026-11-18T12:00:00")', 0.0),
        ("time.format(0)", "1970-01-01T00:00:00Z"),
        ('time.format(86400, "%Y-%m-%d")', "1970-01-02"),
        ("time.now()[-1] + str(time.unix() > 1700000000)", "ZTrue"),
        ('json.decode(json.encode({"b": [1, None]}))', {"b": [1, None]}),
        ('[f"{x}-{x}" for x in [1]][0]', "1-1"),
        ('env("KEY")', "s3cr3t-key"),
    ],
)
def test_the_built_in_functions(write_library: Lib, expression: str, expected: object) -> None:
    """They do what Starlark itself can't."""
    text = f'API = {{"env": ["KEY"]}}\ndef push(rows):\n    return [{expression}]'

    assert [expected] == result_of(write_library, text)


@pytest.mark.parametrize(
    ("expression", "cause"),
    [
        ('env("HOME")', "env('HOME') may not be read: name it in API's \"env\""),
        ('base64.decode("%")', "base64.decode: "),
        ('base64.decode("é")', "base64.decode: "),
        ('sha256("a", encoding = "hax")', "encoding is 'hax'; it can be 'hex' or 'base64'"),
        ("sha256(3)", "sha256 takes a string, not a value of type int"),
        ('time.parse("soon")', "time.parse: "),
        ("time.format(1e300)", "time.format: "),
        ('sleep("1s")', "sleep takes seconds, not a value of type str"),
        ('json.decode("1e400")', "json.decode: the text is not JSON"),
        ('json.decode("{")', "json.decode: the text is not JSON"),
        ("json.decode(3)", "json.decode takes a string, not a value of type int"),
        ("http.get()", "Missing parameter `url`"),
    ],
)
def test_a_wrong_use_of_a_built_in_function_is_an_error_with_its_line(
    write_library: Lib, expression: str, cause: str
) -> None:
    """The error is in the user's file, and not in ondatra's."""
    with pytest.raises(PushContractError) as error:
        result_of(write_library, f"def push(rows):\n    return [{expression}]")

    assert str(error.value).startswith("lib/crm.star:2: ")
    assert cause in str(error.value)


def test_other_files_of_lib_can_be_loaded(write_library: Lib) -> None:
    """They have the same built-in functions."""
    crm = """
load("shared.star", "strip", again = "twice")
def push(rows):
    return [strip(rows[0]), again("a")]
"""
    shared = """
load("deep.star", "twice")
def strip(row):
    return {k: v for k, v in row.items() if k[0] != "_"}
"""
    deep = "def twice(text):\n    return text + url_quote(text)"
    path = write_library(crm=crm, shared=shared, deep=deep)

    assert [{"id": 1, "name": "Ada", "price": "1.50"}, "aa"] == push(load_library(path))


def test_a_file_may_reuse_the_names_of_built_in_functions(write_library: Lib) -> None:
    """Any Starlark file may hide a built-in name."""
    text = """
http = 3
def time():
    return 5
def push(rows):
    json = 4
    return [time(), http, json]
"""

    assert [5, 3, 4] == result_of(write_library, text)


def test_print_writes_to_the_log_without_secrets_and_with_a_limit(
    write_library: Lib, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop over a million rows must not fill the disk."""
    text = """
API = {"env": ["KEY"]}
def push(rows):
    print("key", env("KEY"), 1, sep = "-")
    print(base64.encode("me:" + env("KEY")))
    for i in range(200):
        print("x" * 5000)
"""
    with caplog.at_level(logging.INFO, logger="ondatra_dagster"):
        result_of(write_library, text)

    lines = [record.getMessage() for record in caplog.records]
    assert "sink=crm batch=3 key-***-1" == lines[0]
    assert lines[1].startswith("sink=crm batch=3 bWU6***")
    assert 101 == len(lines)
    assert "more than 100 lines" in lines[-1]
    assert max(map(len, lines)) < 2100


# --- errors


def test_the_reason_of_a_failure_is_cut(write_library: Lib) -> None:
    """An API's error page would be stored with each row of the batch."""
    with pytest.raises(PushContractError, match=r"lib/crm.star:2: <html>x+… \(cut: it has 1,000,022 char") as error:
        result_of(write_library, 'def push(rows):\n    fail("<html>" + "x" * 1000000)')
    assert len(str(error.value)) < 2100


@pytest.mark.parametrize(
    ("body", "line", "cause"),
    [
        ('fail("no team", 3)', 4, "no team 3"),
        ('rows[0]["nix"]', 4, 'Key `"nix"` was not found'),
        ("rows[9]", 4, "out of bound"),
        ("helper(None)", 2, "not supported"),
        ("1 // 0", 4, "division by zero"),
        ('http.get("/").nix', 4, "nix"),
        ('http.post("/", json = {"f": push})', 4, "function"),
    ],
)
def test_an_error_has_its_file_line_and_cause(write_library: Lib, body: str, line: int, cause: str) -> None:
    """They are those of the user's file, even if the error happened in a function that it called."""
    text = f"def helper(x):\n    y = x + 1; return y\ndef push(rows):\n    return {body}"
    with pytest.raises(PushContractError) as error:
        result_of(write_library, text)

    assert str(error.value).startswith(f"lib/crm.star:{line}: ")
    assert cause in str(error.value)
    assert "\n" not in str(error.value)


def test_an_error_in_a_loaded_file_names_that_file(write_library: Lib) -> None:
    """The user has to fix that file."""
    path = write_library(
        crm='load("b.star", "f")\ndef push(rows):\n    return f()', b="\ndef f():\n    return fail('x')"
    )
    with pytest.raises(PushContractError, match=r"^lib/b.star:3: x$"):
        push(load_library(path))


def test_no_secret_is_in_an_error_or_its_cause(write_library: Lib) -> None:
    """Tracebacks also show causes and contexts."""
    text = 'API = {"env": ["KEY"]}\ndef push(rows):\n    fail("bad key " + env("KEY"))'
    with pytest.raises(PushContractError) as error:
        result_of(write_library, text)

    assert "lib/crm.star:3: bad key ***" == str(error.value)
    assert (None, None) == (error.value.__cause__, error.value.__context__)


@pytest.mark.parametrize("raised", [KeyboardInterrupt("ctrl-c"), MemoryError(), OSError(28, "disk full")])
def test_an_exception_of_the_system_is_raised_unchanged(write_library: Lib, raised: BaseException) -> None:
    """Starlark would pass on only its text, and Ctrl-C isn't an error of a row."""
    text = 'API = {"base_url": "https://x.test"}\ndef push(rows):\n    http.get("/")'

    def server(_: httpx.Request) -> httpx.Response:
        raise raised

    with pytest.raises(type(raised)) as error:
        result_of(write_library, text, server=server)
    assert raised is error.value


def test_an_unexpected_exception_is_an_error_with_its_line(write_library: Lib) -> None:
    """Only its batch waits, and not the whole sync. The call may have arrived."""
    path = write_library(crm='API = {"base_url": "https://x.test"}\ndef push(rows):\n    http.post("/")')

    def server(_: httpx.Request) -> httpx.Response:
        raise ValueError("odd value")

    library = load_library(path)
    calls = calls_of(library, server)
    with pytest.raises(PushContractError, match=r"^lib/crm.star:3: .*odd value"):
        push(library, calls=calls)
    assert (1, 0) == (calls.call_counts.calls, calls.call_counts.outage_calls)


def test_ctrl_c_ends_a_computation_in_starlark(write_library: Lib) -> None:
    """It works even where no function of ondatra is called."""
    library = load_library(write_library(crm="def push(rows):\n    for a in range(1000000000):\n        a + 1"))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            push(library)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_endless_computation_ends_at_its_time_limit(write_library: Lib) -> None:
    """The error has the line that was running."""
    text = """
API = {"push": {"time_limit": "100ms"}}
def push(rows):
    for a in range(1000000000):
        for b in range(1000000000):
            pass
"""
    began_at = time.monotonic()
    with pytest.raises(
        PushContractError, match=r"lib/crm.star:\d+: push\(\) computed longer than its time_limit of 0.1 s"
    ):
        result_of(write_library, text)
    assert time.monotonic() - began_at < 30


def test_the_time_limit_does_not_include_http_requests(write_library: Lib) -> None:
    """A slow API must not end a push that does its work."""
    text = """
API = {"base_url": "https://x.test", "push": {"time_limit": "1s"}}
def push(rows):
    return [http.get("/").ok for i in range(100)]
"""
    now = [0.0]

    def server(_: httpx.Request) -> httpx.Response:
        now[0] += 60
        return httpx.Response(200)

    assert [True] * 100 == result_of(write_library, text, server=server, clock=lambda: now[0])


def test_the_time_limit_includes_sleep(write_library: Lib) -> None:
    """No sleep lasts longer than the limit."""
    text = """
API = {"push": {"time_limit": "10s"}}
def push(rows):
    for i in range(100):
        sleep(4)
"""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds + 0.001

    with pytest.raises(PushContractError, match="time_limit of 10 s"):
        result_of(write_library, text, clock=lambda: now[0], sleep=sleep)
    assert now[0] < 11


def test_threads_may_call_the_same_push_function(write_library: Lib) -> None:
    """Each call has its own rows, its own API and its own batch number."""
    text = """
API = {"base_url": "https://x.test"}
def push(rows):
    return [http.get("/").text for r in rows]
"""
    library = load_library(write_library(crm=text))
    results: dict[str, Any] = {}

    def work(name: str) -> None:
        results[name] = [push(library, server=lambda _: httpx.Response(200, text=name)) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {name: [[name, name]] * 20 for name in "abcd"} == results


# --- files that can't be loaded


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"crm": "API = {}"}, "lib/crm.star:1: has no push()"),
        ({"crm": "\ndef push(:"}, "lib/crm.star:2: can't be read"),
        ({"crm": "\ndef push(rows):\n    while True:\n        pass"}, "lib/crm.star:3: "),
        ({"crm": "def push(rows):\n    return zap(rows)"}, "lib/crm.star:2: Variable `zap` not found"),
        ({"crm": "x = 1 // 0\ndef push(rows):\n    pass"}, "lib/crm.star:1: Floor division by zero"),
        ({"crm": "x = http.get('/')\ndef push(rows):\n    pass"}, "work inside push() only"),
        (
            {"crm": "def push(rowz):\n    pass"},
            "lib/crm.star:1: push() has a parameter 'rowz' that nothing fills; did you mean 'rows'?",
        ),
        ({"crm": "def push(*rows):\n    pass"}, "lib/crm.star:1: push() has positional parameters"),
        ({"crm": "API = {'retri': 1}\ndef push(rows):\n    pass"}, "lib/crm.star:1: 'retri' is not a key"),
        (
            {"crm": "\nload('nix.star', 'f')\ndef push(rows):\n    pass"},
            "lib/crm.star:2: there is no 'nix.star' in lib/",
        ),
        ({"crm": "load('../x.star', 'f')\ndef push(rows):\n    pass"}, "lib/crm.star:1: '../x.star' can't be loaded"),
        ({"crm": "load('/etc/passwd', 'f')\ndef push(rows):\n    pass"}, "'/etc/passwd' can't be loaded"),
        (
            {"crm": "load('b.star', 'f')\ndef push(rows):\n    pass", "b": "load('crm.star', 'push')"},
            "lib/b.star:1: loading 'crm.star' loads this file again",
        ),
        ({"crm": "load('b.star', 'f')\ndef push(rows):\n    pass", "b": "\ndef f(:"}, "lib/b.star:2: "),
        ({"crm": "load('b.star', 'f')\ndef push(rows):\n    pass", "b": "x = 1"}, "lib/crm.star:1: "),
    ],
)
def test_a_wrong_file_is_refused_when_it_is_loaded(write_library: Lib, files: Mapping[str, str], expected: str) -> None:
    """The error has the file and the line."""
    with pytest.raises(ProjectError) as error:
        load_library(write_library(**files))

    assert expected in str(error.value)


def test_a_load_from_outside_of_lib_is_refused(write_library: Lib, tmp_path: Path) -> None:
    """This includes symbolic links."""
    (tmp_path / "outside.star").write_text("def f():\n    pass")
    path = write_library(crm="load('link.star', 'f')\ndef push(rows):\n    pass")
    (tmp_path / "lib" / "link.star").symlink_to(tmp_path / "outside.star")

    with pytest.raises(ProjectError, match=r"'link.star' can't be loaded"):
        load_library(path)


def test_every_return_value_that_python_can_represent_is_returned(write_library: Lib) -> None:
    """Any other value is an error of push."""
    assert {"1:insert": "ok", "n": None} == result_of(
        write_library, "def push(rows):\n    return {'1:insert': 'ok', 'n': None}"
    )
    with pytest.raises(PushContractError):
        result_of(write_library, "def push(rows):\n    return push")
    with pytest.raises(PushContractError):
        result_of(write_library, "def push(rows):\n    return {(1, 2): 'ok'}")
