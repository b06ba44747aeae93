"""Tests that each push function keeps its contract. `pytest` prints a sentence for each rule that one breaks."""

from pathlib import Path

import pytest

from ondatra_dagster.testing import PushCase, problems_of

LIB = Path(__file__).parents[1] / "lib"

ADA = {"customer_id": "C-1", "name": "Ada", "email": "ada@example.com", "country": "GB"}
BEN = {"customer_id": "C-2", "name": "Ben", "email": "ben@example.com", "country": "DK"}
CYN = {"customer_id": "C-3", "name": "Cyn", "email": "cyn@example.com", "country": None}

# the rows that a model's query gives, run after run: rows appear and change; where the kind allows it, they disappear
CASES = {
    "crm_push": PushCase(
        library=LIB / "crm_push.star",
        kind="merge",
        key=["customer_id"],
        versions=[[ADA, BEN], [{**ADA, "email": "ada@example.org"}, BEN, CYN]],
    )
}


@pytest.mark.parametrize("sink", CASES)
def test_a_push_function_keeps_its_contract(sink: str) -> None:
    assert problems_of(CASES[sink]) == []


def test_every_push_function_has_a_case() -> None:
    sinks = {path.stem for path in LIB.glob("*.star") if "def push(" in path.read_text(encoding="utf-8")}
    assert sinks == set(CASES)
