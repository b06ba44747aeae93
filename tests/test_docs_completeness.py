"""A check that the docs describe all that users can write or call: an undocumented word doesn't exist for them."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ondatra_dagster.app.project_metrics import ModelMetrics, SyncMetrics, format_project_metrics
from ondatra_dagster.cli.main import cli
from ondatra_dagster.delivery.push.api_dict_parser import API_READERS, FUNCTION_PARAMETERS, OAUTH2_READERS, PUSH_READERS
from ondatra_dagster.delivery.row_outcome import Verdict
from ondatra_dagster.operations.alert_rules import RULES
from ondatra_dagster.project.model_header import HEADER_SYNONYMS, HEADER_WORDS
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.project.settings.setting_names_and_parsers import SETTING_PARSERS
from ondatra_dagster.records.record_query import RecordStage
from ondatra_dagster.records.record_schema import RECORD_SCHEMA
from ondatra_dagster.row_changes import ChangeType
from ondatra_dagster.sync.run_history_store import SyncTotals
from ondatra_dagster.sync.sync_checks import SYNC_CHECKS
from ondatra_dagster.ui.sync_health_and_run_facts import Health
from ondatra_dagster.ui.value_formatting import BADGE_STYLES, UNREADABLE

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("docs/*.md"))


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def listed(name: str, head: str) -> list[str]:
    """Return the code spans in the first columns of a page's tables, where the column has that head."""
    spans: list[str] = []
    first_head = ""
    lines = page(name).splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        cell = line.split(" | ")[0].removeprefix("|").removesuffix("|").strip()
        if below.startswith("|---"):
            first_head = cell
        elif line.startswith("| ") and first_head == head:
            spans += re.findall(r"`([^`]+)`", cell)
    return spans


def first_words(spans: Iterable[str]) -> set[str]:
    """Return the first word of each span of code: `@sink` for `@sink: name`, `warn` for `"warn: why"`."""
    return {re.split(r"[\s:(]", span.strip('"'))[0] for span in spans}


def test_every_header_is_described():
    headers = listed("docs/models.md", "header")
    assert {f"@{word}" for word in HEADER_WORDS} == first_words(span for span in headers if span.startswith("@"))


@pytest.mark.parametrize(("synonym", "word"), HEADER_SYNONYMS.items())
def test_a_synonym_is_described_at_its_header(synonym, word):
    (row,) = [line for line in page("docs/models.md").splitlines() if line.startswith(f"| `@{word}:")]
    assert f"`@{synonym}` is the same" in row


def test_every_kind_is_described():
    assert list(KINDS) == listed("docs/models.md", "kind")


def test_every_setting_is_described():
    assert sorted(SETTING_PARSERS) == sorted(listed("docs/models.md", "setting"))


def test_every_command_is_described_and_has_help():
    commands = [span.split()[1] for span in listed("docs/run.md", "command")]
    assert sorted(cli.list_commands(None)) == sorted(commands)
    assert [] == [name for name in commands if not cli.get_command(None, name).help]


FLAGS = sorted(
    {
        flag
        for command in cli.list_commands(None)
        for option in cli.get_command(None, command).params
        for flag in option.opts
        if flag.startswith("--")
    }
)


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_is_described(flag):
    """`--help` serves only users who know the command already."""
    assert any(re.search(rf"`[^`]*{flag}\b", file.read_text(encoding="utf-8")) for file in PAGES)


@pytest.mark.parametrize(
    ("head", "keys"), [("key", API_READERS), ("key of `push`", PUSH_READERS), ("key of `oauth2`", OAUTH2_READERS)]
)
def test_every_key_of_an_api_is_described(head, keys):
    assert sorted(keys) == sorted(listed("docs/push-functions.md", head))


def test_every_parameter_of_a_push_function_is_described():
    parameters = listed("docs/push-functions.md", "parameter")
    assert {name for names in FUNCTION_PARAMETERS.values() for name in names} == {*parameters} - {"args"}


def test_every_change_type_is_described():
    assert sorted(ChangeType) == sorted(listed("docs/push-functions.md", "change type"))


@pytest.mark.parametrize("name", ["docs/push-functions.md", "README.md"])
def test_every_status_is_described_and_in_the_readme(name):
    assert set(Verdict) == first_words(listed(name, "status"))


def test_every_check_is_described():
    assert set(SYNC_CHECKS) <= set(listed("docs/watch.md", "check"))


def test_every_health_is_described_in_the_order_of_the_checks():
    """The page shows the first one that is true; a file that can't be read hides all others."""
    assert [UNREADABLE, *Health] == listed("docs/records.md", "health")


def test_every_health_has_a_separate_badge_on_the_page():
    """A health that the page doesn't know would get the dot of a pending row."""
    assert set(Health) <= set(BADGE_STYLES)


def test_every_alert_rule_is_described():
    assert list(RULES) == listed("docs/watch.md", "rule")


def test_every_metric_is_described():
    metrics = {"oldest_seconds": 1, "next_due_at": 1, "last_run_seconds": 1}
    totals = SyncTotals(last_success=datetime.now(UTC))
    table = ModelMetrics(model="mart.a", version=1, rows=1, disk_bytes=1, changed_at=1)
    text = format_project_metrics([SyncMetrics(sync="sync.crm", totals=totals, **metrics)], [table])
    names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert sorted(names) == sorted(listed("docs/watch.md", "metric"))


def test_every_column_of_a_record_is_described():
    assert RECORD_SCHEMA.names == listed("docs/records.md", "column")


def test_every_stage_of_a_row_is_described_as_an_option():
    spans = listed("docs/records.md", "option")
    stages = [span.removeprefix("--status ") for span in spans if " " not in span.removeprefix("--status ")]
    assert set(RecordStage) <= set(stages)


def test_a_word_is_in_the_glossary_once():
    """The glossary exists so that no word has two meanings."""
    words = re.findall(r"^\| ([a-z ]+) \|", page("docs/glossary.md"), re.MULTILINE)
    assert "health" in words
    assert [] == [word for word, times in Counter(words).items() if times > 1]


@pytest.mark.parametrize("file", sorted(ROOT.glob("docs/**/*.md")), ids=lambda file: file.name)
def test_the_first_page_and_the_navigation_lead_to_every_page(file):
    link = file.relative_to(ROOT / "docs").as_posix()
    assert f"({link})" in page("docs/index.md") or file.name in ("index.md", "find-test.md")
    assert f'"{link}"' in page("zensical.toml")


def test_the_pages_name_only_tests_that_exist():
    """When a test was moved or deleted, the promise next to its name isn't tested any more."""
    named = {part for part in page("docs/reliability.md").split("`") if part.startswith("tests/")}
    assert "tests/faults/test_random_kills.py" in named
    assert [] == [name for name in sorted(named) if not (ROOT / name).exists()]


def test_no_link_of_the_package_page_is_dead():
    """A package index shows only this page: a path of the repository leads nowhere there."""
    settings = tomllib.loads(page("pyproject.toml"))
    shown = page(settings["project"]["readme"])
    targets = re.findall(r"\]\(([^)]+)\)|href=\"([^\"]+)\"", shown)
    assert [] == [target for pair in targets for target in pair if target and "://" not in target]


def test_both_install_pages_have_the_same_commands():
    """The test of a fresh environment runs those of PYPI.md."""
    commands = re.search(r"## Install.*?```sh\n(.*?)```", page("PYPI.md"), re.DOTALL)
    blocks = re.findall(r"```sh\n(.*?)```", page("docs/install.md"), re.DOTALL)
    assert commands
    assert commands[1] == blocks[0] + blocks[2]
