"""Which functions a push function's file has to have, and what they may ask for: told at load."""

from pathlib import Path

import pytest

from ondatra_dagster.delivery.push.push_file_parser import parse_push_file

ASYNC = 'API = {"push": {"batch_mode": "async", "args": ["team"]}}\n'
PUSH = "def push(rows): return {}\n"


def problems_of(folder: Path, text: str) -> list[str]:
    path = folder / "crm.star"
    path.write_text(text, encoding="utf-8")
    return [str(problem) for problem in parse_push_file(path, "lib/crm.star")[1]]


def test_jobs_that_nobody_asks_about_are_refused(tmp_path: Path) -> None:
    """They would stay open for ever."""
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
def test_what_nothing_fills_is_refused(tmp_path: Path, function: str, problem: str) -> None:
    """It would fail at the end of the first night's job, and not before."""
    (found,) = problems_of(tmp_path, f'API = {{"push": {{}}}}\n{PUSH}{function}\n')
    assert problem == found.partition(";")[0]


def test_all_that_can_be_filled_may_be_asked_for(tmp_path: Path) -> None:
    """The sink's own strings too."""
    poll = "def poll(job_ref, rows, batch_number, kind, key_columns, columns, team): pass\n"
    finalize = "def finalize(succeeded, failed, kind, key_columns, columns, team): pass\n"
    assert [] == problems_of(tmp_path, ASYNC + PUSH + poll + finalize)


def test_the_config_tells_which_functions_there_are(tmp_path: Path) -> None:
    """What is owed to a function that isn't there is owed to nobody."""
    path = tmp_path / "crm.star"
    path.write_text(PUSH + "def finalize(succeeded, failed): pass\n", encoding="utf-8")
    source, _ = parse_push_file(path, "lib/crm.star")
    assert source
    assert {"push", "finalize"} == source.config.functions
