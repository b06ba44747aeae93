"""The `ondatra docs` command. It shows the pages that messages name, also to a user who installed the wheel."""

import re
from pathlib import Path

import pytest
from support.processes.cli_terminal import CommandLine

from ondatra_dagster.count_time_and_size_format import docs_command

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = {str(path.relative_to(DOCS).with_suffix("")): path for path in DOCS.rglob("*.md")}
NAMED = re.compile(r"docs_command\(['\"]([^'\"]+)['\"]\)")


def sources() -> dict[Path, str]:
    """Return the texts of the package: its code and the project template of `ondatra init`."""
    folder = ROOT / "ondatra_dagster"
    files = [path for ending in ("*.py", "*.star", "*.sql", "*.toml") for path in folder.rglob(ending)]
    return {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in files}


def test_every_page_is_in_the_package() -> None:
    """It is a link, because the wheel contains only the package's folder."""
    packaged = ROOT / "ondatra_dagster" / "docs"
    links = {str(path.relative_to(packaged).with_suffix("")): path.resolve() for path in packaged.rglob("*.md")}
    assert PAGES == links


def test_the_pages_are_listed(ondatra: CommandLine) -> None:
    result = ondatra("docs")
    assert set(PAGES) == {line.split()[0] for line in result.stdout.splitlines()[1:]}
    assert {"page": "models", "title": "Models"} in ondatra("docs", "--json").json_lines


@pytest.mark.parametrize("name", ["push-functions", "docs/push-functions.md", "push-functions.md"])
def test_a_page_is_shown_completely(ondatra: CommandLine, name: str) -> None:
    text = PAGES["push-functions"].read_text(encoding="utf-8")
    assert (0, text) == (ondatra("docs", name).exit_code, ondatra("docs", name).stdout)
    assert [{"page": "push-functions", "text": text}] == ondatra("docs", name, "--json").json_lines


def test_an_unknown_page_is_refused_with_the_nearest_one(ondatra: CommandLine) -> None:
    result = ondatra("docs", "modles")
    assert (2, "there is no page 'modles'; did you mean 'models'? ") == (result.exit_code, result.stderr[:50])


def test_messages_name_only_existing_pages() -> None:
    named = {name for text in sources().values() for name in NAMED.findall(text)}
    assert {"models", "push-functions"} <= named
    assert named <= set(PAGES)
    assert "`ondatra docs models`" == docs_command("models")


def test_no_message_names_a_file_of_the_repository() -> None:
    """A user who installed the wheel doesn't have it."""
    assert {} == {
        path: file_names for path, text in sources().items() if (file_names := re.findall(r"docs/\w+\S*\.md", text))
    }
