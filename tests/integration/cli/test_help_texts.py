"""The help texts of `ondatra --help`, which users read first: each command's sentence is there in full."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ondatra_dagster.cli.main import VERBS, VerbGroup, cli

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", params=[60, 80, 120])
def help_lines(request: pytest.FixtureRequest) -> list[str]:
    """Return the lines of the list of commands on a terminal of the given width."""
    completed = subprocess.run(
        [sys.executable, "-m", "ondatra_dagster.cli.main", "--help"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(request.param)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = completed.stdout.partition("Commands:\n")[2].splitlines()
    assert all(len(line) <= request.param for line in lines)
    return lines


def sentences(lines: list[str]) -> dict[str, str]:
    """Return each command's sentence; a continued line is indented further."""
    sentence_by_command: dict[str, str] = {}
    for line in lines:
        if line[2] != " ":
            name, _, text = line.strip().partition(" ")
            sentence_by_command[name] = text.strip()
        else:
            sentence_by_command[list(sentence_by_command)[-1]] += f" {line.strip()}"
    return sentence_by_command


def test_no_sentence_is_cut_off(help_lines: list[str]) -> None:
    sentence_by_command = sentences(help_lines)
    assert list(VERBS) == list(sentence_by_command)
    for name, sentence in sentence_by_command.items():
        command = VerbGroup().get_command(click.Context(cli), name)
        assert command
        assert command.help
        assert " ".join(command.help.split()).startswith(sentence)
        assert not sentence.endswith("...")
