"""What users can write or call is in the docs: a word that isn't documented doesn't exist for them."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.cli.main import cli
from ondatra_dagster.delivery.outcome import Verdict
from ondatra_dagster.delivery.push.api_dict import API_KEYS, PUSH_KEYS
from ondatra_dagster.project.header import SYNONYMS, WORDS
from ondatra_dagster.project.kinds import KINDS
from ondatra_dagster.project.settings.setting_values import READERS
from ondatra_dagster.sync.verdicts import JUDGES

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("docs/*.md"))


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("word", [*WORDS, *SYNONYMS])
def test_every_header_is_described(word):
    assert f"@{word}" in page("docs/models.md")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_described_and_in_the_readme(kind):
    assert f"| `{kind}` |" in page("docs/models.md")
    assert f"| `{kind}` |" in page("README.md")


@pytest.mark.parametrize("setting", READERS)
def test_every_setting_is_described(setting):
    assert f"`{setting}`" in page("docs/models.md")


@pytest.mark.parametrize("command", cli.list_commands(None))
def test_every_command_is_described_and_has_help(command):
    assert f"| `ondatra {command}" in page("docs/operations.md")
    assert cli.get_command(None, command).help


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
    """`--help` has it for who knows the command already."""
    assert any(re.search(rf"`[^`]*{flag}\b", file.read_text(encoding="utf-8")) for file in PAGES)


@pytest.mark.parametrize("key", [*API_KEYS, *PUSH_KEYS])
def test_every_key_of_an_api_is_described(key):
    assert f"`{key}`" in page("docs/push-functions.md")


@pytest.mark.parametrize("change_type", list(ChangeType))
def test_every_change_type_is_described(change_type):
    assert f"`{change_type}`" in page("docs/push-functions.md")


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_status_is_described_and_in_the_readme(verdict):
    for name in ("docs/push-functions.md", "README.md"):
        assert f'`"{verdict}' in page(name)


@pytest.mark.parametrize("check", JUDGES)
def test_every_check_is_described(check):
    assert f"| `{check}` |" in page("docs/operations.md")


def test_a_word_stands_once_in_the_glossary():
    """Two meanings of one word is what it is there to keep out."""
    words = re.findall(r"^\| ([a-z ]+) \|", page("docs/glossary.md"), re.MULTILINE)
    assert [] == [word for word, times in Counter(words).items() if times > 1]


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_every_page_is_reached_from_the_readme(file):
    assert f"(docs/{file.name})" in page("README.md")


def test_the_pages_name_only_tests_that_are_there():
    """A promise whose test was moved or dropped is a promise no more."""
    named = {part for part in page("docs/reliability.md").split("`") if part.startswith("tests/")}
    assert [] == [name for name in sorted(named) if not (ROOT / name).exists()]


def test_no_link_of_the_package_page_is_dead():
    """A package index shows it alone: a path of the repository leads nowhere there."""
    settings = tomllib.loads(page("pyproject.toml"))
    shown = page(settings["project"]["readme"])
    targets = re.findall(r"\]\(([^)]+)\)|href=\"([^\"]+)\"", shown)
    assert [] == [target for pair in targets for target in pair if target and "://" not in target]


def test_both_first_pages_install_it_with_the_same_commands():
    """The test of a fresh environment runs those of the README."""
    blocks = [
        re.search(r"## Install.*?```sh\n(.*?)```", page(name), re.DOTALL) for name in ("README.md", "PYPI.md")
    ]
    assert all(blocks)
    assert blocks[0][1] == blocks[1][1]
