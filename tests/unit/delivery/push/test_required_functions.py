"""The functions that a sink must define, and their parameters: checked when the file is loaded."""

from pathlib import Path

import pytest

from ondatra_dagster.delivery.push.push_file_parser import parse_push_file

ASYNC = 'API = {"push": {"batch_mode": "async", "args": ["team"]}}\n'
PUSH = "def push(rows): return {}\n"


def problems_of(folder: Path, text: str) -> list[str]:
    path = folder / "crm.star"
    path.write_text(text, encoding="utf-8")
    return [str(problem) for problem in parse_push_file(path, "lib/crm.star")[1]]


def test_an_asynchronous_sink_without_poll_is_refused(tmp_path: Path) -> None:
    """Its jobs would stay open forever."""
    assert [
        'lib/crm.star:1: has no poll(), which "batch_mode": "async" calls to read the state of a job;'
        " write def poll(job_ref): … at the top level of the file"
    ] == problems_of(tmp_path, ASYNC + PUSH)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("def poll(job): pass", "lib/crm.star:3: poll() has a parameter 'job' that nothing fills"),
        ("def poll(succeeded): pass", "lib/crm.star:3: poll() has a parameter 'succeeded' that nothing fills"),
        ("def finalize(rows): pass", "lib/crm.star:3: finalize() has a parameter 'rows' that nothing fills"),
        ("def finalize(*all): pass", "lib/crm.star:3: finalize() has positional parameters"),
    ],
)
def test_a_parameter_without_a_value_is_refused(tmp_path: Path, function: str, problem: str) -> None:
    """Otherwise it would fail only at the end of the first job, at night."""
    (message,) = problems_of(tmp_path, f'API = {{"push": {{}}}}\n{PUSH}{function}\n')
    assert problem == message.partition(";")[0]


def test_a_function_may_declare_every_known_parameter(tmp_path: Path) -> None:
    """The arguments of the sink are allowed too."""
    poll = "def poll(job_ref, rows, batch_number, kind, key_columns, columns, team): pass\n"
    finalize = "def finalize(succeeded, failed, kind, key_columns, columns, team): pass\n"
    assert [] == problems_of(tmp_path, ASYNC + PUSH + poll + finalize)


def test_the_config_has_the_names_of_the_functions(tmp_path: Path) -> None:
    """A run calls only the functions that exist."""
    path = tmp_path / "crm.star"
    path.write_text(PUSH + "def finalize(succeeded, failed): pass\n", encoding="utf-8")
    source, _ = parse_push_file(path, "lib/crm.star")
    assert source
    assert {"push", "finalize"} == source.config.functions
