"""What `ondatra init` lays down is the example project in small, and stays so."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "ondatra_dagster" / "template"


@pytest.mark.parametrize(
    "file",
    [
        "dagster.yaml",
        "lib/crm_push.star",
        "models/raw/customers.sql",
        "ondatra_project/definitions.py",
        "workspace.yaml",
    ],
)
def test_a_file_of_both_projects_is_the_same_in_both(file: str) -> None:
    """A fix to the example must reach new projects too."""
    assert (ROOT / file).read_text() == (TEMPLATE / file).read_text()


def test_a_new_project_keeps_its_secrets_and_state_out_of_git() -> None:
    """The first `git add .` of a new project must not take its keys along."""
    assert {".env", ".ondatra/"} <= set((TEMPLATE / ".gitignore").read_text().split())
