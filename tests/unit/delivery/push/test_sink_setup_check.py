"""The checks of a sink and its use that run at load and in validate, without running the file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ondatra_dagster.delivery.push.push_config import PushConfig, PushSettings
from ondatra_dagster.delivery.push.sink_setup_check import check_push_file, check_sink_line
from ondatra_dagster.project.model import Model, ModelSink
from ondatra_dagster.project.model_kinds import KINDS

Lib = Callable[..., Path]


def a_model(*arguments: str, kind: str = "merge") -> Model:
    sink = ModelSink(name="crm", arguments=arguments, sync_id="sync.crm", line=4)
    path = Path("models/sync/crm.sql")
    return Model(
        name="sync.crm", path=path, file=str(path), kind=KINDS[kind], sql="", sql_line=6, definition="", sink=sink
    )


def a_config(**push: object) -> PushConfig:
    settings = PushSettings(**push)  # type: ignore[arg-type]
    return PushConfig(name="crm", file="lib/crm.star", destination="x", object="x", push=settings)


def test_a_check_does_not_run_the_file(write_library: Lib) -> None:
    """The load of the definitions has no side effects and is fast."""
    check = check_push_file(write_library(crm="x = 1 // 0\ndef push(rows):\n    pass"), secrets={}.get)

    assert check.config is not None
    assert [] == [*check.problems, *check.warnings]


@pytest.mark.parametrize(
    "files",
    [
        {"crm": "def push(rows):\n    while True:\n        pass"},
        {"crm": "load('b.star', 'f')\ndef push(rows):\n    pass", "b": "try:\n    pass\nexcept:\n    pass"},
    ],
)
def test_a_check_finds_syntax_that_starlark_lacks(write_library: Lib, files: dict[str, str]) -> None:
    """The file has Python's grammar, but not all of it. The check includes the files that it loads."""
    check = check_push_file(write_library(**files), secrets={}.get)

    assert (None, 1) == (check.config, len(check.problems))


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (r'"..\\out.star"', "there is no '..\\\\out.star' in lib/"),
        (r'"\x2e./out.star"', "'../out.star' can't be loaded"),
        (r"'\u002e./out.star'", "'../out.star' can't be loaded"),
        ('"""../out.star"""', "'../out.star' can't be loaded"),
        (r'"a\x00.star"', r"'a\x00.star' can't be loaded"),
        ('"%s.star"' % ("a" * 5_000), "can't be loaded"),
        (r'"cr\x6d.star"', "loading 'crm.star' loads this file again"),
    ],
)
def test_a_load_that_can_not_work_is_reported_with_its_line(write_library: Lib, wanted: str, what: str) -> None:
    """The name may be written in any form."""
    text = f'load("b.star", "g")\nload(\n    {wanted},\n    "f")\ndef push(rows):\n    pass'
    (problem,) = check_push_file(write_library(crm=text, b="def g():\n    pass"), secrets={}.get).problems

    assert ("lib/crm.star", 3) == (problem.file, problem.line)
    assert what in problem.description


def test_a_variable_that_is_not_set_is_a_warning(write_library: Lib) -> None:
    """It may be set on the machine that runs the sync."""
    api = """API = {
    "base_url": "https://x.test",
    "auth": {"env": "KEY"},
    "env": ["SET"],
}"""
    check = check_push_file(write_library(crm=f"{api}\ndef push(rows):\n    pass"), secrets={"SET": "x", "KEY": ""}.get)

    (warning,) = check.warnings
    remedy = "set it in .env or the environment before the sync runs"
    assert f"lib/crm.star:3: the variable KEY is not set; {remedy}" == str(warning)
    assert check.config is not None


def test_a_token_of_a_provider_is_a_variable_too(write_library: Lib) -> None:
    """The variable's name isn't in the file."""
    text = 'API = {"base_url": "https://x.test", "auth": {"provider": "crm"}}\ndef push(rows):\n    pass'
    (warning,) = check_push_file(write_library(crm=text), secrets={}.get).warnings

    assert "lib/crm.star:1: the variable ONDATRA_OAUTH_TOKEN_CRM is not set" in str(warning)


def test_credentials_without_a_base_url_are_a_warning(write_library: Lib) -> None:
    """No call would send them."""
    text = 'API = {\n"auth": {"env": "KEY"},\n"headers": {"X": "y"},\n}\ndef push(rows):\n    pass'
    check = check_push_file(write_library(crm=text), secrets={"KEY": "x"}.get)

    assert [
        'lib/crm.star:2: "auth" applies to the host of base_url, and there is none; give API a base_url',
        'lib/crm.star:3: "headers" applies to the host of base_url, and there is none; give API a base_url',
    ] == [str(warning) for warning in check.warnings]


def test_a_correct_sink_line_has_no_problems() -> None:
    """A sink without supported_kinds supports all kinds."""
    assert () == tuple(check_sink_line(a_config(args=("team",)), a_model("red")))
    assert () == tuple(check_sink_line(a_config(supported_kinds=("merge",)), a_model()))


def test_a_sink_line_with_too_few_arguments_is_refused() -> None:
    """The message has the place in the model's file, and a correct form."""
    (problem,) = check_sink_line(a_config(args=("team", "list_id")), a_model("red"))

    what = "models/sync/crm.sql:4: @sink gives crm 1 arguments, but it takes 2"
    assert f"{what}; write @sink: crm('team', 'list_id')" == str(problem)


def test_a_kind_that_the_sink_does_not_support_is_refused() -> None:
    """It would have change types that the push function doesn't handle."""
    (problem,) = check_sink_line(a_config(supported_kinds=("tracked",)), a_model())

    assert "models/sync/crm.sql:4: crm doesn't take models of kind merge; it takes tracked" == str(problem)


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS.values() if kind.has_query])
def test_only_tables_and_partitions_can_be_sent_as_mirrors(kind: str) -> None:
    """A merge that is sent as a whole would never say which rows are gone."""
    problems = [str(problem) for problem in check_sink_line(a_config(batch_size=0), a_model(kind=kind))]

    refused = (
        'models/sync/crm.sql:4: crm takes whole tables or partitions ("batch_size": 0), which only table and partition'
        " have; give lib/crm.star a batch_size, or the model another kind"
    )
    assert ([] if kind in {"table", "partition"} else [refused]) == problems
